"""Two doctors on one machine: what they say, and what becomes of visitors that say nonsense."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from distdemo.doctor import listening, peer_words, peers, wire
from distdemo.doctor.listening import Host, Place, default_place, open_server
from distdemo.doctor.peers import Peer, examine_peer
from distdemo.doctor.system import Interface, Lookup
from distdemo.doctor.wire import LONGEST, MOST, Line
from distdemo.errors import UsageError

HELLO = {"doctor": 1, "versions": {}, "host": "test"}


@contextmanager
def serving(seconds: float = 20.0) -> Iterator[Host]:
    """A doctor that listens, in a thread, until the block ends."""
    with open_server(Place("127.0.0.1", 0, "as told")) as server:
        host = Host(server, Place("127.0.0.1", server.getsockname()[1], "as told"), "there")

        def serve() -> None:
            with suppress(OSError):  # the socket is shut down under it
                host.serve(seconds)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield host
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive()


@contextmanager
def calling(host: Host) -> Iterator[tuple[Line, socket.socket]]:
    with socket.create_connection(("127.0.0.1", host.place.port), 5) as connection:
        yield Line(connection, 10), connection


def levels(findings: Any) -> dict[str, str]:
    return {finding.check.removeprefix("peer-"): finding.level for finding in findings}


# --------------------------------------------------------------------------------------- a visit


def test_a_visit_measures_the_way_both_ways(made: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(peers, "WANTED", 0.005)
    with serving() as host:
        found = examine_peer(Peer("127.0.0.1", host.place.port), made())
    uncertain = dict.fromkeys(("throughput", "latency"), "fine")  # other programs compute, too
    assert levels(found) | uncertain == dict.fromkeys(peers.TITLES, "fine")
    facts = {finding.check: dict(finding.facts) for finding in found}
    assert facts["peer-way"]["interface"] == "lo"
    assert 0 < float(facts["peer-latency"]["median_seconds"]) < 1
    assert float(facts["peer-throughput"]["up_bytes_per_second"]) > 1e6
    assert abs(float(facts["peer-clock"]["offset_seconds"])) < 1
    visit = host.visits[0]
    assert (visit.host, visit.end) == ("node", "done")
    assert visit.received >= peer_words.FIRST
    assert visit.sent >= peer_words.FIRST


def test_nobody_there_is_told_apart(made: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    name, way = examine_peer(Peer("127.0.0.1", port), made())
    assert (name.level, way.level) == ("fine", "broken")
    assert "refuses" in way.seen
    (name,) = examine_peer(Peer("nowhere", 1), made())
    assert name.level == "broken"
    assert "nowhere does not resolve" in name.seen


@contextmanager
def answering(answer: Callable[[Line], None]) -> Iterator[Peer]:
    """Something else that listens, and does this with its first visitor."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        left = threading.Event()

        def work() -> None:
            connection, _ = server.accept()
            with connection:
                line = Line(connection, 10)
                line.hear()
                answer(line)
                left.wait(10)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield Peer("127.0.0.1", server.getsockname()[1])
        left.set()
        thread.join(10)


def test_large_messages_that_vanish_are_an_mtu(made: Any, monkeypatch: Any) -> None:
    def swallow(line: Line) -> None:
        line.say({**HELLO, "you": "127.0.0.1"})
        for _ in range(peers.ECHOES):
            line.hear()
            line.say({"time": time.time()})

    monkeypatch.setattr(wire, "PATIENCE", 0.1)
    monkeypatch.setattr(peers, "PATIENCE", 0.1)
    with answering(swallow) as peer:
        found = examine_peer(peer, made())
    assert levels(found)["latency"] == "fine"
    assert found[-1].check == "peer-throughput"
    assert "small messages pass, 16 KiB do not" in found[-1].seen
    assert "MTU" in found[-1].why


@pytest.mark.parametrize(
    "answer", [{"doctor": 2}, {"hello": "world"}], ids=["another protocol", "another program"]
)
def test_something_else_that_listens_is_no_doctor(made: Any, answer: Any) -> None:
    with answering(lambda line: line.say(answer)) as peer:
        found = examine_peer(peer, made())
    assert found[-1].level == "broken"
    assert "no doctor answers there" in found[-1].seen


