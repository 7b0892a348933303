"""What the machine does without torch.distributed: the limits that its figures are compared with.

Copies in memory, TCP streams and shared memory between neighbours on the ring; each by one rank or
pair alone, while the others sleep, and by all ranks at once. On a GPU, copies in its memory too.
Bandwidth counts each copied byte once, though it is read and written.
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
from itertools import cycle
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from distdemo.backends.contract import Transport
from distdemo.bench.environment import cores
from distdemo.bench.records import Limit
from distdemo.bench.statistics import quantile
from distdemo.bench.timing import LINE, Page, shared_page
from distdemo.encoding import decode, encode
from distdemo.launcher.joined.interfaces import addresses
from distdemo.launcher.limits import free_memory

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

MOST_PAIRS = 8  # that are measured alone
FOR_PAIRS_S = 0.3  # for all pairs of one transport
FOR_PAIR_S = 0.07  # for one, at most
FOR_COPY_S = 0.1
FOR_ALL_S = 0.3  # that all ranks send or copy at once
ROUND_TRIPS = 200  # with which a latency is found
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
Step = Callable[[], int]
"""Moves what can be moved now, or waits a little: bytes."""


class LostError(OSError):
    """The other rank fell silent, or left."""


def measure_limits(rank: Rank) -> tuple[Limit, ...]:
    """Collective: what this machine does, in a second or so; once in a world.

    A transport that can't be had between these ranks is left out, as is one that loses a pair, and
    whatever memory is too short for: the limits are for comparison alone, and no reason for a world
    to end.

    Args:
        rank: this rank of the world; the others sleep in its store where they have no part.

    Returns:
        On rank 0 all of them; on others those that this rank found itself.
    """
    store = rank.store("limits")
    if rank.rank == 0:
        store.set("room", str(free_memory() // (SHARE * rank.world_size)))
    room = int(store.get("room"))  # bytes that a buffer of a rank may have
    found = _copies(rank, Transport.MEMORY_COPY, "cpu", room)
    if rank.device != "cpu":
        found += _copies(rank, Transport.DEVICE_COPY, rank.device, room)
    size = min(MESSAGE, room // BLOCK * BLOCK)
    if rank.world_size > 1 and size >= LEAST // 2:
        for connect in (connect_tcp, connect_shared_memory):
            link = connect(rank, size)
            if link is not None:
                try:
                    found += _over(rank, link)
                finally:
                    link.close()
    if rank.rank:
        store.set(f"found/{rank.rank}", json.dumps(encode(found)))
        return tuple(found)
    told = [json.loads(store.get(f"found/{other}")) for other in range(1, rank.world_size)]
    return merged([found, *(decode(list[Limit], each) for each in told)])


def merged(parts: Sequence[Sequence[Limit]]) -> tuple[Limit, ...]:
    """One limit each of what all ranks did at once, the slowest one's; the others as they are.

    What not every rank could do at once is left out.

    Args:
        parts: what each rank found, in order.
    """
    every = [limit for part in parts for limit in part]
    whole: list[Limit] = []
    for transport in dict.fromkeys(limit.transport for limit in every):
        mine = [limit for limit in every if limit.transport == transport]
        whole += sorted((each for each in mine if not each.at_once), key=lambda each: each.ranks)
        together = [limit for limit in mine if limit.at_once]
        if len(together) == len(parts):
            whole.append(min(together, key=lambda limit: limit.bandwidth_bytes_per_s))
    return tuple(whole)


def bound_of(limits: Sequence[Limit], transport: Transport) -> Limit | None:
    """The limit that busbw is compared with: all ranks at once, through what the backend uses.

    Ranks that share no memory, as they are on several hosts, are compared with a TCP stream.

    Args:
        limits: as ``measure_limits`` returns them on rank 0.
        transport: of the backend.

    Returns:
        Where all at once was not measured, the slowest pair's; None if there is none.
    """
    order = (transport, Transport.TCP)
    if transport is Transport.DEVICE_COPY and not any(
        limit.transport is Transport.SHARED_MEMORY for limit in limits
    ):
        order = (Transport.TCP, transport)
    for wanted in order[:1] if transport is Transport.MEMORY_COPY else order:
        known = [limit for limit in limits if limit.transport is wanted]
        if known:
            return min(known, key=lambda limit: (not limit.at_once, limit.bandwidth_bytes_per_s))
    return None


def pairs_of(world_size: int, most: int = MOST_PAIRS) -> tuple[tuple[int, int], ...]:
    """Neighbours on the ring that are measured alone: all of them, or some, evenly chosen."""
    if world_size < 2:
        return ()
    count = min(world_size, most)
    firsts = [number * world_size // count for number in range(count)]
    return tuple((first, (first + 1) % world_size) for first in firsts)


def _flow(step: Step, seconds: float, *, crowded: bool = False) -> float:
    """Bytes a second that this rank moves, in the fastest tenth of the time.

    Ranks that do the same begin up to some 10 ms apart, so each goes on uncounted before and after:
    none is ever alone while its work counts.

    Args:
        step: does a little.
        seconds: that count.
        crowded: ranks take turns on the cores.
    """

    def during(length: float) -> float:
        moved, began = 0, perf_counter()
        while perf_counter() < began + length:
            moved += step()
        return moved / (perf_counter() - began)

    during(RAMP * seconds)
    slice_s = LONG_SLICE_S if crowded else SLICE_S
    found = [during(slice_s) for _ in range(max(1, round(seconds / slice_s)))]
    until = perf_counter() + GIVE_UP_S / 5  # a neighbour waits for longer
    while not quantile(sorted(found), 1 - FAST) and perf_counter() < until:
        found = [*found[1:], during(slice_s)]  # this rank or its neighbour had no core so far
    during(RAMP * seconds)
    return quantile(sorted(found), 1 - FAST)


def _at_once(rank: Rank, transport: Transport, step: Step, size: int) -> Limit:
    """Collective: what this rank moves while all do the same."""
    crowded = rank.world_size > cores().effective  # of one machine's; of several it is assumed
    bandwidth = _flow(step, FOR_ALL_S, crowded=crowded)
    return Limit(transport, tuple(range(rank.world_size)), True, bandwidth, size)


# ------------------------------------------------------------------------------------------ copies


def _copies(rank: Rank, transport: Transport, device: str, room: int) -> list[Limit]:
    """Collective: rank 0 alone, then all ranks; on this rank what it found."""
    if room < LEAST:
        return []
    rank.reach(f"measuring {transport.value}")
    found: list[Limit] = []
    large = max(LARGE, 2 * _cache())
    if rank.rank == 0:
        size = min(large, room)
        bandwidth = _flow(_copying(rank, device, size), FOR_COPY_S)
        found.append(Limit(transport, (0,), False, bandwidth, size))
    size = min(max(SMALL, large // rank.world_size), room)  # together they don't fit into the cache
    copy = _copying(rank, device, size)
    rank.meet(f"limits/{transport.value}/all")
    found.append(_at_once(rank, transport, copy, size))
    rank.meet(f"limits/{transport.value}/over")
    return found


def _copying(rank: Rank, device: str, size: int) -> Step:
    """What copies from one buffer of this size to another."""
    import torch

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
    return copy


def _cache() -> int:
    """Bytes of the last-level cache; 0 where the system does not say."""
    with suppress(ValueError, OSError):  # not a name, or not known here
        return min(os.sysconf("SC_LEVEL3_CACHE_SIZE"), 256 << 20)
    return 0


# -------------------------------------------------------------------------------- over a transport


def _over(rank: Rank, link: Tcp | SharedMemory) -> list[Limit]:
    """Collective: pairs alone, then all at once; on this rank what it received.

    A pair is lost after seconds; where one is, for instance to a firewall, all others would be.
    """
    found: list[Limit] = []
    pairs = pairs_of(rank.world_size)
    seconds = min(FOR_PAIR_S, FOR_PAIRS_S / len(pairs))
    for src, dst in pairs:
        place = f"limits/{link.transport.value}/{src}-{dst}"
        rank.meet(f"{place}/begin")
        rank.reach(f"measuring {link.transport.value}, rank {src} to rank {dst}")
        try:
            if rank.rank == src:
                for _ in range(ROUND_TRIPS):
                    link.answer()
                _flow(link.mover(receives=False), seconds)
            if rank.rank == dst:
                took = []
                for _ in range(ROUND_TRIPS):
                    began = perf_counter()
                    link.ask()
                    took.append(perf_counter() - began)
                latency = quantile(sorted(took), FAST) / 2
                bandwidth = _flow(link.mover(sends=False), seconds)
                pair = Limit(link.transport, (src, dst), False, bandwidth, link.size, latency)
                found.append(pair)
        except OSError:
            link.close()  # the other rank sees that at once
            rank.count(place, 1)
        rank.meet(place)
        if rank.count(place):
            return found
    rank.reach(f"measuring {link.transport.value}, all at once")
    with suppress(OSError):  # it lost a neighbour
        limit = _at_once(rank, link.transport, link.mover(), link.size)
        found += [limit] if limit.bandwidth_bytes_per_s else []
    rank.meet(f"limits/{link.transport.value}/over")
    return found


# ----------------------------------------------------------------------------------- shared memory

SENT, TAKEN, ASKED, ANSWERED = (number * LINE for number in range(4))
HEAD = 4 * LINE * 8  # bytes before the first slot of all
SLOTS = 4
BLOCK = 128 << 10  # bytes of a slot
LOOKS = 1000  # between two looks at the clock


class _Channel:
    """From one rank to another, who alone write and read it.

    The sender copies blocks into slots, the receiver copies them out; two counters say how far each
    is. The copied bytes are never looked at, so it does not matter in which order a processor shows
    them::

        sender    ──copy──▶ │ slot 0 │ slot 1 │ slot 2 │ slot 3 │ ──copy──▶    receiver
                              sent = 7                  taken = 5
    """

    def __init__(self, page: Page, number: int, channels: int, size: int) -> None:
        self.words = page.words[number * HEAD // 8 : (number + 1) * HEAD // 8]
        first = channels * HEAD + number * SLOTS * BLOCK
        self._slots = [
            page.buffer[first + n * BLOCK : first + (n + 1) * BLOCK] for n in range(SLOTS)
        ]
        message = memoryview(bytearray(size))
        self._blocks = cycle([message[at : at + BLOCK] for at in range(0, size, BLOCK)])

    def give(self) -> int:
        """Copy the next block into a slot: its bytes; 0 if there is no room."""
        sent = self.words[SENT]
        if sent - self.words[TAKEN] >= SLOTS:
            return 0
        self._slots[sent % SLOTS][:] = next(self._blocks)
        self.words[SENT] = sent + 1
        return BLOCK

    def take(self) -> int:
        """Copy out of a slot into the next block: its bytes; 0 if there is nothing."""
        taken = self.words[TAKEN]
        if self.words[SENT] <= taken:
            return 0
        next(self._blocks)[:] = self._slots[taken % SLOTS]
        self.words[TAKEN] = taken + 1
        return BLOCK

    def close(self) -> None:
        """Give up the views."""
        for view in (self.words, *self._slots):
            view.release()


class SharedMemory:
    """Each rank has a channel to its right neighbour: as MPI's and NCCL's transports on a host.

    Args:
        rank: this rank of the world.
        page: room for all channels.
        size: bytes of a message; a multiple of ``BLOCK``.
    """

    transport = Transport.SHARED_MEMORY

    def __init__(self, rank: Rank, page: Page, size: int) -> None:
        me, count = rank.rank, rank.world_size
        self.size = size
        self._page = page
        self._out = _Channel(page, me, count, size)
        self._in = _Channel(page, (me - 1) % count, count, size)

    def ask(self) -> None:
        """Send 8 bytes to the left neighbour, and wait for its own."""
        words = self._in.words
        words[ASKED] += 1
        asked = words[ASKED]
        _wait_for(lambda: words[ANSWERED] >= asked)

    def answer(self) -> None:
        """Wait for 8 bytes from the right neighbour, and send as many."""
        words = self._out.words
        _wait_for(lambda: words[ASKED] > words[ANSWERED])
        words[ANSWERED] += 1

    def mover(self, *, sends: bool = True, receives: bool = True) -> Step:
        """What streams to the right and from the left: bytes received; if it only sends, sent."""

        def step() -> int:
            moved = self._out.give() if sends else 0
            if receives:
                moved = self._in.take()
            if not moved:
                os.sched_yield()
            return moved

        return step

    def close(self) -> None:
        """Give the memory back."""
        self._out.close()
        self._in.close()
        self._page.close()


def connect_shared_memory(rank: Rank, size: int) -> SharedMemory | None:
    """Collective: room for every rank's channel; None on every rank where they share no memory."""
    page = shared_page(rank, "limits/channels", rank.world_size * (HEAD + SLOTS * BLOCK))
    return None if page is None else SharedMemory(rank, page, size)


