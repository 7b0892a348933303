"""What the machine does without torch.distributed, measured between real ranks."""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import suppress

import pytest
from helpers import leftovers, segments, tcp_addresses, wait_until

from distdemo import backends
from distdemo.backends.contract import Transport
from distdemo.bench import limits
from distdemo.bench.limits import bound_of, measure_limits, merged, pairs_of
from distdemo.bench.records import Limit
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec

MEMORY, DEVICE, TCP, SHARED = Transport


@pytest.fixture
def quick(monkeypatch):
    """What is found need not be exact here; ranks are forked from this process."""
    for name in ("FOR_PAIRS_S", "FOR_ALL_S", "FOR_COPY_S"):
        monkeypatch.setattr(limits, name, 0.05)
    monkeypatch.setattr(limits, "LARGE", 1 << 20)
    monkeypatch.setattr(limits, "_cache", lambda: 0)


def world(size):
    return WorldSpec(size, deadline=60.0, start_method="fork")


def measured(rank):
    """The limits, and what measuring them leaves: sockets, threads, open files."""
    before, files = tcp_addresses(os.getpid()), os.listdir("/proc/self/fd")
    found = measure_limits(rank)
    left = [each for each in tcp_addresses(os.getpid()) if each not in before]
    return found, left, threading.active_count(), len(os.listdir("/proc/self/fd")) - len(files)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.usefixtures("quick")
def test_all_that_can_be_had_is_measured_and_nothing_is_left(size):
    shared = segments()
    report = run_world(world(size), measured)
    assert report.ok, report.verdict
    found = report.values[0][0]
    everybody = tuple(range(size))
    pairs = [(rank, (rank + 1) % size) for rank in range(size)] if size > 1 else []
    copies = [limit for limit in found if limit.transport is MEMORY]
    assert [(limit.ranks, limit.at_once) for limit in copies] == [((0,), False), (everybody, True)]
    for transport in (TCP, SHARED):
        mine = [limit for limit in found if limit.transport is transport]
        assert [limit.ranks for limit in mine if not limit.at_once] == pairs
        assert [limit.ranks for limit in mine if limit.at_once] == [everybody] * (size > 1)
        assert all(0 < (limit.latency_s or 0) < 1 for limit in mine if not limit.at_once)
    assert all(1e6 < limit.bandwidth_bytes_per_s < 1e13 for limit in found)
    for _, sockets, threads, files in report.values:
        assert (sockets, threads, files) == ([], 1, 0)
    assert wait_until(lambda: not leftovers(shared))  # a world beside this has its own


@pytest.mark.usefixtures("quick")
def test_where_memory_is_short_less_is_measured_or_nothing(monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda: 2 * limits.SHARE * (1 << 20))
    found = run_world(world(2), measure_limits).values[0]
    assert {limit.transport for limit in found} == {MEMORY, TCP, SHARED}
    assert {limit.size_bytes for limit in found} == {1 << 20}
    monkeypatch.setattr(limits, "free_memory", lambda: 1 << 20)
    assert run_world(world(2), measure_limits).values[0] == ()


# ------------------------------------------------------------------------------------- strangers


def with_strangers(rank):
    """Rank 1 is called by others than rank 0 first: one with a wrong token, one that goes away."""
    link = limits.open_tcp(rank)
    assert link is not None
    if rank.rank == 0:
        address, port, token = link._doors[1]
        assert address == "127.0.0.1"
        strangers = [socket.create_connection((address, port)) for _ in range(3)]
        strangers[0].sendall(bytes(len(token)))
        strangers[1].close()
        strangers[2].sendall(token[:-1])
        strangers[2].shutdown(socket.SHUT_WR)
        bandwidth, _ = link.send(1, 0.02)
        assert strangers[0].recv(1) == b""  # it was let go
    else:
        link.receive(0)
        bandwidth = 1.0
    link.close()
    return bandwidth


