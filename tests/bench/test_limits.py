"""What the machine does without torch.distributed, measured between real ranks."""

from __future__ import annotations

import os
import socket
import threading

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


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.usefixtures("quick")
def test_all_that_can_be_had_is_measured_and_nothing_is_left(size):
    shared = segments()
    report = run_world(world(size), measured)
    assert report.ok, report.verdict
    found = report.values[0][0]
    everybody = tuple(range(size))
    pairs = [(0, 1), (1, 2), (2, 0)] if size > 1 else []
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
def test_what_is_short_of_memory_or_loses_a_pair_is_left_out_and_the_world_goes_on(monkeypatch):
    def silent(_):
        raise limits.LostError("it closed the stream")

    monkeypatch.setattr(limits.Tcp, "ask", silent)
    monkeypatch.setattr(limits, "free_memory", lambda: 2 * limits.SHARE * (1 << 20))
    found = run_world(world(2), measure_limits).values[0]
    assert {limit.transport for limit in found} == {MEMORY, SHARED}
    assert {limit.size_bytes for limit in found} == {1 << 20}
    monkeypatch.setattr(limits, "free_memory", lambda: 1 << 19)
    assert run_world(world(1), measure_limits).values[0] == ()


def test_only_who_knows_the_token_is_let_in(monkeypatch):
    monkeypatch.setattr(limits, "INTRODUCTION_S", 0.05)
    token = b"x" * limits.TOKEN
    with socket.create_server(("127.0.0.1", 0)) as listener:
        callers = [socket.create_connection(listener.getsockname()) for _ in range(5)]
        for caller, said in zip(callers, (b"y" * limits.TOKEN, b"x", b"", token), strict=False):
            caller.sendall(said)  # the third says nothing
        with limits.accepted(listener, token) as stream:
            assert stream.getpeername() == callers[3].getsockname()
        assert callers[0].recv(1) == b""  # it was let go
        monkeypatch.setattr(limits, "GIVE_UP_S", 0.1)
        with pytest.raises((limits.LostError, TimeoutError)):
            limits.accepted(listener, token)
        for caller in callers:
            caller.close()


def test_one_that_falls_silent_is_given_up(monkeypatch):
    monkeypatch.setattr(limits, "GIVE_UP_S", 0.05)
    with pytest.raises(limits.LostError):
        limits._wait_for(lambda: False)
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(limits.LostError):
        limits._read_ping(ours)


# ------------------------------------------------------------------------------------ put together


def limit(transport, bandwidth, ranks=(0, 1), *, at_once=True):
    return Limit(transport, ranks, at_once, bandwidth, 1 << 20)


def test_of_what_all_did_at_once_the_slowest_counts_if_all_could():
    alone = limit(TCP, 9.0, at_once=False)
    parts = [[alone, limit(TCP, 5.0), limit(SHARED, 7.0)], [limit(TCP, 4.0)]]
    assert merged(parts) == (alone, limit(TCP, 4.0))


def test_what_busbw_is_held_against():
    device, tcp, shared = limit(DEVICE, 9.0), limit(TCP, 3.0), limit(SHARED, 5.0)
    for found, transport, expected in (
        ([tcp, shared], SHARED, shared),
        ([tcp], SHARED, tcp),  # on several hosts
        ([limit(TCP, 9.0, at_once=False), tcp], TCP, tcp),
        ([device, tcp], DEVICE, tcp),
        ([device, tcp, shared], DEVICE, device),
        ([tcp], MEMORY, None),
    ):
        assert bound_of(found, transport) == expected


def test_pairs_are_neighbours_evenly_chosen_and_backends_name_what_carries_them():
    assert pairs_of(1) == ()
    assert pairs_of(3) == ((0, 1), (1, 2), (2, 0))
    assert [src for src, _ in pairs_of(64)] == list(range(0, 64, 8))
    assert all(isinstance(each.transport, Transport) for each in backends.REGISTRY.values())
