"""Control messages: valid and invalid input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hostile import JSON
from hypothesis import given
from hypothesis import strategies as st

from distdemo.joined import messages
from distdemo.joined.messages import (
    Exit,
    Gone,
    Hello,
    Message,
    NodeLost,
    RankEnded,
    Refused,
    Sent,
    StartWorld,
    StopWorld,
)
from distdemo.launcher.records import Died, Phase, Returned

TO_COORDINATOR: list[Message] = [
    Hello("h1"),
    Sent(0, 3, {"time_s": 0.5}),
    RankEnded(2, 1e9, Returned(rank=3, phase=Phase(1, "left barrier", 0.5), at=1.5), [1, "x"]),
    RankEnded(2, 1e9, Died(rank=3, signal=9, output="last words"), stalled=True),
    Refused("can't", "because", "try"),
    Gone(),
]
FROM_COORDINATOR: list[Message] = [
    StartWorld(1, "0123", "all-reduce -n 2", {1: [1, 2]}),
    StopWorld(1, "timed out"),
    Exit(7),
]
EVERY = [(1, each) for each in TO_COORDINATOR] + [(0, each) for each in FROM_COORDINATOR]
NAMES = [(node, name) for node in (0, 1) for name in messages.names(node)]


@pytest.mark.parametrize(("node", "message"), EVERY)
def test_a_message_arrives_as_it_was_sent(node: int, message: Message) -> None:
    assert messages.read(node, message.name, messages.write(message)) == message


@given(st.sampled_from(NAMES), JSON)
def test_any_document_is_a_message_or_the_loss_of_its_node(
    key: tuple[int, str], value: Any
) -> None:
    node, name = key
    read = messages.read(node, name, json.dumps(value).encode())
    assert read.name in (name, NodeLost.name)


@pytest.mark.parametrize(
    ("node", "name", "data"),
    [
        (1, "hello", b""),
        (1, "hello", b"\xff"),
        (1, "hello", b"[" * 60_000),
        (1, "hello", b'{"host": "' + b"x" * messages.MESSAGE_BYTES + b'"}'),
        (1, "ended", b'{"world": 0, "started_s": 1e400, "outcome": {"kind": "died", "rank": 1}}'),
        (1, "ended", b'{"world": 0, "started_s": "NaN", "outcome": {"kind": "died", "rank": 1}}'),
        (1, "ended", b'{"world": 0, "started_s": 1.0, "outcome": {"kind": "eval", "rank": 1}}'),
        (1, "sent", b'{"world": 0, "rank": ' + b"1" * 5000 + b', "value": null}'),
        (0, "exit", b'{"code": 256}'),
        (0, "stop", b'{"world": 0, "reason": "other"}'),
    ],
)
def test_what_is_no_message_names_its_key(node: int, name: str, data: bytes) -> None:
    read = messages.read(node, name, data)
    assert isinstance(read, NodeLost)
    assert f"node/{node}/{name}" in read.why
    assert len(read.why) < 400


@pytest.mark.parametrize(
    "message", [Hello("x" * messages.MESSAGE_BYTES), Sent(0, 1, "x" * messages.RESULT_BYTES)]
)
def test_a_message_beyond_its_limit_is_not_sent(message: Message) -> None:
    with pytest.raises(ValueError, match="the limit is"):
        messages.write(message)
