"""What the machine does without torch.distributed, measured between real ranks."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pytest
from helpers import segments, tcp_addresses, unused, wait_until

from distdemo.bench import copies, lanes, limits, pace, page, streams
from distdemo.bench.company import company
from distdemo.bench.limits import bound_of, measure_limits
from distdemo.bench.streams import LOOPBACK, Door, Streams, open_streams
from distdemo.bench.yardsticks import Limit
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found need not be exact here; ranks are forked from this process."""
    for name in ("FOR_PAIRS", "FOR_ALL", "FOR_COPY"):
        monkeypatch.setattr(limits, name, 0.05)
    monkeypatch.setattr(copies, "LARGE", 1 << 20)
    monkeypatch.setattr(copies, "_cache", lambda: 0)


def world(size: int) -> WorldSpec:
    return WorldSpec(size, deadline=30.0, start_method="fork")


def measured(rank: Rank) -> tuple[tuple[Limit, ...], list[str], int, int]:
    """The limits, and what measuring them leaves: sockets, threads, open files."""
    before, files = tcp_addresses(os.getpid()), os.listdir("/proc/self/fd")
    found = measure_limits(rank)
    left = [each for each in tcp_addresses(os.getpid()) if each not in before]
    return found, left, threading.active_count(), len(os.listdir("/proc/self/fd")) - len(files)


def test_limits_of_two_and_three_ranks_are_measured_and_nothing_is_left() -> None:
    shared = segments()
    for size in (2, 3):
        report = run_world(world(size), measured)
        assert report.ok, report.verdict
        found = report.values[0][0]
        pairs = [(rank, (rank + 1) % size) for rank in range(size)]
        for kind in ("TCP stream", "shared memory"):
            mine = [limit for limit in found if limit.kind == kind]
            assert [limit.ranks for limit in mine if not limit.at_once] == pairs
            assert [limit.ranks for limit in mine if limit.at_once] == [tuple(range(size))]
            assert all(0 < (limit.latency or 0) < 1 for limit in mine if not limit.at_once)
            bound = bound_of(found, kind)
            assert bound is not None
            assert bound.at_once
        copies = [limit for limit in found if limit.kind == "memory copy"]
        assert [(limit.ranks, limit.at_once) for limit in copies] == [
            ((0,), False),
            (tuple(range(size)), True),
        ]
        assert all(1e6 < limit.bandwidth < 1e13 for limit in found)
        for _, sockets, threads, files in report.values:
            assert (sockets, threads, files) == ([], 1, 0)
    assert wait_until(lambda: not unused(segments() - shared))  # a world beside this has its own


def streamed_through_lanes(rank: Rank) -> tuple[float, tuple[float, float] | None]:
    """What comes in while all send, and what one pair does alone; lanes alone."""
    way = lanes.open_lanes(rank, lanes.BLOCK * 4)
    assert way is not None
    alone = None
    if rank.rank == 3:
        alone = way.send(4, 0.01)
    elif rank.rank == 4:
        way.receive(3)
    rank.meet("alone")
    bandwidth = way.ring(0.05, crowded=True)
    rank.meet("over")
    way.close()
    return bandwidth, alone


def test_lanes_of_six_ranks_carry_all_at_once() -> None:
    report = run_world(world(6), streamed_through_lanes)
    assert report.ok, report.verdict
    assert all(bandwidth > 0 for bandwidth, _ in report.values)
    assert [rank for rank, (_, alone) in enumerate(report.values) if alone] == [3]


def test_where_memory_is_short_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "free_memory", lambda: 1 << 20)
    report = run_world(world(2), measure_limits)
    assert report.ok, report.verdict
    assert report.values[0] == ()


def test_messages_are_as_small_as_memory_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "free_memory", lambda: 2 * limits.SHARE * (1 << 20))
    report = run_world(world(2), measure_limits)
    assert report.ok, report.verdict
    found = report.values[0]
    assert {limit.kind for limit in found} == {"memory copy", "TCP stream", "shared memory"}
    assert {limit.size for limit in found} == {1 << 20}


def copying_in_company(rank: Rank, seconds: float) -> list[tuple[float, float]]:
    """When this rank's counted copies began and ended; the later the rank, the later it comes."""
    others = company(rank, "here")
    threading.Event().wait(0.02 * rank.rank)
    copy = copies.Copy(1 << 20, "cpu")
    counted: list[tuple[float, float]] = []

    def over_all(_: float) -> float:
        began = monotonic()
        copy.alone(seconds * (1 + rank.rank))
        counted.append((began, monotonic()))
        return 1.0

    copy._over_all = over_all  # type: ignore[method-assign,assignment]  # to see when it counts
    before = monotonic()
    copy.at_once(seconds, others, crowded=True)
    after = monotonic()
    others.close()
    return [(before, after), *counted]


