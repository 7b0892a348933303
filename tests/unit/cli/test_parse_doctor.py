"""The flags of ``doctor``: what they mean, and which are refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from distdemo.doctor.parse_doctor import DoctorRequest, parse_doctor
from distdemo.doctor.records import TOPICS
from distdemo.errors import UsageError

NOTHING = {
    "only_topics": None,
    "no_world": False,
    "peer": None,
    "listen": None,
    "listen_seconds": None,
    "format": "table",
    "problems": False,
}


def parsed(**flags: Any) -> DoctorRequest:
    return parse_doctor({**NOTHING, **flags})


def test_by_default_everything_is_looked_at() -> None:
    request = parsed()
    assert request.topics == tuple(TOPICS)
    assert request.world
    assert request.peer is None
    assert request.listen is None
    assert not request.view.quiet
    assert parsed(problems=True).view.quiet


def test_topics_come_in_their_own_order() -> None:
    assert parsed(only_topics=["mpi", "Network", "mpi"]).topics == ("network", "mpi")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("10.0.0.2:29600", ("10.0.0.2", 29600)),
        ("node-b:1", ("node-b", 1)),
        ("[fd00::2]:29600", ("fd00::2", 29600)),
    ],
)
def test_a_peer(text: str, place: tuple[str, int]) -> None:
    assert parsed(peer=text).peer == place


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("29600", ("", 29600)),
        ("0", ("", 0)),
        ("10.0.0.1:0", ("10.0.0.1", 0)),
        ("0.0.0.0:29600", ("0.0.0.0", 29600)),  # noqa: S104 - only where it is named
        ("[::1]:29600", ("::1", 29600)),
    ],
)
def test_where_to_listen(text: str, place: tuple[str, int]) -> None:
    assert parsed(listen=text).listen == place


@pytest.mark.parametrize(("text", "seconds"), [(None, 60.0), ("5", 5.0), ("0.5s", 0.5)])
def test_how_long(text: str | None, seconds: float) -> None:
    assert parsed(listen="0", listen_seconds=text).seconds == seconds


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"peer": "10.0.0.2"}, "the port is missing"),
        ({"peer": "10.0.0.2:http"}, "--peer: '10.0.0.2:http' is no address"),
        ({"peer": "10.0.0.2:70000"}, "--peer: There is no port 70000"),
        ({"peer": "10.0.0.2:0"}, "nobody listens on port 0"),
        ({"peer": ":29600"}, "':29600' is no address"),
        ({"peer": "fd00::2:29600"}, "--peer [fd00::2]:29600"),
        ({"peer": "fd00::2"}, "Try --peer [fd00::2]:29600."),
        ({"peer": "a b:1"}, "is no address"),
        ({"listen": "10.0.0.1"}, "Try --listen 10.0.0.1:29600."),
        ({"listen": ":29600"}, "Try --listen 29600,"),
        ({"listen": "-1"}, "is no address"),
        ({"listen": "70000"}, "--listen 70000: there is no such port"),
        ({"listen": "9" * 5000}, "there is no such port"),
        ({"listen": "10.0.0.1:70000"}, "--listen: There is no port 70000"),
        ({"listen": "0", "listen_seconds": "0"}, "no time to listen"),
        ({"listen": "0", "listen_seconds": "inf"}, "no time to listen"),
        ({"listen": "0", "listen_seconds": "soon"}, "no time to listen"),
        ({"listen_seconds": "5"}, "--for means nothing"),
        ({"listen": "0", "peer": "h:1"}, "don't go together"),
        ({"listen": "0", "only_topics": ["mpi"]}, "don't go together"),
        ({"listen": "0", "no_world": True}, "don't go together"),
        ({"only_topics": ["networks"]}, "--only network?"),
        ({"only_topics": ["peer"]}, "needs --peer"),
        ({"format": "xml"}, "xml"),
    ],
)
def test_bad_flags_are_refused_with_what_why_and_what_to_try(flags: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(**flags)
    error = caught.value
    assert words in str(error)
    assert error.what
    assert error.why
    assert error.hint
