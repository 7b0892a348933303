"""Measure the machine's limits without torch.distributed.

All ranks at once copy memory and send TCP streams to their neighbours on a ring; on a GPU they also
copy in its memory. Bandwidth counts each copied byte once, although it is read and written.
"""

from __future__ import annotations

import math
import os
import select
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from distdemo.backends.contract import Transport
from distdemo.bench.records import TransportLimit
from distdemo.joined.interfaces import addresses
from distdemo.launcher.limits import free_memory
from distdemo.measure.machine import available_cores, copier
from distdemo.measure.statistics import quantile

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

SECONDS = 0.3  # per limit
TIME_SHARE = 1 / 8  # of the time left that a limit may take
MIN_SECONDS = 0.05  # per limit, whatever time is left
ROUNDS = 100  # of a small message around the ring, to measure the latency
MEMORY_DIVISOR = 8  # all ranks' buffers together take at most 1/8 of the free memory
PEER_TIMEOUT_S = 5.0  # without a byte from a peer, after which it counts as lost
MESSAGE_BYTES = 4 << 20  # with a copy at each end more than most cores' own cache
FAST_SHARE = 0.1
"""Share of the fastest transfers that determines a limit: other programs can make a limit look
lower, nothing can make it look higher."""
SLICE_S, LONG_SLICE_S = 0.01, 0.09
"""Length of a slice of a measurement. If ranks share a core, a slice is longer than a scheduler
turn; in a shorter one each rank would run all the time or not at all."""
RAMP_SHARE = 1 / 6  # share of a measurement that runs uncounted before it and after it
TOTAL_COPY_BYTES = 64 << 20  # more than most processors' last-level cache
MIN_COPY_BYTES = 16 << 20  # per rank if many ranks that share the cache copy at once
MIN_BUFFER_BYTES = 1 << 20  # less would stay in a core's own cache
PING = bytes(8)


class PeerLostError(OSError):
    """The other rank was silent for too long or closed the stream."""


