"""What the machine does without torch.distributed: the limits that its figures are held against.

Copies in memory, TCP streams and shared memory between neighbours on the ring; each by one rank or
pair alone, while the others sleep, and by all ranks at once. On a GPU, copies in its memory too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from distdemo.bench.company import company
from distdemo.bench.copies import LEAST, Copy, size_alone, size_at_once
from distdemo.bench.environment import cores
from distdemo.bench.lanes import BLOCK, open_lanes
from distdemo.bench.pace import MESSAGE
from distdemo.bench.streams import open_streams
from distdemo.bench.yardsticks import DEVICE_COPY, MEMORY_COPY, SHARED_MEMORY, TCP_STREAM, Limit
from distdemo.launcher.limits import free_memory

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

MOST_PAIRS = 8  # that are measured alone
FOR_PAIRS = 0.3  # seconds for all pairs of one transport
FOR_PAIR = 0.07  # seconds for one, at most
FOR_COPY = 0.1  # seconds
FOR_ALL = 0.3  # seconds that all ranks send at once
SHARE = 8  # of the free memory: one part in so many for one buffer of every rank
LEAST_MESSAGE = 4 * BLOCK  # what is smaller stays in a core's own cache


class Transport(Protocol):
    """A way for bytes from rank to rank, open on every rank."""

    @property
    def kind(self) -> str:
        """What ``Limit`` calls it."""

    @property
    def size(self) -> int:
        """Bytes that are handed over at once."""

    def send(self, dst: int, seconds: float) -> tuple[float, float]:
        """Bytes a second to that rank, and seconds of 8 bytes one way."""

    def receive(self, src: int) -> None:
        """The other side of it."""

    def ring(self, seconds: float, *, crowded: bool) -> float:
        """Collective: bytes a second that this rank gets from its left neighbour."""

    def close(self) -> None:
        """Give all of it back."""


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
    found: list[Limit] = []
    room = _room(rank)
    rank.reach("measuring copies")
    found += _copies(rank, MEMORY_COPY, "cpu", room)
    if rank.device != "cpu":
        found += _copies(rank, DEVICE_COPY, rank.device, room)
    for kind, open_them in ((TCP_STREAM, open_streams), (SHARED_MEMORY, open_lanes)):
        rank.reach(f"measuring {kind}")
        found += _between(rank, open_them, room)
    return _gathered(rank, found)


def _room(rank: Rank) -> int:
    """Collective: bytes that a buffer of a rank may have; the same for all, as rank 0 finds it."""
    store = rank.store("limits/room")
    if rank.rank == 0:
        store.set("bytes", str(free_memory() // (SHARE * rank.world_size)))
    return int(bytes(store.get("bytes")))


def bound_of(limits: Sequence[Limit], transport: str) -> Limit | None:
    """The limit that busbw is held against: all ranks at once, through what the backend uses.

    Ranks that share no memory, as they are on several hosts, are held against a TCP stream.

    Args:
        limits: as ``measure_limits`` returns them on rank 0.
        transport: of the backend.

    Returns:
        Where all at once was not measured, the slowest pair's; None if there is none.
    """
    for kind in _bounds(limits, transport):
        known = [limit for limit in limits if limit.kind == kind]
        if known:
            return min(known, key=lambda limit: (not limit.at_once, limit.bandwidth))
    return None


def _bounds(limits: Sequence[Limit], transport: str) -> tuple[str, ...]:
    """The kinds to be held against, the first that is known."""
    if transport == MEMORY_COPY:
        return (transport,)
    if transport == DEVICE_COPY:
        together = any(limit.kind == SHARED_MEMORY for limit in limits)
        return (transport,) if together else (TCP_STREAM, transport)
    return transport, TCP_STREAM


def pairs_of(world_size: int, most: int = MOST_PAIRS) -> tuple[tuple[int, int], ...]:
    """Neighbours on the ring that are measured alone: all, or so many evenly chosen ones."""
    if world_size < 2:
        return ()
    count = min(world_size, most)
    firsts = [number * world_size // count for number in range(count)]
    return tuple((first, (first + 1) % world_size) for first in firsts)


# ------------------------------------------------------------------------------------------ copies


def _copies(rank: Rank, kind: str, device: str, room: int) -> list[Limit]:
    """Collective: rank 0 alone, then all ranks; on this rank what it found."""
    if room < LEAST:
        return []
    found: list[Limit] = []
    if rank.rank == 0:
        copy = Copy(size_alone(room), device)
        bandwidth = copy.alone(FOR_COPY)
        found.append(Limit(kind, (0,), at_once=False, bandwidth=bandwidth, size=copy.size))
        del copy
    others = company(rank, kind)
    copy = Copy(size_at_once(rank.world_size, room), device)
    rank.meet(f"limits/{kind}/all")
    bandwidth = copy.at_once(FOR_COPY, others, crowded=_crowded(rank))
    rank.meet(f"limits/{kind}/over")
    others.close()
    return [*found, _of_all(rank, kind, bandwidth, copy.size)]


# -------------------------------------------------------------------------------------- transports


def _between(
    rank: Rank, open_them: Callable[[Rank, int], Transport | None], room: int
) -> list[Limit]:
    """Collective: pairs alone, then all at once; on this rank what it sent or got."""
    size = min(MESSAGE, room // BLOCK * BLOCK)
    if rank.world_size < 2 or size < LEAST_MESSAGE:
        return []
    way = open_them(rank, size)
    if way is None:
        return []
    try:
        found, whole = _pairs(rank, way)
        if whole:
            found += _all_at_once(rank, way)
    finally:
        way.close()
    return found


def _pairs(rank: Rank, way: Transport) -> tuple[list[Limit], bool]:
    """Collective: what this rank sent to another alone, and whether no pair was lost.

    A pair is lost after seconds; where one is, for instance to a firewall, all others would be.
    """
    found: list[Limit] = []
    pairs = pairs_of(rank.world_size)
    rank.meet(f"limits/{way.kind}/pairs")
    for pair in pairs:
        place = f"limits/{way.kind}/{pair}"
        rank.reach(f"measuring {way.kind}, rank {pair[0]} to rank {pair[1]}")
        try:
            found += _alone(rank, way, pair, min(FOR_PAIR, FOR_PAIRS / len(pairs)))
        except OSError:
            rank.count(place, 1)
        rank.meet(place)
        if rank.count(place):
            return found, False
    return found, True


def _alone(rank: Rank, way: Transport, pair: tuple[int, int], seconds: float) -> list[Limit]:
    """What the sender finds; on all others nothing.

    Raises:
        OSError: the pair is lost.
    """
    src, dst = pair
    if rank.rank == dst:
        way.receive(src)
    if rank.rank != src:
        return []
    bandwidth, latency = way.send(dst, seconds)
    return [
        Limit(way.kind, pair, at_once=False, bandwidth=bandwidth, size=way.size, latency=latency)
    ]


def _all_at_once(rank: Rank, way: Transport) -> list[Limit]:
    """Collective: what this rank gets while all send; nothing if it lost a neighbour."""
    found: list[Limit] = []
    rank.reach(f"measuring {way.kind}, all at once")
    with suppress(OSError):
        bandwidth = way.ring(FOR_ALL, crowded=_crowded(rank))
        found.append(_of_all(rank, way.kind, bandwidth, way.size))
    rank.meet(f"limits/{way.kind}/over")
    return found


def _crowded(rank: Rank) -> bool:
    """Whether ranks of one machine take turns on its cores; of several it is assumed."""
    return rank.world_size > cores().effective


def _of_all(rank: Rank, kind: str, bandwidth: float, size: int) -> Limit:
    """This rank's part of what all did at once."""
    return Limit(kind, tuple(range(rank.world_size)), at_once=True, bandwidth=bandwidth, size=size)


