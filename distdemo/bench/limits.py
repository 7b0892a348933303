"""Measure the machine's limits without torch.distributed.

All ranks at once copy memory and send TCP streams to their neighbours on a ring; on a GPU they also
copy in its memory. Bandwidth counts each copied byte once, although it is read and written.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from distdemo.backends.contract import Transport
from distdemo.bench.environment import cores
from distdemo.bench.records import Limit
from distdemo.bench.statistics import quantile
from distdemo.encoding import decode, encode
from distdemo.launcher.joined.interfaces import addresses
from distdemo.launcher.limits import free_memory

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
TOKEN = 16  # bytes
PING = bytes(8)
TOKEN_TIMEOUT_S = 1.0  # for a caller to send the token


class LostError(OSError):
    """The other rank was silent for too long or closed the stream."""


def measure_limits(rank: Rank) -> tuple[Limit, ...]:
    """Measure this machine in about a second; at most once per world. Collective.

    Transports that aren't available between these ranks, or need too much memory, are left out: the
    limits are only for comparison and must not make a world fail.

    Returns:
        The limits on rank 0; this rank's own results on other ranks.
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
    if rank.rank:
        store.set(f"found/{rank.rank}", json.dumps(encode(found)))
        return tuple(found)
    others = [json.loads(store.get(f"found/{other}")) for other in range(1, rank.world_size)]
    return slowest([found, *(decode(list[Limit], each) for each in others)])


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
        limits: Limits from ``measure_limits`` on rank 0.
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
    oversubscribed = rank.world_size > cores().effective  # as if all ranks were on this machine
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
    ring = connect(rank) if size >= LEAST // 2 else None
    if ring is None:
        return []
    rank.reach("measuring TCP stream")
    bandwidth = latency = 0.0
    try:
        latency = ring.latency_s(first=rank.rank == 0) / rank.world_size
        bandwidth = _flow(rank, ring.mover(size))
    except OSError:
        ring.close()
    rank.barrier("limits/tcp/end")
    ring.close()
    return [Limit(Transport.TCP, bandwidth, size, latency)] if bandwidth else []


class Ring:
    """TCP streams through plain sockets: the best that gloo's transport could reach.

    Args:
        out: Stream to the right neighbour.
        into: Stream from the left one.
    """

    def __init__(self, out: socket.socket, into: socket.socket) -> None:
        self._out = out
        self._in = into
        limit = struct.pack("ll", int(GIVE_UP_S), int(GIVE_UP_S % 1 * 1e6))
        for stream in (out, into):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.settimeout(None)  # the kernel's timeouts below apply instead
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def latency_s(self, *, first: bool) -> float:
        """Return the seconds that 8 bytes take around the ring. Collective.

        Args:
            first: True on the rank that sends first; the time on other ranks is not used.

        Raises:
            OSError: A neighbour was lost.
        """
        took = []
        for _ in range(ROUNDS):
            began = perf_counter()
            if first:
                self._out.sendall(PING)
            if len(self._in.recv(len(PING), socket.MSG_WAITALL)) < len(PING):
                raise LostError("the other rank closed the stream")
            if not first:
                self._out.sendall(PING)
            took.append(perf_counter() - began)
        return quantile(sorted(took), FAST)

    def mover(self, size: int) -> Callable[[], int]:
        """Return a step that streams to the right and from the left and returns bytes received.

        Args:
            size: Bytes per system call.
        """
        data = bytearray(size)
        poll = select.poll()
        poll.register(self._out, select.POLLOUT)
        poll.register(self._in, select.POLLIN)

        def step() -> int:
            received = 0
            for descriptor, _ in poll.poll(100):
                with suppress(BlockingIOError):
                    if descriptor == self._out.fileno():
                        self._out.send(data, socket.MSG_DONTWAIT)
                        continue
                    received = self._in.recv_into(data, 0, socket.MSG_DONTWAIT)
                    if not received:
                        raise LostError("the other rank closed the stream")
            return received

        return step

    def close(self) -> None:
        """Close both streams."""
        self._out.close()
        self._in.close()


def connect(rank: Rank) -> Ring | None:
    """Open a stream to the right neighbour, and one from the left. Collective.

    A rank listens only on the address of gloo's interface, which is loopback in worlds that
    distdemo starts. A caller must first send a token from the world's store; other connections are
    closed.

    Returns:
        The ring; None on every rank if one can't be reached.
    """
    store, token = rank.store("limits/tcp"), secrets.token_hex(TOKEN // 2).encode()
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    address = next((each for each in addresses().get(name, ()) if "." in each), "")
    streams: list[socket.socket] = []
    with ExitStack() as stack:
        try:
            if not address:
                raise OSError("no address")  # noqa: TRY301 - handled like a failed bind
            listener = stack.enter_context(socket.create_server((address, 0)))
            where = f"{address} {listener.getsockname()[1]} {token.decode()}"
        except OSError:
            where = ""
        store.set(f"where/{rank.rank}", where)
        right = bytes(store.get(f"where/{(rank.rank + 1) % rank.world_size}")).decode().split()
        try:
            if right:
                out = socket.create_connection((right[0], int(right[1])), timeout=GIVE_UP_S)
                streams.append(out)
                out.sendall(right[2].encode())
            if where:
                streams.append(accepted(listener, token))
        except OSError:
            pass
        if len(streams) < 2:
            rank.count("limits/tcp/lacking", 1)
        rank.barrier("limits/tcp/connected")
    if rank.count("limits/tcp/lacking"):
        for stream in streams:
            stream.close()
        return None
    return Ring(streams[0], streams[1])


def accepted(listener: socket.socket, token: bytes) -> socket.socket:
    """Return the next stream whose caller sent the token.

    Raises:
        OSError: No rank connected in time.
    """
    until = monotonic() + GIVE_UP_S
    while (left := until - monotonic()) > 0:
        listener.settimeout(left)
        stream, _ = listener.accept()
        stream.settimeout(TOKEN_TIMEOUT_S)
        with suppress(OSError):
            if secrets.compare_digest(stream.recv(TOKEN), token):  # it was sent in one piece
                return stream
        stream.close()
    raise LostError("no rank connected")
