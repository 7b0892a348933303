"""The machine's limits, measured by real ranks without torch.distributed."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack

import pytest
from helpers import leftovers, segments, tcp_addresses, wait_until

from distdemo.backends.contract import Transport
from distdemo.bench import limits
from distdemo.bench.limits import bound_of, measure_limits, slowest
from distdemo.bench.records import Limit
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec

MEMORY, DEVICE, TCP = Transport


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Shorten the measurement: results needn't be exact, and ranks fork from this process."""
    monkeypatch.setattr(limits, "SECONDS", 0.05)
    monkeypatch.setattr(limits, "TOTAL_COPY_BYTES", 1 << 20)
    monkeypatch.setattr(limits, "_cache_bytes", lambda: 0)


def world(size):
    return WorldSpec(size, deadline=60.0, start_method="fork")


def measured(rank):
    """Return the limits with the sockets, threads and open files that measuring leaves behind."""
    before, files = tcp_addresses(os.getpid()), os.listdir("/proc/self/fd")
    found = measure_limits(rank)
    left = [each for each in tcp_addresses(os.getpid()) if each not in before]
    return found, left, threading.active_count(), len(os.listdir("/proc/self/fd")) - len(files)


@pytest.mark.parametrize("size", [1, 3])
def test_every_available_limit_is_measured_and_nothing_is_left_behind(size):
    shared = segments()
    report = run_world(world(size), measured)
    assert report.ok, report.verdict
    found = slowest([value[0] for value in report.values])
    assert [limit.transport for limit in found] == ([MEMORY] if size == 1 else [MEMORY, TCP])
    assert all(1e6 < limit.bandwidth_bytes_per_s < 1e13 for limit in found)
    assert all(0 < (limit.latency_s or 0) < 1 for limit in found if limit.transport is TCP)
    for _, sockets, threads, files in report.values:
        assert (sockets, threads, files) == ([], 1, 0)
    assert wait_until(lambda: not leftovers(shared))  # excludes segments of concurrent worlds


def test_a_limit_without_memory_or_with_a_lost_neighbour_is_left_out(monkeypatch):
    def lost(*_, first):
        if not first:
            raise limits.PeerLostError("it closed the stream")
        return 1.0

    monkeypatch.setattr(limits, "ring_time_s", lost)
    monkeypatch.setattr(limits, "free_memory", lambda: 2 * limits.MEMORY_DIVISOR * (1 << 20))
    found = slowest(run_world(world(2), measure_limits).values)
    assert {limit.transport for limit in found} == {MEMORY}
    assert {limit.size_bytes for limit in found} == {1 << 20}
    monkeypatch.setattr(limits, "free_memory", lambda: 1 << 19)
    assert run_world(world(1), measure_limits).values[0] == ()


def test_only_the_neighbour_is_accepted_and_a_silent_or_closed_one_is_an_error(monkeypatch):
    monkeypatch.setattr(limits, "PEER_TIMEOUT_S", 0.05)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = listener.getsockname()
        other, out = (stack.enter_context(socket.create_connection(address)) for _ in range(2))
        into = stack.enter_context(limits.accept_from(listener, str(out.getsockname())))
        assert other.recv(1) == b""  # closed
        with pytest.raises(TimeoutError):
            limits.accept_from(listener, str(other.getsockname()))
        into.settimeout(0.05)
        with pytest.raises(OSError, match="timed out"):
            limits.ring_time_s(out, into, first=False)
        out.shutdown(socket.SHUT_WR)
        for act in (
            lambda: limits.ring_time_s(out, into, first=False),
            limits.stream_step(out, into, 8),
        ):
            with pytest.raises((limits.PeerLostError, BrokenPipeError)):
                act()


def test_the_slowest_rank_counts_and_the_backend_chooses_the_limit():
    memory, device, tcp, slow = (
        Limit(transport, bandwidth, 1 << 20)
        for transport, bandwidth in ((MEMORY, 5.0), (DEVICE, 9.0), (TCP, 3.0), (TCP, 2.0))
    )
    assert slowest([[memory, tcp], [slow]]) == (slow,)
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
