from __future__ import annotations

import os
import socket
from unittest.mock import patch

import pytest

from distdemo.launcher.pmi import (
    MAX_LINE_BYTES,
    KeyValueSpace,
    PmiServer,
    segment_names,
    set_environment,
)
from distdemo.launcher.records import MpiStart

SHARED = (("UCX_TLS", "self,sm"),)


def said(exchange, rank, line):
    """Return the reply to the rank itself, as pairs."""
    ((other, text),) = exchange.answer(rank, line)
    assert other == rank
    return dict(pair.split("=", 1) for pair in text.split())


def test_a_question_and_its_answer():
    for line, name, value in (
        ("cmd=init pmi_version=1 pmi_subversion=1", "rc", "0"),
        ("cmd=init pmi_version=2 pmi_subversion=0", "rc", "-1"),
        ("cmd=get_my_kvsname", "kvsname", "w"),
        ("cmd=get_universe_size", "size", "3"),
        ("cmd=get_appnum", "appnum", "0"),
        ("cmd=get_maxes", "vallen_max", "1024"),
        ("cmd=get kvsname=w key=PMI_process_mapping", "value", "(vector,(0,1,3))"),
        ("cmd=get kvsname=w key=other", "rc", "-1"),
        ("cmd=put kvsname=v key=k value=1", "rc", "-1"),  # another world's
        ("cmd=finalize", "cmd", "finalize_ack"),
        ("cmd=lookup_name service=x", "rc", "-1"),
        ("mcmd=spawn", "rc", "-1"),
    ):
        assert said(KeyValueSpace(3, "w"), 0, line)[name] == value, line


def test_no_line_breaks_the_exchange():
    exchange = KeyValueSpace(3, "w")
    for line in ("", "=", "cmd=", "cmd", "a=b=c", "cmd=put", "cmd=get", "mcmd=spawn", "\x00\xff"):
        for _, text in exchange.answer(0, line):
            assert text.startswith("cmd=")


def test_the_names_of_shared_memory_are_those_that_mpich_gives():
    # Seen with MPICH 5.0.2, whose ranks had been told the name kvs_0.
    assert segment_names("kvs_0") == ("mpich_shm_7f2d381a_0", "mpich_vci_7f2d381a_0")


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
