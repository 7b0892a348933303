"""Control messages: valid and invalid input."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hostile import JSON
from hypothesis import given
from hypothesis import strategies as st

from distdemo.check.rank import CaseFinding, run_cases
from distdemo.joined import messages
from distdemo.joined.engines import Placement
from distdemo.joined.messages import (
    Exit,
    Gone,
    Hello,
    Message,
    RankEnded,
    Sent,
    StartWorld,
    StopWorld,
)
from distdemo.joined.nodes import Coordinator
from distdemo.launcher.records import Died, Phase, Returned
from distdemo.launcher.workers import StopReason

TO_COORDINATOR: list[Message] = [
    Hello("h1"),
    Sent(0, 3, {"time_s": 0.5}),
    RankEnded(2, 1e9, Returned(rank=3, phase=Phase(1, "left barrier", 0.5), at=1.5, value=[1])),
    RankEnded(2, 1e9, Died(rank=3, signal=9, output="last words"), stalled=True),
    Gone("refused", "try"),
    Gone(),
]
FROM_COORDINATOR: list[Message] = [
    StartWorld(1, "0123", "all-reduce -n 2", {1: [1, 2]}),
    StopWorld(1, StopReason.TIMED_OUT),
    Exit(7),
]
ENDED = b'{"kind": "ended", "world": 0, "started_s": '
EVERY = [(1, sent) for sent in TO_COORDINATOR] + [(0, sent) for sent in FROM_COORDINATOR]


@pytest.mark.parametrize(("node", "message"), EVERY)
def test_a_message_arrives_as_it_was_sent(node: int, message: Message) -> None:
    assert messages.read(node, messages.write(message)) == message


@given(st.sampled_from(EVERY), JSON)
def test_any_document_is_a_message_or_refused(sent: tuple[int, Message], value: Any) -> None:
    node, message = sent
    document = {"kind": message.kind, **value} if isinstance(value, dict) else value
    with suppress(ValueError):
        read = messages.read(node, json.dumps(document).encode())
        assert (node, type(read)) in {(n, type(m)) for n, m in EVERY}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[" * 60_000,
        b'{"kind": "hello", "host": "' + b"x" * messages.MAX_BYTES + b'"}',
        ENDED + b'1e400, "outcome": {"kind": "died", "rank": 1}}',
        ENDED + b'"NaN", "outcome": {"kind": "died", "rank": 1}}',
        ENDED + b'1.0, "outcome": {"kind": "eval", "rank": 1}}',
        b'{"kind": "sent", "world": 0, "rank": ' + b"1" * 5000 + b', "value": null}',
        b'{"kind": "exit", "code": 1}',  # from a node that may not send it
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        messages.read(1, data)


def test_what_a_rank_sends_is_checked_when_it_is_read() -> None:
    node = Coordinator(Placement("terminals", 0, 2, nnodes=2), "check")
    vars(node).update(_target=run_cases, _args=((), (3,)), _number=0)

    def read(rank: int, value: Any) -> Message:
        return node._read(1, messages.write(Sent(0, rank, value)))

    assert read(1, {"number": 3, "time_s": 0.5}) == Sent(0, 1, CaseFinding(3, 0.5))
    assert read(1, None) == Sent(0, 1, None)
    for rank, value, why in (
        (0, None, "rank 0 is not a running rank of node 1"),
        (1, {"number": 4, "time_s": 0.5}, "rank 1 can't have sent this"),
        (1, [], "is not an object"),
    ):
        with pytest.raises(ValueError, match=why):
            read(rank, value)
    node.end(0)
