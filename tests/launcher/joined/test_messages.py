"""What goes over a connection between two nodes, and what comes of anything else."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from distdemo.demo.records import Piece
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.joined.interfaces import listening_socket
from distdemo.launcher.joined.messages import (
    Connection,
    Hello,
    NodeEnded,
    RankTold,
    StartWorld,
    ToNodeZero,
    connect,
    pack,
    unpack,
)
from distdemo.launcher.joined.nodes import Nodes
from distdemo.launcher.joined.placement import Placement
from distdemo.launcher.records import Died, Lost, Outcome, Phase, Raised, Returned, Stopped

HELLO = Hello(1, "node1", "0123", "all-reduce")


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    """A connection, and the bare socket at its other end."""
    with listening_socket("127.0.0.1", 0) as listening, Interrupts() as interrupts:
        port = listening.getsockname()[1]
        there = connect("127.0.0.1", port, time.monotonic() + 10, interrupts)
        assert there is not None
        made = Connection(listening.accept()[0], 8.0)
        yield made, there
        made.close()
        there.close()


def heard(connection: Connection) -> list[Any]:
    """What has come once something has, or nothing more will."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        messages = connection.receive(ToNodeZero)
        if messages or connection.lost:
            return messages
        os.sched_yield()
    raise AssertionError("nothing came")


def test_messages_come_whole_and_in_order(ends: tuple[Connection, socket.socket]) -> None:
    connection, there = ends
    ended = NodeEnded(
        0, 1.5, (Returned(rank=1), Died(rank=2, signal=9)), (pack(7), pack(None)), False
    )
    other = Connection(there, 8.0)
    for message in (HELLO, ended, RankTold(0, 1, pack("x" * 100_000))):
        other.send(message)
    messages: list[Any] = []
    while len(messages) < 3:
        messages += heard(connection)
    assert messages[:2] == [HELLO, ended]
    assert unpack(messages[2].value) == "x" * 100_000


@pytest.mark.parametrize(
    "sent",
    [
        b"\x80\x04\x95pickle\n",
        b'{"kind": "exit", "code": 0}\n',  # node 0 alone says this
        b"[" * 100_000 + b"\n",
    ],
    ids=["pickle", "of node 0", "deep"],
)
def test_what_is_no_message_ends_the_connection(
    sent: bytes, ends: tuple[Connection, socket.socket]
) -> None:
    connection, there = ends
    there.sendall(sent)
    assert heard(connection) == []
    assert connection.lost is not None
    assert "can't be read" in connection.lost[0]


def test_who_takes_nothing_does_not_hold_up_the_sender() -> None:
    with listening_socket("127.0.0.1", 0) as listening, Interrupts() as interrupts:
        port = listening.getsockname()[1]
        there = connect("127.0.0.1", port, time.monotonic() + 10, interrupts)
        made = Connection(listening.accept()[0], 2.0)
        made._patience = 0.1
        made.send(StartWorld(0, 0, order="x" * 50_000_000))
        made.close()
        assert there is not None
        there.close()


# ----------------------------------------------------------------------------------------- values


def test_records_and_plain_values_come_back_as_themselves() -> None:
    piece = Piece((2,), (math.inf, 1), source=3)
    values = (piece, (piece, None), {"a": {"b": 1.5}}, "x", True, 2**70)
    assert unpack(json.loads(json.dumps(pack(values)))) == values


def test_nothing_but_loaded_records_is_made() -> None:
    for data in (
        7,
        {"type": "distdemo.demo.records:Piece", "value": {"shape": "x"}},
        {"type": "distdemo.demo.records:Nothing", "value": {}},
        {"type": "distdemo.demo.records:Any", "value": {}},
        {"type": "distdemo.launcher.joined.messages:connect", "value": {}},
        {"type": "distdemo.never.imported:Piece", "value": {}},
        {"type": "os:system", "value": "true"},
        {"type": "dataclasses:Field", "value": {}},
    ):
        with pytest.raises(ValueError, match=r"packed|record|shape|argument"):
            unpack(data)


# ------------------------------------------------------------------------- what node 0 makes of it

WELL = Returned(rank=1, at=0.5)


def nodes(*hosts: str) -> Nodes:
    """Nodes 1, 2, ... on these hosts, one rank each; empty: it has not said a word."""
    made = Nodes(Placement("environment", 0, len(hosts) + 1))
    for node, host in zip(made.nodes.values(), hosts, strict=True):
        node.host = host
    return made


def end(made: Nodes, number: int, outcome: Outcome, value: Any = None, later: float = 0.0) -> None:
    began = made.began[0] + later
    made.ended(made.nodes[number], NodeEnded(0, began, (outcome,), (pack(value),), False))  # type: ignore[arg-type]  # one of them


def test_a_world_is_done_when_every_node_has_ended() -> None:
    made = nodes("a", "b")
    end(made, 1, WELL, "seven", later=2.0)
    assert not made.done
    end(made, 2, Returned(rank=2))
    assert (made.done, made.answered, made.failed_at) == (True, True, None)
    first = made.outcomes[0]
    assert isinstance(first, Returned)
    assert first.value == "seven"
    assert first.at == pytest.approx(2.5)  # on node 0's clock


def test_a_node_that_is_gone_stays_so_in_the_next_world() -> None:
    made = nodes("a", "b")
    end(made, 1, Raised(rank=1, type="E", message="", traceback="", phase=Phase(1, "x")))
    assert made.failed_at is not None
    made.leave(made.nodes[1], "ended too", "hint")  # what it has said counts
    made.leave(made.nodes[2], "the process on b ended", "hint")
    assert isinstance(made.outcomes[0], Raised)
    made.nodes[1].gone = None
    made.begin()
    assert not made.done
    (lost,) = made.outcomes
    assert isinstance(lost, Lost)
    assert (lost.rank, lost.why, made.failed_at is None) == (2, "the process on b ended", False)


def test_a_refused_node_comes_before_all_other_causes() -> None:
    made = nodes("a", "b")
    made.lose(made.nodes[2], "silent", "hint")
    made.refuse(made.nodes[1], "asked for something else", "hint")
    assert [outcome.at == 0 for outcome in made.outcomes] == [True, False]
    end(made, 1, WELL)
    assert isinstance(made.outcomes[0], Lost)


def test_a_node_that_never_came_is_to_blame_only_when_time_is_up() -> None:
    for early, kind in ((True, Stopped), (False, Lost)):
        made = nodes("")
        assert (made.done, made.answered) == (False, True)
        made.give_up(early=early)
        assert made.done
        assert isinstance(made.outcomes[0], kind)


def test_a_node_speaks_for_its_own_ranks_alone() -> None:
    with pytest.raises(ValueError, match="ranks"):
        end(nodes("a", "b"), 1, Returned(rank=2))
