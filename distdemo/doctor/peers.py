"""``doctor --peer``: the way to another machine that runs ``doctor --listen``, measured."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from distdemo.doctor import peer_words as words
from distdemo.doctor.records import Finding
from distdemo.doctor.seen import Check, Seen
from distdemo.doctor.surroundings import Surroundings
from distdemo.doctor.wire import (
    MOST,
    PATIENCE,
    PROTOCOL,
    Line,
    Message,
    ProtocolError,
    reason,
    time_of,
)
from distdemo.versions import versions

CONNECT = 4.0  # seconds
VISIT = 25.0  # seconds for all of it
ECHOES = 30
WANTED = 0.1  # seconds that a throughput test should take at least


@dataclass(frozen=True, slots=True)
class Peer:
    """The other machine's ``doctor --listen``."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def examine_peer(peer: Peer, around: Surroundings) -> list[Finding]:
    """Every finding about the way there; the first that is broken ends it."""
    seen = list(_steps(peer, around))
    titles = {name: Check(f"peer-{name}", "peer", title, _never) for name, title in TITLES.items()}
    return [titles[name].finding(each) for name, each in seen]


TITLES = {
    "name": "Name",
    "way": "Connection",
    "versions": "Versions",
    "address": "Our address",
    "latency": "Round trip",
    "throughput": "Throughput",
    "back": "Way back",
    "clock": "Clocks",
}


def _never(around: Surroundings) -> Seen:
    raise NotImplementedError  # these findings come of one visit, not of a look each


def _steps(peer: Peer, around: Surroundings) -> Iterator[tuple[str, Seen]]:
    """Name, connection, and then what the visit finds."""
    found = around.resolve(peer.host)
    yield "name", words.of_name(peer.host, found)
    if not found.found:
        return
    began = time.monotonic()
    try:
        connection = socket.create_connection((found.found[0], peer.port), CONNECT)
    except OSError as error:
        yield "way", words.unconnected(str(peer), found.found[0], error, CONNECT)
        return
    took = time.monotonic() - began
    with connection:
        own = str(connection.getsockname()[0])
        name = next((i.name for i in around.interfaces() if own in i.addresses), "")
        yield "way", words.connected(str(peer), own, name, took)
        yield from _visit(connection, around, own)


def _visit(connection: socket.socket, around: Surroundings, own: str) -> Iterator[tuple[str, Seen]]:
    line = Line(connection, VISIT, PATIENCE)
    try:
        hello = _greet(line, around.hostname)
    except (OSError, ProtocolError) as error:
        yield "versions", words.no_doctor(reason(error))
        return
    theirs = hello.get("versions")
    yield "versions", words.of_versions(versions(), theirs if isinstance(theirs, dict) else {})
    yield "address", words.of_address(own, str(hello.get("you", "")))
    step = "latency"
    try:
        trips, offsets = _echoes(line)
        yield "latency", words.of_latency(trips)
        step = "throughput"
        yield "throughput", words.of_throughput(_upload(line), _download(line))
        step = "back"
        yield "back", words.of_way_back(own, _way_back(line, own))
        yield "clock", words.of_clock(statistics.median(offsets), min(trips))
        with suppress(OSError, ProtocolError):
            line.ask({"do": "bye"})
    except (OSError, ProtocolError) as error:
        yield step, words.broke_off(step, reason(error), stalled=isinstance(error, TimeoutError))


def _greet(line: Line, name: str) -> Message:
    hello = line.ask({"doctor": PROTOCOL, "versions": versions(), "host": name})
    if hello.get("doctor") != PROTOCOL:
        raise ProtocolError("it speaks another protocol")
    return hello


def _echoes(line: Line) -> tuple[list[float], list[float]]:
    """Round trips, and by how much the other clock is ahead, both in seconds.

    The offset takes both directions to be equally quick, as NTP does (RFC 5905).
    """
    trips, offsets = [], []
    for _ in range(ECHOES):
        began, local = time.perf_counter(), time.time()
        answer = line.ask({"do": "echo"})
        trip = time.perf_counter() - began
        trips.append(trip)
        offsets.append(time_of(answer) - (local + trip / 2))
    best = sorted(range(ECHOES), key=trips.__getitem__)[: ECHOES // 3]
    return trips, [offsets[place] for place in best]


def _upload(line: Line) -> float:
    """Bytes a second to the other side."""

    def send(count: int) -> None:
        line.say({"do": "take", "bytes": count})
        line.give(count)
        line.hear()

    return _rate(send)


def _download(line: Line) -> float:
    """Bytes a second from it."""

    def fetch(count: int) -> None:
        line.say({"do": "give", "bytes": count})
        line.take(count)

    return _rate(fetch)


def _rate(move: Callable[[int], None]) -> float:
    """Bytes a second: first a few packets, then more and more until it takes long enough."""
    count = words.FIRST
    while True:
        began = time.perf_counter()
        move(count)
        seconds = time.perf_counter() - began
        if seconds >= WANTED or count >= MOST:
            return count / max(seconds, 1e-9)
        count = min(MOST, 8 * count)


def _way_back(line: Line, own: str) -> str:
    """Why the other side can't connect to a port that is opened here for it; empty if it can."""
    family = socket.AF_INET6 if ":" in own else socket.AF_INET
    with socket.create_server((own, 0), family=family, backlog=1) as server:
        answer = line.ask({"do": "call", "port": server.getsockname()[1]})
    return str(answer.get("error", "it did not say"))
