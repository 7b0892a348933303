from __future__ import annotations

import os
import socket
from unittest.mock import patch

import pytest

from distdemo.launcher.pmi import (
    MAX_LINE_BYTES,
    KeyValueSpace,
    PmiServer,
    set_environment,
)
from distdemo.launcher.records import MpiStart

SHARED = (("UCX_TLS", "self,sm"),)


def test_no_line_breaks_the_exchange():
    exchange = KeyValueSpace(3, "w")
    for line in ("", "=", "cmd=", "cmd", "a=b=c", "cmd=put", "cmd=get", "mcmd=spawn", "\x00\xff"):
        for _, text in exchange.answer(0, line):
            assert text.startswith("cmd=")


# ---------------------------------------------------------------------------------------- the ports


@pytest.fixture
def server():
    found = PmiServer(MpiStart(SHARED), 2)
    yield found
    found.close()


@pytest.fixture
def line(server):
    """The socket of rank 1."""
    environment, end = server.connect(1)
    assert {("PMI_RANK", "1"), ("PMI_SIZE", "2"), *SHARED} <= set(environment.items())
    with end, socket.socket(fileno=os.dup(end.fileno())) as made:
        made.settimeout(5)
        yield made


@pytest.mark.processes
@pytest.mark.parametrize("asked", [b"x" * MAX_LINE_BYTES, b"cmd=get_maxes\n" * 500])
def test_who_does_not_speak_pmi_is_hung_up_on_and_holds_nobody_up(server, line, asked):
    """One client never ends a line, the other never reads."""
    line.setblocking(False)
    for _ in range(1000):
        try:
            line.send(asked)
        except BlockingIOError:
            pass
        except OSError:  # it is closed on the other side
            break
        if not server.ports[1].on_message():
            break
    assert not server.ports[1].open


@pytest.mark.processes
def test_in_the_rank_nothing_of_another_starter_is_left(server):
    outer = {"PMI_ID": "7", "PMIX_RANK": "7", "OMPI_COMM_WORLD_RANK": "7", "UCX_TLS": "all"}
    with patch.dict(os.environ, outer):
        set_environment(*server.connect(1))
        assert not {"PMI_ID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"} & set(os.environ)
        assert os.environ["UCX_TLS"] == "self,sm"
        fd = int(os.environ["PMI_FD"])
        os.write(fd, b"cmd=get_appnum\n")
        server.poll()
        assert os.read(fd, 100) == b"cmd=appnum rc=0 appnum=0\n"
        os.close(fd)
