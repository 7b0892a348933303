"""All contenders on every rank: one world, size after size, each told when it is done.

What a rank tells is its own part; the launcher (``compare``) puts the ranks' parts together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from distdemo import ops
from distdemo.bench.align import Aligner, BarrierAligner, Speaking, aligner
from distdemo.demo.verify import verify
from distdemo.ops.buffers import Expected, cuts_of, make_buffers, reduced, tensors
from distdemo.ops.contract import Cut, Undefined
from distdemo.trace.contending import ContestSpec
from distdemo.trace.links import Ends
from distdemo.trace.paper import plan
from distdemo.trace.race import Call, Race
from distdemo.trace.runner import Runner

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec

LINKS = -1  # the place of the links among the sizes
WINDOW = 1 << 16  # elements that are compared at once: they stay in a core's cache


@dataclass(frozen=True, slots=True)
class Lineup:
    """Who runs at one size: what can't be run is known before.

    Attributes:
        own: the backend's call does.
        algorithms: names of those that do.
    """

    own: bool
    algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Begun:
    """Rank 0 begins with this size; ``LINKS``: with the links."""

    place: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One contender, as one rank saw it.

    Attributes:
        times: seconds, an entry a run; of an ``array("d")``.
        checked: elements that were compared.
        wrong: of these.
        handed: bytes that one run handed to the backend to be sent; None: it has no schedule.
    """

    times: bytes
    checked: int = 0
    wrong: int = 0
    handed: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What a rank found at one place.

    Attributes:
        place: of the size, counted from 0; ``LINKS``: of the links.
        entries: of the backend's own call, where it runs, and of each algorithm; of the links of
            each exchange.
    """

    place: int
    entries: tuple[Entry, ...]


Said = Begun | Told | None
"""What ranks tell; None: this one is at work."""


def contest(
    rank: Rank,
    spec: ContestSpec,
    lineups: Sequence[Lineup],
    exchanged: Sequence[int],
    crowded: bool,
) -> None:
    """Collective: the links where they are to be measured, then size after size.

    Args:
        rank: this rank of the world.
        spec: what is held against each other.
        lineups: who runs at each size.
        exchanged: bytes of the small and of the large message that links are measured with; none:
            they are not.
        crowded: there are more ranks than cores.
    """
    race = Race(rank, _start(rank, crowded=crowded), spec.budget)
    rank.reach("ready")
    if exchanged:
        _begin(rank, LINKS, "the links")
        rank.tell(_links(race, exchanged))
    for place, lineup in enumerate(lineups):
        size = ops.REGISTRY[spec.ops[place].op].traffic(spec.ops[place]).payload_bytes
        _begin(rank, place, f"{size} bytes")
        rank.tell(_Stage(race, spec, place, lineup).told())
    rank.reach("done")
    race.start.meet()


def _start(rank: Rank, *, crowded: bool) -> Aligner:
    """Collective: what brings the ranks to a common start.

    Where they share cores it is the group's barrier, in which a rank sleeps. To look and offer the
    core between two looks makes the scheduler pass over a rank later: with 4 ranks on 2 cores
    (Linux 6.18) an all_reduce of 1 KiB by doubling took 4.0 ms then, a slice of the scheduler's,
    and 0.4 ms after a barrier.
    """
    return Speaking(rank, BarrierAligner()) if crowded else aligner(rank)


def _begin(rank: Rank, place: int, name: str) -> None:
    rank.reach(name)
    if rank.rank == 0:
        rank.tell(Begun(place))


def _links(race: Race, exchanged: Sequence[int]) -> Told:
    """Collective: what exchanges between ranks take."""
    calls = Ends(race.rank, exchanged).calls()
    times = replace(race, budget=race.budget / 2).run("links", calls)
    return Told(LINKS, tuple(Entry(each.tobytes()) for each in times))


class _Stage:
    """All contenders at one size.

    All have their memory before any has run, and each is verified after its first run: nothing
    that it was due to write was ever right before.

    Args:
        race: times them.
        spec: of the contest.
        place: of the size.
        lineup: who runs.
    """

    def __init__(self, race: Race, spec: ContestSpec, place: int, lineup: Lineup) -> None:
        self._race = race
        self._place = place
        self._me = race.rank.rank
        self._spec = spec.ops[place]
        self._op = ops.REGISTRY[self._spec.op]
        self._calls: list[Call] = []
        self._results: list[list[Tensor]] = []
        self._runners: list[Runner] = []
        if lineup.own:
            self._take_own()
        for name in lineup.algorithms:
            self._take(name, spec.chunks)

    def told(self) -> Told:
        """Collective: verify, warm up, time."""
        checks = self._verified()
        handed = [runner.sent for runner in self._runners]
        own = [None] * (len(self._calls) - len(handed))
        times = self._race.run(str(self._place), self._calls) if self._calls else []
        entries = (
            Entry(each.tobytes(), *check, sent)
            for each, check, sent in zip(times, checks, [*own, *handed], strict=True)
        )
        return Told(self._place, tuple(entries))

    def _take_own(self) -> None:
        """The backend's own call."""
        buffers = make_buffers(self._op, self._me, self._spec, self._race.rank.device)
        self._calls.append(self._op.bind(buffers, self._spec, None, async_op=False))
        self._results.append(buffers.recv)

    def _take(self, name: str, chunks: int | None) -> None:
        """An algorithm."""
        made = plan(self._spec, name, chunks)
        runner = Runner(self._me, made, self._spec, self._race.rank.device)
        runner.reset()
        self._runners.append(runner)
        self._calls.append(runner.run)

    def _verified(self) -> list[tuple[int, int]]:
        """Collective: every contender's first run, and its whole result compared."""
        for call in self._calls:
            self._race.start.meet()
            call()
            self._race.rank.synchronize()
        results = [*self._results, *(runner.result() for runner in self._runners)]
        return compared(self._op, self._me, self._spec, results)


# -------------------------------------------------------------------------------- comparing


def compared(
    op: Op, rank: int, spec: OpSpec, results: Sequence[Sequence[Tensor]]
) -> list[tuple[int, int]]:
    """How many elements of each result were compared, and how many of them are wrong.

    All of them are compared with plain arithmetic on the inputs, a window at a time, which is
    computed once for all results.

    Args:
        op: whose results they are.
        rank: this rank.
        spec: with which they were made.
        results: the pieces that the rank got, a sequence a contender.
    """
    found = [(0, 0)] * len(results)
    sources = op.result(rank, spec)
    if isinstance(sources, Undefined):
        return found
    for piece, source in enumerate(sources):
        flat = [each[piece].reshape(-1) for each in results]
        for start, wanted in _windows(op, cuts_of(op, source, spec), spec, reduce=source.reduced):
            end = start + wanted.tensor.numel()
            made = [verify([each[start:end]], [wanted]) for each in flat]
            found = [
                (checked + each.checked, wrong + each.wrong)
                for (checked, wrong), each in zip(found, made, strict=True)
            ]
    return found


def _windows(
    op: Op, cuts: Sequence[Cut], spec: OpSpec, *, reduce: bool
) -> Iterator[tuple[int, Expected]]:
    """What each part of a piece should be, and where it begins."""
    numel = cuts[0].numel
    for start in range(0, numel, WINDOW):
        length = min(WINDOW, numel - start)
        part = [Cut(cut.label, (length,), cut.start + start) for cut in cuts]
        yield start, reduced(op, part, spec) if reduce else Expected(tensors(op, part, spec)[0])