def test_whoever_does_not_know_the_token_is_let_go():
    report = run_world(world(2), with_strangers)
    assert report.ok, report.verdict
    assert report.values[0] > 0


@pytest.mark.usefixtures("quick")
def test_a_rank_that_cannot_be_reached_is_left_out_and_the_world_goes_on(monkeypatch):
    monkeypatch.setattr(limits, "TIMEVAL", struct.pack("ll", 0, 200_000))

    def silent(*_):
        raise limits.LostError("nobody came")

    monkeypatch.setattr(limits.Tcp, "_accepted", silent)
    report = run_world(world(2), measure_limits)
    assert report.ok, report.verdict
    found = {limit.transport for limit in report.values[0]}
    assert TCP not in found
    assert SHARED in found


def test_one_that_falls_silent_or_never_comes_is_given_up(monkeypatch):
    monkeypatch.setattr(limits, "GIVE_UP_S", 0.05)
    with pytest.raises(limits.LostError):
        limits._wait_for(lambda: False)
    with pytest.raises(limits.LostError):
        limits._drain(lambda: 0, lambda: False)
    listener, told = socket.create_server(("127.0.0.1", 0)), []
    me = type("Me", (), {"rank": 0, "world_size": 2, "tell": lambda _, value: told.append(value)})()
    link = limits.Tcp(me, [("127.0.0.1", listener.getsockname()[1], bytes(16))], listener, 1 << 20)
    with pytest.raises(limits.LostError, match="nobody came"):
        link.receive(1)
    link.close()
    assert told  # the launcher heard that this rank lives


def test_a_stranger_that_drips_is_let_go_in_time(monkeypatch):
    monkeypatch.setattr(limits, "INTRODUCTION_S", 0.1)
    ours, theirs = socket.socketpair()
    over = threading.Event()

    def drip():
        with suppress(OSError):
            while not over.wait(0.1):
                theirs.send(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert not limits._shows(ours, b"x" * limits.TOKEN)  # it would be right, some day
    finally:
        over.set()
        dripping.join()
        ours.close()
        theirs.close()


# ------------------------------------------------------------------------------------ put together


def limit(transport, bandwidth, ranks=(0, 1), *, at_once=True):
    return Limit(transport, ranks, at_once, bandwidth, 1 << 20)


def test_of_what_all_did_at_once_the_slowest_counts_if_all_could():
    alone = limit(TCP, 9.0, at_once=False)
    parts = [[alone, limit(TCP, 5.0), limit(SHARED, 7.0)], [limit(TCP, 4.0)]]
    assert merged(parts) == (alone, limit(TCP, 4.0))


@pytest.mark.parametrize(
    ("found", "transport", "expected"),
    [
        ([limit(TCP, 3.0), limit(SHARED, 9.0)], SHARED, limit(SHARED, 9.0)),
        ([limit(TCP, 3.0)], SHARED, limit(TCP, 3.0)),  # on several hosts
        ([limit(TCP, 9.0, at_once=False), limit(TCP, 3.0)], TCP, limit(TCP, 3.0)),
        ([limit(DEVICE, 9.0), limit(TCP, 3.0)], DEVICE, limit(TCP, 3.0)),
        ([limit(DEVICE, 9.0), limit(TCP, 3.0), limit(SHARED, 5.0)], DEVICE, limit(DEVICE, 9.0)),
        ([limit(TCP, 3.0)], MEMORY, None),
    ],
)
def test_what_busbw_is_held_against(found, transport, expected):
    assert bound_of(found, transport) == expected


def test_pairs_are_neighbours_evenly_chosen_and_backends_name_what_carries_them():
    assert pairs_of(1) == ()
    assert pairs_of(3) == ((0, 1), (1, 2), (2, 0))
    assert [src for src, _ in pairs_of(64)] == list(range(0, 64, 8))
    assert all(isinstance(each.transport, Transport) for each in backends.REGISTRY.values())
