"""The launcher's side of ``trace --compare``: one world, and the report of what its ranks tell.

Whatever ends the world early (a rank that dies, Ctrl-C, SIGTERM) leaves the sizes that were
finished.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from distdemo import backends, ops
from distdemo.bench.environment import cores
from distdemo.bench.old_records import Course
from distdemo.bench.sizes import size_text
from distdemo.bench.summary import interval, median
from distdemo.check.checker import OUTER_LIMIT, Start
from distdemo.errors import Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.launcher.start_method import choose
from distdemo.ops.spec import OpSpec
from distdemo.trace import links
from distdemo.trace.accounts import Circumstances
from distdemo.trace.contending import Arena, CompareReport, Contender, ContestSpec, Timing
from distdemo.trace.contest import LINKS, Begun, Entry, Lineup, Said, Told, contest
from distdemo.trace.order import order
from distdemo.trace.paper import Paper
from distdemo.trace.scheduling import About
from distdemo.versions import versions

Watch = Callable[[Course], object]


def compare(spec: ContestSpec, start: Start, watch: Watch | None = None) -> CompareReport:
    """Run all algorithms and the backend's own call, at all sizes, in one world.

    Args:
        spec: what to run. Where its world has no patience, its timeout becomes that: the time that
            may pass without a word of any rank.
        start: starts a world.
        watch: called when something is begun, or done.

    Raises:
        UsageError: the op has no such algorithm.
    """
    run = _Run(spec, watch)
    world = None
    try:
        world = start(
            _world(spec.world),
            contest,
            (spec, run.lineups, run.exchanged, _crowded(spec)),
            hear=run.hear,
        )
    except (KeyboardInterrupt, Terminated):
        run.interrupted = True
    return run.report(world)


def _world(world: WorldSpec) -> WorldSpec:
    if world.stall is not None:
        return world
    return replace(world, deadline=OUTER_LIMIT, stall=world.deadline)


def _crowded(spec: ContestSpec) -> bool:
    return spec.world.device == "cpu" and spec.world.world_size > _cores()


class _Run:
    """What was heard so far.

    Args:
        spec: what is run.
        watch: who wants to know; None: nobody.
    """

    def __init__(self, spec: ContestSpec, watch: Watch | None) -> None:
        self.interrupted = False
        self._spec = spec
        self._watch = watch
        self._method = choose(spec.world.start_method, spec.world.device).name
        self._paper = Paper(spec)
        self._drafts = [_draft(self._paper, op, spec.world) for op in spec.ops]
        self._link = spec.link
        self._now = LINKS if self.exchanged else 0
        self._open: dict[int, dict[int, Told]] = {}
        self._told: dict[int, list[Told]] = {}

    @property
    def lineups(self) -> tuple[Lineup, ...]:
        """Who runs at each size."""
        return tuple(draft.lineup for draft in self._drafts)

    @property
    def exchanged(self) -> tuple[int, ...]:
        """Bytes of the messages that links are measured with; none: they are not."""
        if self._spec.link is not None or self._spec.world.world_size == 1:
            return ()
        return links.sizes([_payload(op) for op in self._spec.ops])

    # --------------------------------------------------------------------------------- hearing

    def hear(self, rank: int, said: Said) -> bool:
        """Note what a rank says."""
        if isinstance(said, Told):
            self._note(rank, said)
        elif isinstance(said, Begun):
            self._now = said.place
            self._show()
        return False

    def _note(self, rank: int, told: Told) -> None:
        told_by = self._open.setdefault(told.place, {})
        told_by[rank] = told
        if len(told_by) < self._spec.world.world_size:
            return
        whole = self._told[told.place] = [told_by[each] for each in sorted(told_by)]
        if told.place == LINKS:
            self._link = links.measured(self.exchanged, _slowest(whole))
        self._show()

    def _show(self) -> None:
        """Let whoever watches know what is done, and what was begun last."""
        if self._watch is None:
            return
        count, links_now = len(self._drafts), self._now == LINKS
        done = sum(place != LINKS for place in self._told)
        named = "the links" if links_now else _named(_payload(self._spec.ops[self._now]))
        self._watch(Course(done / count, (count - done) * self._spec.budget, named))

    # ------------------------------------------------------------------------------- the report

    def report(self, world: WorldReport | None) -> CompareReport:
        """All that is known.

        Args:
            world: how it went; None if it was interrupted.
        """
        ended = world is not None and world.interrupted_by is not None
        failed = world is not None and not world.ok and not ended
        shared_cores = _shared_cores(world)
        made = CompareReport(
            n=self._spec.world.world_size,
            arenas=tuple(self._arenas(shared_cores)),
            link=self._link,
            crossovers=self._paper.crossovers(self._link),
            world=self._world(world),
            failure=world if failed else None,
            interrupted=self.interrupted or ended,
            versions=versions() | backends.versions_of(self._spec.world),
            cores=shared_cores,
        )
        return replace(made, notes=tuple(self._notes(made)))

    def _world(self, world: WorldReport | None) -> WorldSpec:
        """That ran it, with the start method that was taken."""
        if world is not None:
            return replace(world.world, start_method=world.start_method)
        return replace(self._spec.world, start_method=self._method)

    def _arenas(self, shared_cores: float | None) -> list[Arena]:
        return [
            self._arena(draft, self._told[place], shared_cores)
            for place, draft in enumerate(self._drafts)
            if place in self._told
        ]

    def _arena(self, draft: _Draft, told: Sequence[Told], shared_cores: float | None) -> Arena:
        """A finished size."""
        on_paper = self._paper.contenders(draft.op, self._link)
        entries = iter(zip(*(each.entries for each in told), strict=True))
        found = [draft.own if draft.own.refused else _timed(draft.own, next(entries))]
        for contender in on_paper:
            why = draft.refused
            found.append(
                replace(contender, refused=why) if why else _timed(contender, next(entries))
            )
        circumstances = Circumstances(
            self._spec.world.backend, self._spec.world.world_size, shared_cores, self._link
        )
        traffic = ops.REGISTRY[draft.op.op].traffic(draft.op)
        return Arena(draft.op, traffic, tuple(found), tuple(order(found, circumstances)))

    def _notes(self, made: CompareReport) -> list[str]:
        """What a reader should know."""
        notes = list(self._spec.notes)
        if made.cores is not None and made.n > made.cores:
            notes.append(
                f"{made.n} ranks share {made.cores:g} cores: they wait for each other's turns, "
                "which the model knows nothing of."
            )
        missing = len(self._drafts) - len(made.arenas)
        if missing:
            why = "The run was interrupted" if made.interrupted else "The world failed"
            notes.append(f"{why}: {missing} of {len(self._drafts)} sizes are missing.")
        return notes


# ------------------------------------------------------------------------------ who can run


@dataclass(frozen=True, slots=True)
class _Draft:
    """A size before it was run.

    Attributes:
        own: the backend's call, with the reason why it can't run, if so.
        refused: why no algorithm can run; empty: all can.
    """

    op: OpSpec
    own: Contender
    lineup: Lineup
    refused: str = ""


def _draft(paper: Paper, op: OpSpec, world: WorldSpec) -> _Draft:
    """What the backend is known to refuse is not tried."""
    about = About(
        op.op, f"However {world.backend} does it: its schedule is not known.", world.backend
    )
    own = Contender(about, own=True, refused=_refusal(world, op))
    message = OpSpec("p2p", max(2, op.group_size), "uint8", op.shape, pattern="pair", src=0, dst=1)
    refused = _refusal(world, message) if op.group_size > 1 else ""
    names = () if refused else tuple(each.about.name for each in paper.contenders(op, None))
    return _Draft(op, own, Lineup(not own.refused, names), refused)


def _refusal(world: WorldSpec, op: OpSpec) -> str:
    """Why the backend can't run this; empty: it can, as far as anybody knows."""
    backend = backends.REGISTRY.get(world.backend)
    if backend is None:
        return ""
    return backend.refuses(ops.REGISTRY[op.op], op, world.device) or ""