# ----------------------------------------------------------------------------------------- together


def _gathered(rank: Rank, found: Sequence[Limit]) -> tuple[Limit, ...]:
    """On rank 0 all ranks' findings in the order in which they were made."""
    store = rank.store("limits/found")
    if rank.rank:
        store.set(str(rank.rank), json.dumps([_as_list(limit) for limit in found]))
        return tuple(found)
    told = [json.loads(bytes(store.get(str(other)))) for other in range(1, rank.world_size)]
    return merged([found, *([_from_list(each) for each in part] for part in told)])


def merged(parts: Sequence[Sequence[Limit]]) -> tuple[Limit, ...]:
    """One limit each of what all ranks did at once, the slowest one's; the others as they are.

    What not every rank could do at once is no limit.

    Args:
        parts: what each rank found, in order.
    """
    every = [limit for part in parts for limit in part]
    kinds = list(dict.fromkeys(limit.kind for limit in every))
    whole: list[Limit] = []
    for kind in kinds:
        mine = [limit for limit in every if limit.kind == kind]
        whole += [limit for limit in mine if not limit.at_once]
        shared = [limit for limit in mine if limit.at_once]
        if len(shared) == len(parts):
            whole.append(min(shared, key=lambda limit: limit.bandwidth))
    return tuple(whole)


def _as_list(limit: Limit) -> list[object]:
    return [limit.kind, limit.ranks, limit.at_once, limit.bandwidth, limit.size, limit.latency]


def _from_list(told: list[object]) -> Limit:
    kind, ranks, at_once, bandwidth, size, latency = told
    return Limit(kind, tuple(ranks), at_once, bandwidth, size, latency)  # type: ignore[arg-type]  # as above
