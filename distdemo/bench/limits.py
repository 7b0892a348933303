"""What the machine does without torch.distributed: the limits that its figures are held against.

Copies in memory, TCP streams and shared memory between neighbours on the ring; each by one rank or
pair alone, while the others sleep, and by all ranks at once. On a GPU, copies in its memory too.
Bandwidth counts each copied byte once, though it is read and written. Counts are not fixed: whoever
sends looks at the clock, and tells the other when it is over.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
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
SHARE = 8  # of the free memory: one part in so many for one buffer of every rank
GIVE_UP_S = 5.0  # without a byte, after which a peer is given up
MESSAGE = 4 << 20  # bytes: with a copy at each end more than most cores' own cache
BURST = 2  # messages that are sent before the receiver says that it has it all
FEWEST = 3  # bursts, however short the time is
FAST = 0.1
"""A limit is what the fastest tenth takes: what else runs here can make it look lower, nothing can
make it look higher."""
SLICES, LONG_SLICES = 24, 3
"""Into so many a measurement of all ranks at once is cut. Where ranks take turns on a core they are
longer than a turn: in a short one a rank has the core or has it not."""
RAMP = 0.1  # share of a measurement of all at once that passes first, as some ranks begin later
TAIL_S = 0.05  # that each goes on for those who began later
Step = Callable[[], int]
"""Sends what can be sent, receives what has come, waits a little if neither: bytes received."""


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
    if rank.world_size > 1 and size >= 4 * BLOCK:  # what is smaller stays in a core's own cache
        for open_them in (open_tcp, open_shared_memory):
            link = open_them(rank, size)
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

    What not every rank could do at once is no limit.

    Args:
        parts: what each rank found, in order.
    """
    every = [limit for part in parts for limit in part]
    whole: list[Limit] = []
    for transport in dict.fromkeys(limit.transport for limit in every):
        mine = [limit for limit in every if limit.transport == transport]
        whole += [limit for limit in mine if not limit.at_once]
        together = [limit for limit in mine if limit.at_once]
        if len(together) == len(parts):
            whole.append(min(together, key=lambda limit: limit.bandwidth_bytes_per_s))
    return tuple(whole)


