"""Measure the machine's limits without torch.distributed.

All ranks at once copy memory and send TCP streams to their neighbours on a ring; on a GPU they also
copy in its memory. Bandwidth counts each copied byte once, although it is read and written.
"""

from __future__ import annotations

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
from distdemo.launcher.joined.interfaces import addresses
from distdemo.launcher.limits import free_memory
from distdemo.measure.environment import cpu_share
from distdemo.measure.records import Limit
from distdemo.measure.statistics import quantile

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

SECONDS = 0.3  # per limit
ROUNDS = 100  # small messages that measure the latency
SHARE = 8  # divisor: all ranks' buffers together take at most 1/8 of the free memory
GIVE_UP_S = 5.0  # seconds without a byte after which a peer counts as lost
MESSAGE = 4 << 20  # bytes: with a copy at each end more than most cores' own cache
FAST = 0.1
"""Share of the fastest transfers that determines a limit: other programs can make a limit look
lower, nothing can make it look higher."""
SLICE_S, LONG_SLICE_S = 0.01, 0.09
"""Length of a slice of a measurement. If ranks share a core, a slice is longer than a scheduler
turn; in a shorter one each rank would run all the time or not at all."""
RAMP = 1 / 6  # share of a measurement that runs uncounted before it and after it
LARGE = 64 << 20  # bytes: more than most processors' last-level cache
SMALL = 16 << 20  # bytes per rank if many ranks that share the cache copy at once
LEAST = 1 << 20  # bytes: less would stay in a core's own cache
GPU_COPIES = 16  # copies queued before each synchronization
PING = bytes(8)


class LostError(OSError):
    """The other rank was silent for too long or closed the stream."""