def test_a_peer_that_breaks_off_is_told_so(made: Any) -> None:
    def close(line: Line) -> None:
        line.say({**HELLO, "you": "127.0.0.1"})
        line._socket.shutdown(socket.SHUT_RDWR)

    with answering(close) as peer:
        found = examine_peer(peer, made())
    assert found[-1].check == "peer-latency"
    assert "broke off" in found[-1].seen


@pytest.mark.parametrize(
    "told", [10**400, -(10**400), 10**12, float("nan"), float("inf"), "now", None, [1]]
)
def test_a_peer_whose_clock_shows_nonsense_is_told_so(made: Any, told: Any) -> None:
    def answer(line: Line) -> None:
        line.say({**HELLO, "you": "127.0.0.1"})
        line.hear()
        line.say({"time": told})

    with answering(answer) as peer:
        found = examine_peer(peer, made())
    assert found[-1].check == "peer-latency"
    assert "an echo without a time" in found[-1].seen


# ------------------------------------------------------------------------------- bad visitors


@pytest.mark.parametrize(
    ("raw", "end"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a message of"),
        (struct.pack("!I", LONGEST + 1), "a message of"),
        (struct.pack("!I", 4) + b"\x80\x04N.", "no JSON"),
        (struct.pack("!I", 4) + b"[[]]", "no JSON object"),
        (struct.pack("!I", 2) + b"{}", "no doctor of this protocol"),
        (b"\x00\x00", "closed the connection"),
    ],
)
def test_nonsense_ends_the_visit_and_nothing_else(raw: bytes, end: str) -> None:
    with serving() as host:
        with calling(host) as (_, connection):
            connection.sendall(raw)
            with suppress(OSError):  # it may leave without having read all of it
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(1000) == b""
        with calling(host) as (line, _):
            assert line.ask(HELLO)["doctor"] == 1
    assert end in host.visits[0].end


@pytest.mark.parametrize(
    ("message", "end"),
    [
        ({"do": "run", "command": "true"}, "an unknown question, 'run'"),
        ({"do": "take", "bytes": MOST + 1}, "bytes: "),
        ({"do": "give", "bytes": -1}, "bytes: -1"),
        ({"do": "give", "bytes": "9"}, "bytes: 9"),
        ({"do": "give", "bytes": True}, "bytes: True"),
        ({"do": "call", "port": 0}, "no port to call"),
        ({"do": "call", "port": "ssh"}, "no port to call"),
        ({}, "an unknown question"),
    ],
)
def test_what_is_not_offered_is_refused(message: Any, end: str) -> None:
    with serving() as host, calling(host) as (line, _):
        line.ask(HELLO)
        with pytest.raises(ConnectionError):
            line.ask(message)
    assert end in host.visits[0].end


def test_a_call_goes_to_the_visitor_and_says_how_it_went() -> None:
    with serving() as host, calling(host) as (line, _):
        line.ask(HELLO)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert line.ask({"do": "call", "port": port, "host": "10.0.0.9"}) == {"error": ""}
        assert "refused" in line.ask({"do": "call", "port": port})["error"]


def test_a_silent_visitor_is_sent_away(monkeypatch: Any) -> None:
    monkeypatch.setattr(listening, "HOSTS_PATIENCE", 0.05)
    with serving() as host, calling(host) as (_, connection):
        assert connection.recv(1) == b""
    assert host.visits[0].end == "no answer in time"


def test_a_line_has_a_deadline_for_all_of_it() -> None:
    with serving() as host, calling(host) as (_, connection):
        line = Line(connection, 0.0)
        with pytest.raises(TimeoutError, match="took too long"):
            line.hear()


def test_a_message_that_nests_too_deeply_is_no_json() -> None:
    with serving() as host:
        text = b"[" * 16000
        with calling(host) as (_, connection):
            connection.sendall(struct.pack("!I", len(text)) + text)
            assert connection.recv(10) == b""
    assert "no JSON" in host.visits[0].end


# --------------------------------------------------------------------------------- where to listen