def _wait_for(condition: Callable[[], bool]) -> None:
    """Look until it holds, and offer the core between two looks.

    Raises:
        LostError: it did not in time.
    """
    until = perf_counter() + GIVE_UP_S
    while True:
        for _ in range(LOOKS):
            if condition():
                return
            os.sched_yield()
        if perf_counter() > until:
            raise LostError("the other rank fell silent")


# --------------------------------------------------------------------------------------------- TCP

TOKEN = 16  # bytes
PING = bytes(8)
INTRODUCTION_S = 1.0  # in which a caller has to show the token


class Tcp:
    """TCP streams through plain sockets: what gloo's transport could reach at best.

    Args:
        out: to the right neighbour.
        into: from the left one.
        size: bytes that are handed to the kernel at once.
    """

    transport = Transport.TCP

    def __init__(self, out: socket.socket, into: socket.socket, size: int) -> None:
        self.size = size
        self._out = out
        self._in = into
        self._data = bytearray(size)
        limit = struct.pack("ll", int(GIVE_UP_S), int(GIVE_UP_S % 1 * 1e6))
        for stream in (out, into):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.settimeout(None)  # the kernel, not Python, watches how long a call takes
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def ask(self) -> None:
        """Send 8 bytes to the left neighbour, and wait for its own."""
        self._in.sendall(PING)
        _read_ping(self._in)

    def answer(self) -> None:
        """Wait for 8 bytes from the right neighbour, and send as many."""
        _read_ping(self._out)
        self._out.sendall(PING)

    def mover(self, *, sends: bool = True, receives: bool = True) -> Step:
        """What streams to the right and from the left: bytes received; if it only sends, sent."""
        poll = select.poll()
        if sends:
            poll.register(self._out, select.POLLOUT)
        if receives:
            poll.register(self._in, select.POLLIN)

        def step() -> int:
            sent = received = 0
            for descriptor, _ in poll.poll(100):
                with suppress(BlockingIOError):
                    if descriptor == self._out.fileno():
                        sent = self._out.send(self._data, socket.MSG_DONTWAIT)
                        continue
                    received = self._in.recv_into(self._data, 0, socket.MSG_DONTWAIT)
                    if not received:
                        raise LostError("the other rank closed the stream")
            return received if receives else sent

        return step

    def close(self) -> None:
        """Close both streams."""
        self._out.close()
        self._in.close()


def _read_ping(stream: socket.socket) -> None:
    if len(stream.recv(len(PING), socket.MSG_WAITALL)) < len(PING):
        raise LostError("the other rank closed the stream")


def connect_tcp(rank: Rank, size: int) -> Tcp | None:
    """Collective: a stream to the right neighbour, and one from the left.

    A rank accepts connections on one address alone: that of the interface that gloo takes, which in
    a world of our own is loopback. A caller has to show a token first, which only the
    world's store tells; others are turned away.

    Args:
        rank: this rank of the world.
        size: bytes that are handed to the kernel at once.

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
    return Tcp(streams[0], streams[1], size)


def accepted(listener: socket.socket, token: bytes) -> socket.socket:
    """The next stream whose caller knows the token.

    Raises:
        OSError: no rank comes in time.
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