def measure_limits(rank: Rank) -> tuple[Limit, ...]:
    """Measure this rank's limits in about a second; at most once per world. Collective.

    Transports that aren't available between these ranks, or need too much memory, are left out: the
    limits are only for comparison and must not make a world fail.
    """
    store = rank.store("limits")
    if rank.rank == 0:
        store.set("room", str(free_memory() // (SHARE * rank.world_size)))
    room = int(store.get("room"))  # bytes per buffer
    found = _copies(rank, Transport.MEMORY_COPY, "cpu", room)
    if rank.device != "cpu":
        found += _copies(rank, Transport.DEVICE_COPY, rank.device, room)
    if rank.world_size > 1:
        found += _streams(rank, min(MESSAGE, room))
    return tuple(found)


def slowest(parts: Sequence[Sequence[Limit]]) -> tuple[Limit, ...]:
    """Return the slowest rank's bandwidth of each transport that every rank could use.

    Args:
        parts: Limits of each rank, in rank order.
    """
    found = []
    for limit in parts[0]:
        same = [each for part in parts for each in part if each.transport is limit.transport]
        if len(same) == len(parts):
            least = min(each.bandwidth_bytes_per_s for each in same)
            found.append(replace(limit, bandwidth_bytes_per_s=least))
    return tuple(found)


def bound_of(limits: Sequence[Limit], transport: Transport, *, one_host: bool) -> Limit | None:
    """Return the limit that busbw is compared with; None if it was not measured.

    Args:
        limits: Limits that all ranks share, from ``slowest``.
        transport: Transport of the backend.
        one_host: True if the ranks share memory; otherwise the TCP stream is the limit.
    """
    wanted = transport if one_host else Transport.TCP
    return next((limit for limit in limits if limit.transport is wanted), None)


def _flow(rank: Rank, step: Callable[[], int]) -> float:
    """Return the bytes per second that this rank moves, in the fastest tenth of the time.

    Ranks start up to some 10 ms apart, so each runs uncounted before and after: no rank is alone
    while its work counts.

    Args:
        rank: This rank of the world.
        step: Function that moves data, or waits briefly, and returns the number of bytes.
    """
    oversubscribed = rank.world_size > cpu_share().effective  # as if all ranks were on this machine
    slice_s = LONG_SLICE_S if oversubscribed else SLICE_S

    def during(length: float) -> float:
        moved, began = 0, perf_counter()
        while perf_counter() < began + length:
            moved += step()
        return moved / (perf_counter() - began)

    during(RAMP * SECONDS)
    found = [during(slice_s) for _ in range(max(1, round(SECONDS / slice_s)))]
    until = perf_counter() + GIVE_UP_S / 5  # well before a neighbour gives up
    while not quantile(sorted(found), 1 - FAST) and perf_counter() < until:
        found = [*found[1:], during(slice_s)]  # this rank or its neighbour had no core yet
    during(RAMP * SECONDS)
    return quantile(sorted(found), 1 - FAST)


# ------------------------------------------------------------------------------------------ copies


def _copies(rank: Rank, transport: Transport, device: str, room: int) -> list[Limit]:
    """Copy from one large buffer to another, all ranks at once. Collective."""
    import torch

    together = max(LARGE, 2 * _cache())  # bytes that don't fit into the cache
    size = min(max(SMALL, together // rank.world_size), room)
    if size < LEAST:
        return []
    rank.reach(f"measuring {transport.value}")
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    times = 1 if device == "cpu" else GPU_COPIES

    def copy() -> int:
        for _ in range(times):
            target.copy_(source)
        if device != "cpu":
            rank.synchronize()
        return times * size

    copy()  # the first copy maps the pages
    rank.barrier(f"limits/{transport.value}/begin")
    bandwidth = _flow(rank, copy)
    rank.barrier(f"limits/{transport.value}/end")
    return [Limit(transport, bandwidth, size)]


def _cache() -> int:
    """Return the bytes of the last-level cache; 0 if unknown."""
    with suppress(ValueError, OSError):  # name or value unknown on this system
        return min(os.sysconf("SC_LEVEL3_CACHE_SIZE"), 256 << 20)
    return 0


# --------------------------------------------------------------------------------------------- TCP


def _streams(rank: Rank, size: int) -> list[Limit]:
    """Send 8 bytes around the ring, then a stream to each right neighbour at once. Collective.

    A rank that loses a neighbour, for example to a firewall, closes its streams. The other ranks
    see that at once, and there is no limit.
    """
    found = []
    with ExitStack() as stack:
        try:
            if size < LEAST // 2:
                raise LostError("too little memory")  # noqa: TRY301 - handled like a lost neighbour
            out, into = ring(rank, stack)
            rank.reach("measuring TCP stream")
            latency_s = round_s(out, into, first=rank.rank == 0) / rank.world_size
            bandwidth = _flow(rank, mover(out, into, size))
            found = [Limit(Transport.TCP, bandwidth, size, latency_s)] if bandwidth else []
        except OSError:
            stack.close()
        rank.barrier("limits/tcp/end")
    return found


def ring(rank: Rank, stack: ExitStack) -> tuple[socket.socket, socket.socket]:
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
    store, me, size = rank.store("limits/tcp"), rank.rank, rank.world_size
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    address = next((each for each in addresses().get(name, ()) if "." in each), "")
    listener = out = None
    with suppress(OSError):
        if address:
            listener = stack.enter_context(socket.create_server((address, 0)))
    store.set(f"listens/{me}", f"{address} {listener.getsockname()[1]}" if listener else "")
    right = bytes(store.get(f"listens/{(me + 1) % size}")).decode().split()
    with suppress(OSError):
        if right:
            out = socket.create_connection((right[0], int(right[1])), timeout=GIVE_UP_S)
            stack.enter_context(out)
    store.set(f"calls/{me}", str(out.getsockname()) if out else "")
    left = bytes(store.get(f"calls/{(me - 1) % size}")).decode()
    if listener is None or out is None or not left:
        raise LostError("a neighbour can't be reached")
    into = stack.enter_context(accepted(listener, left))
    limit = struct.pack("ll", int(GIVE_UP_S), int(GIVE_UP_S % 1 * 1e6))
    for stream in (out, into):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.settimeout(None)  # Python's own timeouts cost a system call; the kernel's don't
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    return out, into


def accepted(listener: socket.socket, caller: str) -> socket.socket:
    """Return the stream from this caller, and close any other.

    Raises:
        OSError: It didn't connect in time.
    """
    listener.settimeout(GIVE_UP_S)
    while True:
        stream, address = listener.accept()
        if str(address) == caller:
            return stream
        stream.close()


def round_s(out: socket.socket, into: socket.socket, *, first: bool) -> float:
    """Return the seconds that 8 bytes take around the ring. Collective.

    Args:
        out: Stream to the right neighbour.
        into: Stream from the left one.
        first: True on the rank that sends first; the time on other ranks is not used.

    Raises:
        OSError: A neighbour was lost.
    """
    took = []
    for _ in range(ROUNDS):
        began = perf_counter()
        if first:
            out.sendall(PING)
        if len(into.recv(len(PING), socket.MSG_WAITALL)) < len(PING):
            raise LostError("the other rank closed the stream")
        if not first:
            out.sendall(PING)
        took.append(perf_counter() - began)
    return quantile(sorted(took), FAST)


def mover(out: socket.socket, into: socket.socket, size: int) -> Callable[[], int]:
    """Return a step that streams to the right and from the left and returns bytes received.

    Args:
        out: Stream to the right neighbour.
        into: Stream from the left one.
        size: Bytes per system call.
    """
    data = bytearray(size)
    poll = select.poll()
    poll.register(out, select.POLLOUT)
    poll.register(into, select.POLLIN)

    def step() -> int:
        received = 0
        for descriptor, _ in poll.poll(100):
            with suppress(BlockingIOError):
                if descriptor == out.fileno():
                    out.send(data, socket.MSG_DONTWAIT)
                    continue
                received = into.recv_into(data, 0, socket.MSG_DONTWAIT)
                if not received:
                    raise LostError("the other rank closed the stream")
        return received

    return step
