"""The machine's limits, measured by real ranks without torch.distributed."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import ExitStack

import pytest
from benches import world
from helpers import leftovers, segments, tcp_addresses, wait_until

from distdemo.backends.contract import Transport
from distdemo.bench import limits
from distdemo.bench.limits import measure_limits, slowest
from distdemo.launcher.local import run_world

MEMORY, DEVICE, TCP = Transport


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Shorten the measurement: results needn't be exact, and ranks fork from this process."""
    monkeypatch.setattr(limits, "SECONDS", 0.05)
    monkeypatch.setattr(limits, "TOTAL_COPY_BYTES", 1 << 20)
    monkeypatch.setattr(limits, "_cache_bytes", lambda: 0)


def measured(rank):
    """Return the limits with the sockets, threads and open files that measuring leaves behind."""
    sockets, files = tcp_addresses(os.getpid()), os.listdir("/proc/self/fd")
    own = measure_limits(rank)
    left = [address for address in tcp_addresses(os.getpid()) if address not in sockets]
    return own, left, threading.active_count(), len(os.listdir("/proc/self/fd")) - len(files)


@pytest.mark.processes
@pytest.mark.parametrize("size", [1, 3])
def test_every_available_limit_is_measured_and_nothing_is_left_behind(size):
    shared = segments()
    report = run_world(world(size), measured)
    assert report.ok, report.verdict
    measured_limits = slowest([value[0] for value in report.values])
    transports = [limit.transport for limit in measured_limits]
    assert transports == ([MEMORY] if size == 1 else [MEMORY, TCP])
    assert all(1e6 < limit.bandwidth_bytes_per_s < 1e13 for limit in measured_limits)
    assert all(0 < (limit.latency_s or 0) < 1 for limit in measured_limits[1:])
    assert [value[1:] for value in report.values] == [([], 1, 0)] * size
    assert wait_until(lambda: not leftovers(shared))  # excludes segments of concurrent worlds


@pytest.mark.processes
def test_a_limit_without_memory_or_with_a_lost_neighbour_is_left_out(monkeypatch):
    def lost(*_, first):
        if not first:
            raise limits.PeerLostError("it closed the stream")
        return 1.0

    monkeypatch.setattr(limits, "ring_time_s", lost)
    monkeypatch.setattr(limits, "free_memory", lambda: 2 * limits.MEMORY_DIVISOR * (1 << 20))
    (memory,) = slowest(run_world(world(2), measure_limits).values)
    assert (memory.transport, memory.size_bytes) == (MEMORY, 1 << 20)
    monkeypatch.setattr(limits, "free_memory", lambda: 1 << 19)
    assert run_world(world(1), measure_limits).values[0] == ()


def test_only_the_neighbour_is_accepted_and_a_silent_or_closed_one_is_an_error(monkeypatch):
    monkeypatch.setattr(limits, "PEER_TIMEOUT_S", 0.05)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = listener.getsockname()
        stranger, right = (stack.enter_context(socket.create_connection(address)) for _ in range(2))
        left = stack.enter_context(limits.accept_from(listener, str(right.getsockname())))
        assert stranger.recv(1) == b""  # closed
        with pytest.raises(TimeoutError):
            limits.accept_from(listener, str(stranger.getsockname()))
        left.settimeout(0.05)
        with pytest.raises(OSError, match="timed out"):
            limits.ring_time_s(right, left, first=False)
        right.shutdown(socket.SHUT_WR)
        for act in (
            lambda: limits.ring_time_s(right, left, first=False),
            limits.stream_step(right, left, 8),
        ):
            with pytest.raises((limits.PeerLostError, BrokenPipeError)):
                act()