def test_no_copy_counts_that_others_do_not_join() -> None:
    report = run_world(world(3), copying_in_company, (0.02,))
    assert report.ok, report.verdict
    copying = [value[0] for value in report.values]
    for _, (began, ended) in report.values:
        assert all(first <= began and ended <= last for first, last in copying)


def test_a_single_rank_has_copies_alone() -> None:
    report = run_world(world(1), measure_limits)
    assert [limit.kind for limit in report.values[0]] == ["memory copy"] * 2


# ------------------------------------------------------------------------------------- strangers


def with_strangers(rank: Rank) -> float:
    """Rank 1 is called by others than rank 0 first: one with a wrong token, one that goes away."""
    way = open_streams(rank)
    assert way is not None
    assert way.doors[rank.rank].address == LOOPBACK
    if rank.rank == 0:
        door = way.doors[1]
        strangers = [socket.create_connection((door.address, door.port)) for _ in range(3)]
        strangers[0].sendall(bytes(len(door.token)))
        strangers[1].close()
        strangers[2].sendall(door.token[:-1])
        strangers[2].shutdown(socket.SHUT_WR)
        bandwidth, _ = way.send(1, 0.02)
        heard = strangers[0].recv(1)
        assert heard == b""  # it was let go
    else:
        way.receive(0)
        bandwidth = 1.0
    way.close()
    return bandwidth


def test_whoever_does_not_know_the_token_is_let_go() -> None:
    report = run_world(world(2), with_strangers)
    assert report.ok, report.verdict
    assert report.values[0] > 0


def test_a_rank_that_cannot_be_reached_is_left_out_and_the_world_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "PATIENCE", 0.1)
    with socket.create_server((LOOPBACK, 0)) as listener:
        taken = listener.getsockname()[1]

    def lost(rank: Rank, port: int) -> tuple[tuple[Limit, ...], list[str]]:
        tried: list[str] = []
        own, alone = streams._door, limits._alone

        def noted(
            rank: Rank, way: limits.Transport, pair: tuple[int, int], seconds: float
        ) -> list[Limit]:
            tried.append(way.kind)
            return alone(rank, way, pair, seconds)

        limits._alone = noted
        if rank.rank == 1:  # it says a port at which nobody is
            streams._door = lambda listener: f"{LOOPBACK} {port} {'0' * 32}"
        try:
            return measure_limits(rank), tried
        finally:
            streams._door, limits._alone = own, alone

    report = run_world(world(2), lost, (taken,))
    assert report.ok, report.verdict
    found, tried = report.values[0]
    assert not [limit for limit in found if limit.kind == "TCP stream"]
    assert any(limit.kind == "shared memory" for limit in found)
    assert tried == ["TCP stream", "shared memory", "shared memory"]  # one pair was enough


def test_memory_is_looked_for_among_open_files_alone(tmp_path: Path) -> None:
    """Whatever path a store may tell."""
    token = bytes(range(page.TOKEN))
    file = tmp_path / "alike"
    file.write_bytes(bytes(64) + token)
    with file.open("rb") as opened:
        known = f"/proc/{os.getpid()}/fd/{opened.fileno()} {token.hex()}"
        found = page._open(known, 64)
        assert found is not None
        found.page.close()
    assert page._open(f"/proc/self/root{file} {token.hex()}", 64) is None
    assert page._open(f"{file} {token.hex()}", 64) is None


def test_one_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "PATIENCE", 0.05)
    with pytest.raises(pace.LostError):
        lanes.wait_for(lambda: False)
    monkeypatch.setattr(pace, "PATIENCE", 0.05)
    with pytest.raises(pace.LostError):
        pace.drain(lambda: 0, lambda: False)


def test_one_that_nobody_calls_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PATIENCE", 0.05)
    listener = socket.create_server((LOOPBACK, 0))
    told: list[None] = []
    me = type("Me", (), {"rank": 0, "world_size": 2, "tell": lambda _, value: told.append(value)})()
    way = Streams(me, (Door(LOOPBACK, listener.getsockname()[1], bytes(16)),), listener)
    with pytest.raises(pace.LostError, match="nobody came"):
        way.receive(1)
    way.close()
    assert told


def test_a_guest_that_drips_is_let_go_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "INTRODUCTION", 0.1)
    ours, theirs = socket.socketpair()
    over = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            while not over.wait(0.1):
                theirs.send(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert not streams._knows(ours, b"x" * streams.TOKEN)  # it would be right, some day
    finally:
        over.set()
        dripping.join()
        ours.close()
        theirs.close()