@pytest.mark.parametrize(
    ("source", "resolved", "found", "address", "why"),
    [
        ("10.0.0.1", (), (), "10.0.0.1", "default route"),
        ("", ("10.0.0.5",), (), "10.0.0.5", "the address of node"),
        ("", ("127.0.1.1",), (Interface("eth0", ("10.0.0.7",)),), "10.0.0.7", "of eth0"),
        ("", ("127.0.1.1",), (Interface("lo", ("127.0.0.1",), loopback=True),), "127.0.0.1", "lo"),
    ],
)
def test_a_port_alone_is_never_opened_on_every_address(  # noqa: PLR0917 - one case a row
    monkeypatch: Any, source: str, resolved: Any, found: Any, address: str, why: str
) -> None:
    def towards(host: str, port: int) -> str:
        if not source:
            raise UsageError("No way leads from this machine to it.")
        return source

    monkeypatch.setattr(listening, "address_towards", towards)
    monkeypatch.setattr(listening, "resolve", lambda name: Lookup(resolved))
    monkeypatch.setattr(listening, "interfaces", lambda: found)
    place = default_place(29600, "node")
    assert (place.address, place.port) == (address, 29600)
    assert why in place.reason


def test_a_port_that_can_not_be_opened_is_a_usage_error() -> None:
    with serving() as host, pytest.raises(UsageError, match="can't open port"):
        open_server(host.place)
    with pytest.raises(UsageError, match="can't open port"):
        open_server(Place("203.0.113.9", 0, "as told"))


# -------------------------------------------------------------------------------------- the words


def test_names_of_peers(explained: Any) -> None:
    explained(peer_words.of_name("h", Lookup(("10.0.0.2",), 0.01)), "fine", "h is 10.0.0.2")
    explained(peer_words.of_name("h", Lookup(("10.0.0.2",), 1.0)), "warning", "after 1.0 s")
    explained(peer_words.of_name("h", Lookup(late=True, seconds=2.0)), "broken", "no answer")


def test_each_failure_to_connect_has_its_reason(explained: Any) -> None:
    for error, words in (
        (ConnectionRefusedError(111, "Connection refused"), "refuses"),
        (TimeoutError("timed out"), "does not answer within 4 s"),
        (OSError(113, "No route to host"), "no way to"),
        (OSError(13, "Permission denied"), "Permission denied"),
    ):
        explained(peer_words.unconnected("h:1", "10.0.0.2", error, 4.0), "broken", words)


def test_versions_are_compared(explained: Any) -> None:
    ours = {"torch": "2.13.0", "distdemo": "1.0", "python": "3.11"}
    explained(peer_words.of_versions(ours, {**ours, "python": "3.12"}), "fine", "torch 2.13.0")
    other = {**ours, "torch": "2.12.0\x1b[31m"}
    seen = peer_words.of_versions(ours, other)
    explained(seen, "warning", "torch 2.13.0 here, 2.12.0[31m there")
    explained(peer_words.of_versions(ours, {}), "warning", "None there")


def test_addresses_that_were_translated(explained: Any) -> None:
    explained(peer_words.of_address("10.0.0.1", "10.0.0.1"), "fine")
    explained(peer_words.of_address("10.0.0.1", "::ffff:10.0.0.1"), "fine")
    explained(peer_words.of_address("172.17.0.2", "10.0.0.1"), "warning", "sees 10.0.0.1")


@pytest.mark.parametrize(
    ("trips", "level"),
    [([1e-4] * 30, "fine"), ([0.05] * 30, "warning"), ([1e-4] * 25 + [0.02] * 5, "warning")],
)
def test_round_trips(explained: Any, trips: Any, level: str) -> None:
    explained(peer_words.of_latency(trips), level, "median of 30")


@pytest.mark.parametrize(
    ("up", "down", "level", "words"),
    [
        (1.1e9, 1.2e9, "fine", "1.1 GB/s there, 1.2 GB/s back"),
        (1e6, 1e9, "warning", "1 MB/s there"),
        (1e3, 1e3, "warning", "1 kB/s"),
        (1e8, 9e8, "warning", "100 MB/s there"),
    ],
)
def test_throughput(explained: Any, up: float, down: float, level: str, words: str) -> None:
    explained(peer_words.of_throughput(up, down), level, words)


def test_clocks_and_the_way_back(explained: Any) -> None:
    explained(peer_words.of_clock(0.01, 0.001), "fine", "10 ms ahead")
    explained(peer_words.of_clock(-7200.0, 0.001), "warning", "7,200.0 s behind")
    explained(peer_words.of_way_back("10.0.0.1", ""), "fine")
    explained(peer_words.of_way_back("10.0.0.1", "no answer within 2 s"), "broken", "no answer")
    explained(peer_words.broke_off("clock", "gone", stalled=True), "broken", "broke off")
