from __future__ import annotations

import os
import socket
from unittest.mock import patch

import pytest
from distdemo.launcher.wires.contract import Ticket, Wire
from hypothesis import given
from hypothesis import strategies as st

from distdemo.launcher.pmi import LONGEST, Exchange, PmiWire, segment_names
from distdemo.launcher.records import MpiStart, WorldSpec

SHARED = (("UCX_TLS", "self,sm"),)


def said(exchange, rank, line):
    """What the rank itself is answered, as pairs."""
    ((other, text),) = exchange.answer(rank, line)
    assert other == rank
    return dict(pair.split("=", 1) for pair in text.split())


# ------------------------------------------------------------------------------- the protocol


def test_a_rank_learns_how_many_there_are_and_that_all_share_one_host():
    exchange = Exchange(3, "w")
    assert said(exchange, 0, "cmd=init pmi_version=1 pmi_subversion=1")["rc"] == "0"
    assert said(exchange, 0, "cmd=get_my_kvsname")["kvsname"] == "w"
    assert said(exchange, 0, "cmd=get_universe_size")["size"] == "3"
    assert said(exchange, 0, "cmd=get_appnum")["appnum"] == "0"
    assert int(said(exchange, 0, "cmd=get_maxes")["vallen_max"]) >= 1024
    mapping = said(exchange, 0, "cmd=get kvsname=w key=PMI_process_mapping")
    assert mapping["value"] == "(vector,(0,1,3))"
    assert said(exchange, 0, "cmd=finalize")["cmd"] == "finalize_ack"


def test_what_one_rank_puts_the_others_get():
    exchange = Exchange(2, "w")
    assert said(exchange, 1, "cmd=get kvsname=w key=card0")["rc"] == "-1"
    assert said(exchange, 0, "cmd=put kvsname=w key=card0 value=a=b#c")["rc"] == "0"
    assert said(exchange, 1, "cmd=get kvsname=w key=card0")["value"] == "a=b#c"


def test_nothing_is_put_into_another_world():
    exchange = Exchange(2, "w")
    assert said(exchange, 0, "cmd=put kvsname=v key=k value=1")["rc"] == "-1"
    assert said(exchange, 0, "cmd=get kvsname=w key=k")["rc"] == "-1"


def test_a_barrier_lets_all_go_when_the_last_has_come_and_again_the_next_time():
    exchange = Exchange(3, "w")
    for _ in range(2):
        assert exchange.answer(2, "cmd=barrier_in") == []
        assert exchange.answer(0, "cmd=barrier_in") == []
        assert exchange.answer(0, "cmd=barrier_in") == []  # the same rank does not count twice
        freed = exchange.answer(1, "cmd=barrier_in")
        assert freed == [(rank, "cmd=barrier_out rc=0") for rank in range(3)]


def test_what_is_not_served_is_refused_in_the_reply_that_is_waited_for():
    exchange = Exchange(2, "w")
    assert said(exchange, 0, "cmd=init pmi_version=2 pmi_subversion=0")["rc"] == "-1"
    for command, reply in (
        ("publish_name", "publish_result"),
        ("unpublish_name", "unpublish_result"),
        ("lookup_name", "lookup_result"),
        ("getbyidx", "getbyidx_results"),
        ("dance", "error"),
    ):
        answer = said(exchange, 0, f"cmd={command} service=x")
        assert (answer["cmd"], answer["rc"]) == (reply, "-1")
    assert exchange.answer(0, "cmd=abort exitcode=1") == []


def test_a_spawn_of_several_lines_is_refused_once_at_its_end():
    exchange = Exchange(2, "w")
    for line in ("mcmd=spawn", "nprocs=2", "execname=cmd=init", "cmd=get_appnum"):
        assert exchange.answer(0, line) == []
    assert said(exchange, 1, "cmd=get_appnum")["rc"] == "0"  # another rank's talk is its own
    assert said(exchange, 0, "endcmd")["cmd"] == "spawn_result"
    assert said(exchange, 0, "cmd=get_appnum")["rc"] == "0"


