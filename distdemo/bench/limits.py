"""What the machine does without torch.distributed: the limits that its figures are compared with.

Copies in memory and TCP streams between neighbours on a ring, by all ranks at once; on a GPU also
copies in its memory. Bandwidth counts each copied byte once, though it is read and written.
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

SECONDS = 0.3  # for each limit
ROUNDS = 100  # of a small message, with which the latency is found
SHARE = 8  # the buffers of all ranks, one each, take at most this part of the free memory: 1/8
GIVE_UP_S = 5.0  # without a byte, after which a peer is given up
MESSAGE = 4 << 20  # bytes: with a copy at each end more than most cores' own cache
FAST = 0.1
"""A limit is what the fastest tenth takes: other programs can make it look lower, nothing can
make it look higher."""
SLICE_S, LONG_SLICE_S = 0.01, 0.09
"""Of a measurement. Where ranks take turns on a core a slice is longer than a turn: in a short one
a rank has the core or has it not."""
RAMP = 1 / 6  # share of a measurement that goes on uncounted before it, and again after it
LARGE = 64 << 20  # bytes: more than most processors' last-level cache
SMALL = 16 << 20  # for each of many ranks that copy at once, who share the cache
LEAST = 1 << 20  # what is smaller stays in a core's own cache
GPU_COPIES = 16  # that are queued before the GPU is waited for
TOKEN = 16  # bytes
PING = bytes(8)
INTRODUCTION_S = 1.0  # in which a caller has to show the token


class LostError(OSError):
    """The other rank fell silent, or left."""


def measure_limits(rank: Rank) -> tuple[Limit, ...]:
    """Collective: measure this machine, in a second or so; once in a world.

    A transport that can't be had between these ranks is left out, as is whatever memory is too
    short for: the limits are for comparison alone, and no reason for a world to end.

    Returns:
        On rank 0 the limits; on others what this rank reached itself.
    """
    store = rank.store("limits")
    if rank.rank == 0:
        store.set("room", str(free_memory() // (SHARE * rank.world_size)))
    room = int(store.get("room"))  # bytes that a buffer of a rank may have
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
        parts: Limits that each rank found, in order.
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
        limits: As ``measure_limits`` returns them on rank 0.
        transport: Transport of the backend.
        one_host: The ranks share memory; others are compared with a TCP stream.
    """
    wanted = transport if one_host else Transport.TCP
    return next((limit for limit in limits if limit.transport is wanted), None)


def _flow(rank: Rank, step: Callable[[], int]) -> float:
    """Return the bytes per second that this rank moves, in the fastest tenth of the time.

    Ranks that do the same begin up to some 10 ms apart, so each continues uncounted before and
    after: none is ever alone while its work counts.

    Args:
        rank: This rank of the world.
        step: Moves what can be moved now, or waits a little; returns its bytes.
    """
    crowded = rank.world_size > cores().effective  # of one machine's; of several it is assumed
    slice_s = LONG_SLICE_S if crowded else SLICE_S

    def during(length: float) -> float:
        moved, began = 0, perf_counter()
        while perf_counter() < began + length:
            moved += step()
        return moved / (perf_counter() - began)

    during(RAMP * SECONDS)
    found = [during(slice_s) for _ in range(max(1, round(SECONDS / slice_s)))]
    until = perf_counter() + GIVE_UP_S / 5  # a neighbour waits for longer
    while not quantile(sorted(found), 1 - FAST) and perf_counter() < until:
        found = [*found[1:], during(slice_s)]  # this rank or its neighbour had no core so far
    during(RAMP * SECONDS)
    return quantile(sorted(found), 1 - FAST)


# ------------------------------------------------------------------------------------------ copies


def _copies(rank: Rank, transport: Transport, device: str, room: int) -> list[Limit]:
    """Collective: copy from one large buffer to another, all ranks at once."""
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

    copy()  # the first one touches memory
    rank.meet(f"limits/{transport.value}/begin")
    bandwidth = _flow(rank, copy)
    rank.meet(f"limits/{transport.value}/end")
    return [Limit(transport, bandwidth, size)]


def _cache() -> int:
    """Return the bytes of the last-level cache; 0 where the system does not say."""
    with suppress(ValueError, OSError):  # not a name, or not known here
        return min(os.sysconf("SC_LEVEL3_CACHE_SIZE"), 256 << 20)
    return 0


# --------------------------------------------------------------------------------------------- TCP


def _streams(rank: Rank, size: int) -> list[Limit]:
    """Collective: send 8 bytes round the ring, then a stream to each right neighbour at once.

    A rank that loses a neighbour, for instance to a firewall, closes its streams: the others see
    that at once, and there is no limit.
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
    rank.meet("limits/tcp/end")
    ring.close()
    return [Limit(Transport.TCP, bandwidth, size, latency)] if bandwidth else []


class Ring:
    """TCP streams through plain sockets: what gloo's transport could reach at best.

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
            stream.settimeout(None)  # the kernel, not Python, watches how long a call takes
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def latency_s(self, *, first: bool) -> float:
        """Collective: return the seconds that 8 bytes take round the ring.

        Args:
            first: True on the rank that sends them first; on others the time is not used.

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
        """Return a step that streams to the right and from the left: bytes received.

        Args:
            size: Bytes that are handed to the kernel at once.
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
    """Collective: open a stream to the right neighbour, and one from the left.

    A rank accepts connections on one address alone: that of the interface that gloo takes, which in
    a world of our own is loopback. A caller has to show a token first, which only the
    world's store tells; others are turned away.

    Returns:
        None on every rank where one of them can't be reached.
    """
    store, token = rank.store("limits/tcp"), secrets.token_hex(TOKEN // 2).encode()
    name = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    address = next((each for each in addresses().get(name, ()) if "." in each), "")
    streams: list[socket.socket] = []
    with ExitStack() as stack:
        try:
            if not address:
                raise OSError("no address")  # noqa: TRY301 - as where none can be bound
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
        rank.meet("limits/tcp/connected")
    if rank.count("limits/tcp/lacking"):
        for stream in streams:
            stream.close()
        return None
    return Ring(streams[0], streams[1])


def accepted(listener: socket.socket, token: bytes) -> socket.socket:
    """Return the next stream whose caller knows the token.

    Raises:
        OSError: No rank comes in time.
    """
    until = monotonic() + GIVE_UP_S
    while (left := until - monotonic()) > 0:
        listener.settimeout(left)
        stream, _ = listener.accept()
        stream.settimeout(INTRODUCTION_S)
        with suppress(OSError):
            if secrets.compare_digest(stream.recv(TOKEN), token):  # it was sent in one piece
                return stream
        stream.close()
    raise LostError("no rank came")
