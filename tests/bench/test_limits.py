"""The machine's limits, measured by real ranks without torch.distributed."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from helpers import leftovers, segments, tcp_addresses, wait_until

from distdemo import backends
from distdemo.backends.contract import Transport
from distdemo.bench import limits
from distdemo.bench.limits import bound_of, measure_limits, slowest
from distdemo.bench.records import Limit
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec

MEMORY, DEVICE, TCP = Transport


@pytest.fixture
def quick(monkeypatch):
    """Shorten the measurement: results needn't be exact, and ranks fork from this process."""
    monkeypatch.setattr(limits, "SECONDS", 0.05)
    monkeypatch.setattr(limits, "LARGE", 1 << 20)
    monkeypatch.setattr(limits, "_cache", lambda: 0)


def world(size):
    return WorldSpec(size, deadline=60.0, start_method="fork")


def measured(rank):
    """Return the limits with the sockets, threads and open files that measuring leaves behind."""
    before, files = tcp_addresses(os.getpid()), os.listdir("/proc/self/fd")
    found = measure_limits(rank)
    left = [each for each in tcp_addresses(os.getpid()) if each not in before]
    return found, left, threading.active_count(), len(os.listdir("/proc/self/fd")) - len(files)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.usefixtures("quick")
def test_every_available_limit_is_measured_and_nothing_is_left_behind(size):
    shared = segments()
    report = run_world(world(size), measured)
    assert report.ok, report.verdict
    found = report.values[0][0]
    assert [limit.transport for limit in found] == ([MEMORY] if size == 1 else [MEMORY, TCP])
    assert all(1e6 < limit.bandwidth_bytes_per_s < 1e13 for limit in found)
    assert all(0 < (limit.latency_s or 0) < 1 for limit in found if limit.transport is TCP)
    for _, sockets, threads, files in report.values:
        assert (sockets, threads, files) == ([], 1, 0)
    assert wait_until(lambda: not leftovers(shared))  # excludes segments of concurrent worlds


@pytest.mark.usefixtures("quick")
def test_a_limit_without_memory_or_with_a_lost_neighbour_is_left_out(monkeypatch):
    def lost(*_, first):
        if not first:
            raise limits.LostError("it closed the stream")
        return 1.0

    monkeypatch.setattr(limits.Ring, "latency_s", lost)
    monkeypatch.setattr(limits, "free_memory", lambda: 2 * limits.SHARE * (1 << 20))
    found = run_world(world(2), measure_limits).values[0]
    assert {limit.transport for limit in found} == {MEMORY}
    assert {limit.size_bytes for limit in found} == {1 << 20}
    monkeypatch.setattr(limits, "free_memory", lambda: 1 << 19)
    assert run_world(world(1), measure_limits).values[0] == ()


def test_only_callers_with_the_token_are_accepted(monkeypatch):
    monkeypatch.setattr(limits, "TOKEN_TIMEOUT_S", 0.05)
    token = b"x" * limits.TOKEN
    with socket.create_server(("127.0.0.1", 0)) as listener:
        callers = [socket.create_connection(listener.getsockname()) for _ in range(5)]
        for caller, said in zip(callers, (b"y" * limits.TOKEN, b"x", b"", token), strict=False):
            caller.sendall(said)  # the third sends nothing
        with limits.accepted(listener, token) as stream:
            assert stream.getpeername() == callers[3].getsockname()
        assert callers[0].recv(1) == b""  # closed
        monkeypatch.setattr(limits, "GIVE_UP_S", 0.1)
        with pytest.raises((limits.LostError, TimeoutError)):
            limits.accepted(listener, token)
        for caller in callers:
            caller.close()


def test_a_silent_or_closed_neighbour_is_an_error(monkeypatch):
    monkeypatch.setattr(limits, "GIVE_UP_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        out = socket.create_connection(listener.getsockname())
        into, _ = listener.accept()
    with out, into:
        ring = limits.Ring(out, into)
        with pytest.raises(BlockingIOError):
            ring.latency_s(first=False)
        out.shutdown(socket.SHUT_WR)
        for act in (lambda: ring.latency_s(first=False), ring.mover(8)):
            with pytest.raises((limits.LostError, BrokenPipeError)):
                act()


# ---------------------------------------------------------------------------- combined results


def limit(transport, bandwidth):
    return Limit(transport, bandwidth, 1 << 20)


def test_the_slowest_rank_counts_for_transports_that_all_can_use():
    parts = [[limit(MEMORY, 7.0), limit(TCP, 5.0)], [limit(TCP, 4.0)]]
    assert slowest(parts) == (limit(TCP, 4.0),)


def test_the_limit_that_busbw_is_compared_with():
    memory, device, tcp = limit(MEMORY, 5.0), limit(DEVICE, 9.0), limit(TCP, 3.0)
    every = [memory, device, tcp]
    for found, transport, one_host, expected in (
        (every, TCP, True, tcp),
        (every, MEMORY, True, memory),
        (every, MEMORY, False, tcp),
        (every, DEVICE, True, device),
        (every, DEVICE, False, tcp),
        ([memory], TCP, True, None),
    ):
        assert bound_of(found, transport, one_host=one_host) == expected
    assert all(isinstance(each.transport, Transport) for each in backends.REGISTRY.values())