def measure_limits(rank: Rank, left_s: float = math.inf) -> tuple[TransportLimit, ...]:
    """Measure this rank's limits in about a second; at most once per world. Collective.

    Transports that aren't available between these ranks, or need too much memory, are left out: the
    limits are only for comparison and must not make a world fail.

    Args:
        rank: This rank of the world.
        left_s: Seconds for this and the first sizes; if there are few, measure for less time.
    """
    store = rank.store("limits")
    if rank.rank == 0:
        store.set("buffer_bytes", str(free_memory() // (MEMORY_DIVISOR * rank.world_size)))
    buffer_bytes = int(store.get("buffer_bytes"))  # of every rank
    seconds = min(SECONDS, max(MIN_SECONDS, TIME_SHARE * left_s))
    limits = _copy_limit(rank, Transport.MEMORY_COPY, "cpu", buffer_bytes, seconds)
    if rank.device != "cpu":
        limits += _copy_limit(rank, Transport.DEVICE_COPY, rank.device, buffer_bytes, seconds)
    if rank.world_size > 1:
        limits += _tcp_limit(rank, min(MESSAGE_BYTES, buffer_bytes), seconds)
    return tuple(limits)


def slowest(by_rank: Sequence[Sequence[TransportLimit]]) -> tuple[TransportLimit, ...]:
    """Return the slowest rank's bandwidth of each transport that every rank could use.

    Args:
        by_rank: Limits of each rank, in rank order.
    """
    limits = []
    for first in by_rank[0]:
        rates = [
            limit.bandwidth_bytes_per_s
            for own in by_rank
            for limit in own
            if limit.transport is first.transport
        ]
        if len(rates) == len(by_rank):
            limits.append(replace(first, bandwidth_bytes_per_s=min(rates)))
    return tuple(limits)


def bound_of(
    limits: Sequence[TransportLimit], transport: Transport, *, one_host: bool
) -> TransportLimit | None:
    """Return the limit that busbw is compared with; None if it was not measured.

    Args:
        limits: Limits that all ranks share, from ``slowest``.
        transport: Transport of the backend.
        one_host: True if the ranks share memory; otherwise the TCP stream is the limit.
    """
    wanted = transport if one_host else Transport.TCP
    return next((limit for limit in limits if limit.transport is wanted), None)


def _throughput(rank: Rank, step: Callable[[], int], length_s: float) -> float:
    """Return the bytes per second that this rank moves, in the fastest tenth of the time.

    Ranks start up to some 10 ms apart, so each runs uncounted before and after: no rank is alone
    while its work counts.

    Args:
        rank: This rank of the world.
        step: Function that moves data, or waits briefly, and returns the number of bytes.
        length_s: Duration of the measurement.
    """
    oversubscribed = rank.world_size > available_cores()  # as if all ranks were on this machine
    slice_s = LONG_SLICE_S if oversubscribed else SLICE_S

    def run(seconds: float) -> float:
        """Return the bytes per second in this time."""
        moved = 0
        began = perf_counter()
        while perf_counter() < began + seconds:
            moved += step()
        return moved / (perf_counter() - began)

    run(RAMP_SHARE * length_s)
    rates = [run(slice_s) for _ in range(max(1, round(length_s / slice_s)))]
    until = perf_counter() + PEER_TIMEOUT_S / 5  # well before a neighbour times out
    while not quantile(sorted(rates), 1 - FAST_SHARE) and perf_counter() < until:
        rates = [*rates[1:], run(slice_s)]  # this rank or its neighbour had no core yet
    run(RAMP_SHARE * length_s)
    return quantile(sorted(rates), 1 - FAST_SHARE)


# ------------------------------------------------------------------------------------------ copies


def _copy_limit(
    rank: Rank, transport: Transport, device: str, buffer_bytes: int, length_s: float
) -> list[TransportLimit]:
    """Copy from one large buffer to another, all ranks at once. Collective."""
    total = max(TOTAL_COPY_BYTES, 2 * _cache_bytes())  # more than fits into the cache
    size = min(max(MIN_COPY_BYTES, total // rank.world_size), buffer_bytes)
    if size < MIN_BUFFER_BYTES:
        return []
    rank.report_phase(f"measuring {transport.value}")
    copy = copier(size, device, rank.synchronize)
    rank.barrier(f"limits/{transport.value}/begin")
    bandwidth = _throughput(rank, copy, length_s)
    rank.barrier(f"limits/{transport.value}/end")
    return [TransportLimit(transport, bandwidth, size)]


def _cache_bytes() -> int:
    """Return the bytes of the last-level cache; 0 if unknown."""
    with suppress(ValueError, OSError):  # name or value unknown on this system
        return min(os.sysconf("SC_LEVEL3_CACHE_SIZE"), 256 << 20)
    return 0


# --------------------------------------------------------------------------------------------- TCP


def _tcp_limit(rank: Rank, size: int, length_s: float) -> list[TransportLimit]:
    """Send 8 bytes around the ring, then a stream to each right neighbour at once. Collective.

    A rank that loses a neighbour, for example to a firewall, closes its streams. The other ranks
    see that at once, and there is no limit.
    """
    if size < MIN_BUFFER_BYTES // 2:  # on every rank
        return []
    limits = []
    with ExitStack() as stack:
        try:
            right, left = connect_ring(rank, stack)
            rank.report_phase("measuring TCP stream")
            latency_s = ring_time_s(right, left, first=rank.rank == 0) / rank.world_size
            bandwidth = _throughput(rank, stream_step(right, left, size), length_s)
            limits = (
                [TransportLimit(Transport.TCP, bandwidth, size, latency_s)] if bandwidth else []
            )
        except OSError:
            stack.close()
        rank.barrier("limits/tcp/end")
    return limits


def connect_ring(rank: Rank, stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Return a stream to the right neighbour and one from the left. Collective.

    They are plain sockets: the best that gloo's transport could reach. A rank listens only on the
    address of gloo's interface, which is loopback in worlds that distdemo starts. It accepts only
    its left neighbour, which publishes its own address in the world's store.

    Args:
        rank: This rank of the world.
        stack: Closes the sockets at its end.

    Raises:
        OSError: A neighbour can't be reached.
    """
    store = rank.store("limits/tcp")

    def of_neighbour(key: str, distance: int) -> str:
        return bytes(store.get(f"{key}/{(rank.rank + distance) % rank.world_size}")).decode()

    name = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    address = next((own for own in addresses().get(name, ()) if "." in own), "")
    listener = right = None
    with suppress(OSError):
        if address:
            listener = stack.enter_context(socket.create_server((address, 0)))
    port = listener.getsockname()[1] if listener else ""
    store.set(f"listens/{rank.rank}", f"{address} {port}" if listener else "")
    where = of_neighbour("listens", 1).split()
    with suppress(OSError):
        if where:
            right = socket.create_connection((where[0], int(where[1])), timeout=PEER_TIMEOUT_S)
            stack.enter_context(right)
    store.set(f"calls/{rank.rank}", str(right.getsockname()) if right else "")
    caller = of_neighbour("calls", -1)
    if listener is None or right is None or not caller:
        raise PeerLostError("a neighbour can't be reached")
    left = stack.enter_context(accept_from(listener, caller))
    limit = struct.pack("ll", int(PEER_TIMEOUT_S), int(PEER_TIMEOUT_S % 1 * 1e6))
    for stream in (right, left):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.settimeout(None)  # Python's own timeouts cost a system call; the kernel's don't
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    return right, left


def accept_from(listener: socket.socket, caller: str) -> socket.socket:
    """Return the stream from this caller, and close any other.

    Raises:
        OSError: It didn't connect in time.
    """
    listener.settimeout(PEER_TIMEOUT_S)
    while True:
        stream, address = listener.accept()
        if str(address) == caller:
            return stream
        stream.close()


def ring_time_s(right: socket.socket, left: socket.socket, *, first: bool) -> float:
    """Return the seconds that 8 bytes take around the ring. Collective.

    Args:
        right: Stream to the right neighbour.
        left: Stream from the left one.
        first: True on the rank that sends first; the time on other ranks is not used.

    Raises:
        OSError: A neighbour was lost.
    """
    took = []
    for _ in range(ROUNDS):
        began = perf_counter()
        if first:
            right.sendall(PING)
        if len(left.recv(len(PING), socket.MSG_WAITALL)) < len(PING):
            raise PeerLostError("the other rank closed the stream")
        if not first:
            right.sendall(PING)
        took.append(perf_counter() - began)
    return quantile(sorted(took), FAST_SHARE)


def stream_step(right: socket.socket, left: socket.socket, size: int) -> Callable[[], int]:
    """Return a step that streams to the right and from the left and returns bytes received.

    Args:
        right: Stream to the right neighbour.
        left: Stream from the left one.
        size: Bytes per system call.
    """
    data = bytearray(size)
    poll = select.poll()
    poll.register(right, select.POLLOUT)
    poll.register(left, select.POLLIN)

    def step() -> int:
        received = 0
        for descriptor, _ in poll.poll(100):
            with suppress(BlockingIOError):
                if descriptor == right.fileno():
                    right.send(data, socket.MSG_DONTWAIT)
                    continue
                received = left.recv_into(data, 0, socket.MSG_DONTWAIT)
                if not received:
                    raise PeerLostError("the other rank closed the stream")
        return received

    return step