def bound_of(limits: Sequence[Limit], transport: Transport) -> Limit | None:
    """The limit that busbw is held against: all ranks at once, through what the backend uses.

    Ranks that share no memory, as they are on several hosts, are held against a TCP stream.

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
    """Neighbours on the ring that are measured alone: all, or so many evenly chosen ones."""
    if world_size < 2:
        return ()
    count = min(world_size, most)
    firsts = [number * world_size // count for number in range(count)]
    return tuple((first, (first + 1) % world_size) for first in firsts)


# ------------------------------------------------------------------------------- how long, how fast


def _fastest(act: Callable[[], object], seconds: float) -> float:
    """Seconds of an act that is repeated for so long, ``FEWEST`` times at least: undisturbed."""
    act()  # the first one touches memory and opens windows
    took: list[float] = []
    until = perf_counter() + seconds
    while (began := perf_counter()) < until or len(took) < FEWEST:
        act()
        took.append(perf_counter() - began)
    return quantile(sorted(took), FAST)


def _flow(step: Step, seconds: float, *, crowded: bool) -> float:
    """Bytes a second that this rank moves while all ranks do the same.

    Ranks leave a meeting in the store up to some 10 ms apart, so each goes on uncounted before and
    after: none is ever alone while its work counts.

    Args:
        step: does a little.
        seconds: of the whole.
        crowded: ranks take turns on the cores.
    """

    def during(length: float) -> float:
        moved, began = 0, perf_counter()
        while perf_counter() < began + length:
            moved += step()
        return moved / (perf_counter() - began)

    during(max(TAIL_S, RAMP * seconds))
    count = LONG_SLICES if crowded else SLICES
    slice_s = (1 - RAMP) * seconds / count
    found = [during(slice_s) for _ in range(count)]
    until = perf_counter() + GIVE_UP_S / 5  # a neighbour waits for longer
    while not quantile(sorted(found), 1 - FAST) and perf_counter() < until:
        found = [*found[1:], during(slice_s)]  # this rank or its neighbour had no core so far
    during(TAIL_S)
    return quantile(sorted(found), 1 - FAST)


def _drain(step: Step, over: Callable[[], bool]) -> None:
    """Receive what others still send, until that is over.

    Raises:
        LostError: nothing more comes, though it is not over.
    """
    until = perf_counter() + GIVE_UP_S
    while not over():
        step()
        if perf_counter() > until:
            raise LostError("the rank on the left does not end")


def _crowded(rank: Rank) -> bool:
    """Whether ranks of one machine take turns on its cores; of several it is assumed."""
    return rank.world_size > cores().effective


# ------------------------------------------------------------------------------------------ copies

LARGE = 64 << 20  # bytes: more than most processors' last-level cache
SMALL = 16 << 20  # for each of many ranks that copy at once, who share the cache
FEW_RANKS = 4
LEAST = 1 << 20  # what is smaller stays in a core's own cache
GPU_COPIES = 16  # that are queued before the GPU is waited for


def _copies(rank: Rank, transport: Transport, device: str, room: int) -> list[Limit]:
    """Collective: rank 0 alone, then all ranks; on this rank what it found."""
    if room < LEAST:
        return []
    rank.reach(f"measuring {transport.value}")
    found: list[Limit] = []
    if rank.rank == 0:
        size = min(max(LARGE, 2 * _cache()), room)  # twice the cache
        bandwidth = size / _fastest(copying(rank, device, size), FOR_COPY_S)
        if device != "cpu":
            bandwidth *= GPU_COPIES
        found.append(Limit(transport, (0,), False, bandwidth, size))
    size = LARGE if rank.world_size <= FEW_RANKS else max(SMALL, 2 * _cache() // rank.world_size)
    size = min(size, room)  # together they don't fit into the cache
    copy = copying(rank, device, size)
    copy()
    rank.meet(f"limits/{transport.value}/all")
    bandwidth = _flow(copy, FOR_ALL_S, crowded=_crowded(rank))
    rank.meet(f"limits/{transport.value}/over")
    return [*found, Limit(transport, tuple(range(rank.world_size)), True, bandwidth, size)]


def copying(rank: Rank, device: str, size: int) -> Step:
    """What copies from one buffer of so many bytes to another, and says how many bytes."""
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

    return copy


def _cache() -> int:
    """Bytes of the last-level cache; 0 where the system does not say."""
    found = 0
    for name in ("SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        with suppress(ValueError, OSError):  # not a name, or not known here
            found = max(found, os.sysconf(name))
    return min(found, 256 << 20)


# -------------------------------------------------------------------------------- over a transport


def _over(rank: Rank, link: Tcp | SharedMemory) -> list[Limit]:
    """Collective: pairs alone, then all at once; on this rank what it sent or got.

    A pair is lost after seconds; where one is, for instance to a firewall, all others would be.
    """
    found: list[Limit] = []
    pairs = pairs_of(rank.world_size)
    seconds = min(FOR_PAIR_S, FOR_PAIRS_S / len(pairs))
    rank.meet(f"limits/{link.transport.value}/pairs")
    for src, dst in pairs:
        place = f"limits/{link.transport.value}/{src}-{dst}"
        rank.reach(f"measuring {link.transport.value}, rank {src} to rank {dst}")
        try:
            if rank.rank == dst:
                link.receive(src)
            if rank.rank == src:
                bandwidth, latency = link.send(dst, seconds)
                pair = Limit(link.transport, (src, dst), False, bandwidth, link.size, latency)
                found.append(pair)
        except OSError:
            rank.count(place, 1)
        rank.meet(place)
        if rank.count(place):
            return found
    rank.reach(f"measuring {link.transport.value}, all at once")
    with suppress(OSError):  # it lost a neighbour
        bandwidth = link.ring(FOR_ALL_S, crowded=_crowded(rank))
        if bandwidth:
            everybody = tuple(range(rank.world_size))
            found.append(Limit(link.transport, everybody, True, bandwidth, link.size))
    rank.meet(f"limits/{link.transport.value}/over")
    return found


# ----------------------------------------------------------------------------------- shared memory

SENT, TAKEN, ASKED, ANSWERED, ENDED = (number * LINE for number in range(5))
HEAD = 5 * LINE * 8  # bytes before the first slot of all
SLOTS = 4
BLOCK = 128 << 10  # bytes of a slot
LOOKS = 1000  # between two looks at the clock


class _Lane:
    """From one rank to another, who alone write and read it.

    The sender copies blocks into slots, the receiver copies them out; two counters say how far each
    is. The copied bytes are never looked at, so it does not matter in which order a processor shows
    them::

        sender    ──copy──▶ │ slot 0 │ slot 1 │ slot 2 │ slot 3 │ ──copy──▶    receiver
                              sent = 7                  taken = 5
    """

    def __init__(self, page: Page, number: int, lanes: int, size: int) -> None:
        self.words = page.words[number * HEAD // 8 : (number + 1) * HEAD // 8]
        first = lanes * HEAD + number * SLOTS * BLOCK
        self._slots = [
            page.buffer[first + n * BLOCK : first + (n + 1) * BLOCK] for n in range(SLOTS)
        ]
        message = memoryview(bytearray(size))
        self._blocks = cycle([message[at : at + BLOCK] for at in range(0, size, BLOCK)])

    def give(self) -> bool:
        """Copy the next block into the lane; False if there is no room."""
        sent = self.words[SENT]
        if sent - self.words[TAKEN] >= SLOTS:
            return False
        self._slots[sent % SLOTS][:] = next(self._blocks)
        self.words[SENT] = sent + 1
        return True

    def take(self) -> bool:
        """Copy out of the lane into the next block; False if there is nothing."""
        taken = self.words[TAKEN]
        if self.words[SENT] <= taken:
            return False
        next(self._blocks)[:] = self._slots[taken % SLOTS]
        self.words[TAKEN] = taken + 1
        return True

    @property
    def empty(self) -> bool:
        """Whether all that was sent is taken."""
        return bool(self.words[SENT] == self.words[TAKEN])

    def close(self) -> None:
        """Give up the views."""
        for view in (self.words, *self._slots):
            view.release()


class SharedMemory:
    """Each rank has a lane to its right neighbour: what MPI's and NCCL's transport on a host do.

    Args:
        rank: this rank of the world.
        page: room for all lanes.
        size: bytes of a message; a multiple of ``BLOCK``.
    """

    transport = Transport.SHARED_MEMORY

    def __init__(self, rank: Rank, page: Page, size: int) -> None:
        me, count = rank.rank, rank.world_size
        self.size = size
        self._page = page
        self._ends = 0  # of what came in so far
        self._out = _Lane(page, me, count, size)
        self._in = _Lane(page, (me - 1) % count, count, size)

    def send(self, dst: int, seconds: float) -> tuple[float, float]:
        """Stream to the right neighbour: bytes a second, and seconds of 8 bytes.

        Raises:
            OSError: it fell silent.
        """
        words = self._out.words

        def ask() -> None:
            words[ASKED] += 1
            asked = words[ASKED]
            _wait_for(lambda: words[ANSWERED] >= asked)

        def burst() -> None:
            for _ in range(BURST * self.size // BLOCK):
                _wait_for(self._out.give)
            _wait_for(lambda: self._out.empty)

        latency = _fastest(ask, seconds / 3) / 2
        took = _fastest(burst, 2 * seconds / 3)
        words[ENDED] += 1
        return BURST * self.size / took, latency

    def receive(self, src: int) -> None:
        """Take what the left neighbour sends."""
        words = self._in.words
        self._ends += 1

        def served() -> bool:
            if words[ASKED] > words[ANSWERED]:
                words[ANSWERED] += 1
            while self._in.take():
                pass
            return bool(words[ENDED] >= self._ends)

        _wait_for(served)

    def ring(self, seconds: float, *, crowded: bool) -> float:
        """Collective: stream to the right and from the left: bytes a second that this rank gets."""

        def take() -> int:
            if self._in.take():
                return BLOCK
            os.sched_yield()
            return 0

        def step() -> int:
            self._out.give()
            return take()

        self._ends += 1
        received = _flow(step, seconds, crowded=crowded)
        self._out.words[ENDED] += 1
        _drain(take, lambda: self._in.words[ENDED] >= self._ends and self._in.empty)
        return received

    def close(self) -> None:
        """Give the memory back."""
        self._out.close()
        self._in.close()
        self._page.close()


def open_shared_memory(rank: Rank, size: int = MESSAGE) -> SharedMemory | None:
    """Collective: room for every rank's lane; None on every rank where they share no memory.

    Args:
        rank: this rank of the world.
        size: bytes of a message; a multiple of ``BLOCK``.
    """
    page = shared_page(rank, "limits/lanes", rank.world_size * (HEAD + SLOTS * BLOCK))
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
SILENT_S = 1.0  # without a connection, after which the launcher is told that this rank waits
INTRODUCTION_S = 1.0  # all in all, that whoever connects has for showing the token
WORD = struct.Struct("!q")
END = -1  # instead of a number of bytes
TIMEVAL = struct.pack("ll", int(GIVE_UP_S), 0)


class Tcp:
    """TCP streams through plain sockets: what gloo's transport could reach at best.

    A rank accepts connections on one address alone: loopback in a world on one machine, else that
    of the interface that gloo takes. Whoever connects has to show a token first, which only the
    world's store tells; others are let go. What comes is only counted.

    Args:
        rank: this rank of the world.
        doors: address, port and token of every rank, in order.
        listener: this rank's own.
        size: bytes that are handed to the kernel at once.
    """

    transport = Transport.TCP

    def __init__(
        self,
        rank: Rank,
        doors: Sequence[tuple[str, int, bytes]],
        listener: socket.socket,
        size: int,
    ) -> None:
        self.size = size
        self._rank = rank
        self._doors = doors
        self._listener = listener
        self._data = bytearray(size)

    def send(self, dst: int, seconds: float) -> tuple[float, float]:
        """Stream to that rank, which calls ``receive``: bytes a second, and seconds of 8 bytes.

        Raises:
            OSError: it can't be reached, or fell silent.
        """
        with self._connected(dst) as stream:

            def ask(count: int) -> None:
                """Send a number, so many messages, and wait until all have been received."""
                stream.sendall(WORD.pack(count * self.size))
                for _ in range(count):
                    stream.sendall(self._data)
                _read_into(stream, memoryview(bytearray(WORD.size)))

            latency = _fastest(lambda: ask(0), seconds / 3) / 2
            took = _fastest(lambda: ask(BURST), 2 * seconds / 3)
            stream.sendall(WORD.pack(END))
        return BURST * self.size / took, latency

    def receive(self, src: int) -> None:
        """Take what a rank that calls ``send`` streams to this one."""
        word = bytearray(WORD.size)
        with self._accepted() as stream:
            while True:
                _read_into(stream, memoryview(word))
                (count,) = WORD.unpack(word)
                if count == END:
                    return
                for left in range(count, 0, -self.size):
                    _read_into(stream, memoryview(self._data)[: min(left, self.size)])
                stream.sendall(WORD.pack(count))

    def ring(self, seconds: float, *, crowded: bool) -> float:
        """Collective: stream to the right and from the left: bytes a second that this rank gets."""
        right = (self._rank.rank + 1) % self._rank.world_size
        sent, over, poll = bytes(self.size), False, select.poll()

        def step() -> int:
            nonlocal over
            received = 0
            for descriptor, _ in poll.poll(100):
                with suppress(BlockingIOError):
                    if descriptor == out.fileno():
                        out.send(sent)
                        continue
                    count = into.recv_into(self._data)
                    received += count
                    if not count:
                        over = True
                        poll.unregister(into)
            return received

        with self._connected(right) as out, self._accepted() as into:
            for stream, event in ((out, select.POLLOUT), (into, select.POLLIN)):
                stream.setblocking(False)
                poll.register(stream, event)
            bandwidth = _flow(step, seconds, crowded=crowded)
            poll.unregister(out)
            out.shutdown(socket.SHUT_WR)
            _drain(step, lambda: over)
        return bandwidth

    def close(self) -> None:
        """Let nobody in any more."""
        self._listener.close()

    def _connected(self, dst: int) -> socket.socket:
        """A stream to that rank, which knows by the token that it is one of ours."""
        address, port, token = self._doors[dst]
        stream = socket.create_connection((address, port), timeout=GIVE_UP_S)
        _prepare(stream)
        stream.sendall(token)
        return stream

    def _accepted(self) -> socket.socket:
        """The next who knows the token.

        Raises:
            OSError: nobody comes in time.
        """
        until = monotonic() + GIVE_UP_S
        while (left := until - monotonic()) > 0:
            self._listener.settimeout(min(left, SILENT_S))
            try:
                stream, _ = self._listener.accept()
            except TimeoutError:
                self._rank.tell(None)  # nobody comes, but this rank lives
                continue
            if _shows(stream, self._doors[self._rank.rank][2]):
                _prepare(stream)
                return stream
            stream.close()
        raise LostError("nobody came")


def open_tcp(rank: Rank, size: int = MESSAGE) -> Tcp | None:
    """Collective: let each other know where to connect.

    Args:
        rank: this rank of the world.
        size: bytes that are handed to the kernel at once.

    Returns:
        None on every rank where one of them has no address for it.
    """
    store = rank.store("limits/tcp")
    store.set(f"home/{rank.rank}", _home())
    homes = {bytes(store.get(f"home/{other}")) for other in range(rank.world_size)}
    address = "127.0.0.1"
    if len(homes) > 1:  # of the interface that gloo takes, if that is known
        name = os.environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
        address = next((each for each in addresses().get(name, ()) if "." in each), "")
    listener, door = None, ""
    if address:
        with suppress(OSError):
            listener = socket.create_server((address, 0))
            door = f"{address} {listener.getsockname()[1]} {secrets.token_hex(TOKEN)}"
    store.set(f"door/{rank.rank}", door)
    told = [bytes(store.get(f"door/{other}")).decode() for other in range(rank.world_size)]
    if listener is not None and all(told):
        words = [each.split() for each in told]
        return Tcp(rank, [(a, int(port), bytes.fromhex(t)) for a, port, t in words], listener, size)
    if listener is not None:
        listener.close()
    return None


def _home() -> str:
    """The same for two ranks that reach each other over loopback, and for no others."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/net").stat().st_ino))
    return " ".join(parts)


def _shows(stream: socket.socket, token: bytes) -> bool:
    """Whether who connected knows the token."""
    until, shown = monotonic() + INTRODUCTION_S, b""
    with suppress(OSError):
        while len(shown) < TOKEN and (left := until - monotonic()) > 0:
            stream.settimeout(left)
            piece = stream.recv(TOKEN - len(shown))
            if not piece:
                break
            shown += piece
    return secrets.compare_digest(shown, token)


def _prepare(stream: socket.socket) -> None:
    """Small messages leave at once; the kernel, not Python, watches how long a call takes."""
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.settimeout(None)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEVAL)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, TIMEVAL)


def _read_into(stream: socket.socket, view: memoryview) -> None:
    got = 0
    while got < len(view):
        more = stream.recv_into(view[got:])
        if more == 0:
            raise LostError("the other rank closed the stream")
        got += more