@given(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=80)), max_size=20))
def test_no_line_breaks_the_exchange(lines):
    exchange = Exchange(3, "w")
    for rank, line in lines:
        for other, text in exchange.answer(rank, line):
            assert other in range(3)
            assert "\n" not in text
            assert text.startswith("cmd=")


def test_the_names_of_shared_memory_are_those_that_mpich_gives():
    # Seen with MPICH 5.0.2, whose ranks had been told the name kvs_0.
    assert segment_names("kvs_0") == ("mpich_shm_7f2d381a_0", "mpich_vci_7f2d381a_0")


# ----------------------------------------------------------------------------------- the wire


@pytest.fixture
def wire():
    world = WorldSpec(2, "mpi", mpi_start=MpiStart(SHARED))
    found = PmiWire(world)
    yield found
    found.close()


def line_of(ticket: Ticket) -> socket.socket:
    """What a rank with this ticket speaks through."""
    ((name, end),) = ticket.sockets
    assert name == "PMI_FD"
    line = socket.socket(fileno=os.dup(end.fileno()))
    line.settimeout(5)
    return line


def test_a_rank_speaks_through_what_its_ticket_holds(wire):
    ticket = wire.ticket(1)
    assert {("PMI_RANK", "1"), ("PMI_SIZE", "2"), *SHARED} <= set(ticket.environment)
    with line_of(ticket) as line:
        line.sendall(b"cmd=get_uni")
        (port,) = wire.listeners
        assert port.hear()  # half a line: nothing to say yet
        line.sendall(b"verse_size\ncmd=get_appnum\n")
        wire.started(1)
        assert line.recv(200).splitlines() == [
            b"cmd=universe_size rc=0 size=2",
            b"cmd=appnum rc=0 appnum=0",
        ]


def test_a_rank_that_is_gone_is_not_heard_any_more(wire):
    wire.ticket(0)
    assert len(wire.descriptors()) == 2  # the port's, and the keeper's
    (port,) = wire.listeners
    wire.started(0)  # nobody else holds the rank's end here
    assert not port.hear()
    assert len(wire.descriptors()) == 1
    assert wire.listeners == ()


@pytest.mark.parametrize("mischief", ["never ends a line", "never reads"])
def test_who_does_not_speak_pmi_is_hung_up_on_and_holds_nobody_up(wire, mischief):
    with line_of(wire.ticket(0)) as line:
        (port,) = wire.listeners
        wire.started(0)
        line.setblocking(False)
        asked = b"x" * LONGEST if mischief == "never ends a line" else b"cmd=get_maxes\n" * 500
        for _ in range(1000):
            try:
                line.send(asked)
            except BlockingIOError:
                pass
            except OSError:  # it is closed on the other side
                break
            if not port.hear():
                break
        assert port.closed


def test_in_the_rank_nothing_of_another_starter_is_left(wire):
    ticket = wire.ticket(1)
    outer = {"PMI_ID": "7", "PMIX_RANK": "7", "OMPI_COMM_WORLD_RANK": "7", "UCX_TLS": "all"}
    with patch.dict(os.environ, outer):
        ticket.redeem()
        assert not {"PMI_ID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"} & set(os.environ)
        assert os.environ["UCX_TLS"] == "self,sm"
        fd = int(os.environ["PMI_FD"])
        os.write(fd, b"cmd=get_appnum\n")
        (port,) = wire.listeners
        port.hear()
        assert os.read(fd, 100) == b"cmd=appnum rc=0 appnum=0\n"
        os.close(fd)


def test_a_world_that_needs_no_wire_leaves_the_environment_alone():
    with patch.dict(os.environ, {"PMI_RANK": "3"}):
        Wire().ticket(0).redeem()
        assert os.environ["PMI_RANK"] == "3"