# ------------------------------------------------------------------------------- the times


def _slowest(told: Sequence[Told]) -> list[list[float]]:
    """By entry, the slowest rank's time of each run."""
    return [
        _joined([each.entries[place] for each in told]) for place in range(len(told[0].entries))
    ]


def _joined(entries: Sequence[Entry]) -> list[float]:
    return list(map(max, zip(*(array("d", each.times) for each in entries), strict=True)))


def _timed(contender: Contender, entries: Sequence[Entry]) -> Contender:
    """The same with what came of its runs, an entry a rank."""
    times = _joined(entries)
    low, high = interval(times) or (min(times), max(times))
    timing = Timing(
        median(times),
        low,
        high,
        runs=len(times),
        wrong=sum(each.wrong for each in entries),
        checked=sum(each.checked for each in entries),
    )
    handed = None if contender.own else sum(each.handed or 0 for each in entries)
    return replace(contender, timing=timing, handed=handed)


def _named(size: int) -> str:
    """Bytes as a reader knows them: ``16 MiB``, ``36 B``."""
    text = size_text(size)
    return f"{text} B" if text.isdigit() else f"{text[:-1]} {text[-1]}iB"


def _payload(op: OpSpec) -> int:
    return ops.REGISTRY[op.op].traffic(op).payload_bytes


def _cores() -> float:
    return cores().effective


def _shared_cores(world: WorldReport | None) -> float | None:
    """That the ranks share; None where they live on several hosts."""
    several = world is not None and len(set(world.hosts)) > 1
    return None if several else _cores()
