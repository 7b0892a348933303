"""The check's side in the launcher: worlds that many cases share, and a fresh one after a failure.

Cases of one world size run in one world, in order. The first that fails there (a wrong element, an
exception, a rank that died, no progress) ends that world, because nothing after it could be
trusted; the cases behind it go on in a new one. So every failure is its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from distdemo import backends
from distdemo.check.cases import Case
from distdemo.check.check import Finding, run_cases
from distdemo.check.guilt import guilty_case, words_of
from distdemo.check.records import CaseResult, CheckReport, Status
from distdemo.launcher.records import Lost, WorldReport, WorldSpec
from distdemo.versions import versions

OUTER_LIMIT = 24 * 3600.0  # seconds; a world of the check ends by its patience, not by this


class Start(Protocol):
    """What starts a world: ``distdemo.launcher.local.run_world``."""

    def __call__(
        self,
        world: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        hear: Callable[[int, Any], bool | None],
    ) -> WorldReport:
        """Run the target on every rank and say how each ended."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to check, and how.

    Attributes:
        cases: in the order in which they run.
        world: the world to start, but for its size; its patience is the time of a single case.
        scope: ``quick`` or ``full``.
        fail_fast: stop at the first failure.
        isolate: a world for each case.
        skip_refused: leave out what the backend's map says it does not take.
        gpus: how many there are, if a world can't have more ranks than that.
    """

    cases: Sequence[Case]
    world: WorldSpec
    scope: str = "quick"
    seed: int = 0
    fail_fast: bool = False
    isolate: bool = False
    skip_refused: bool = True
    gpus: int | None = None


Progress = Callable[[int, int, str], None]


def check(plan: Plan, start: Start, progress: Progress | None = None) -> CheckReport:
    """Run every case that the backend supports, and say how each went.

    Args:
        plan: what to run.
        start: starts a world.
        progress: called with (cases done, cases failed, the one that runs now).
    """
    began = time.monotonic()
    run = _Run(plan, start, progress)
    interrupted = False
    try:
        run.all()
    except KeyboardInterrupt:
        interrupted = True
    return CheckReport(
        backend=plan.world.backend,
        device=plan.world.device,
        scope=plan.scope,
        seed=plan.seed,
        results=run.results(interrupted=interrupted),
        seconds=time.monotonic() - began,
        worlds=run.worlds,
        versions=versions() | backends.versions_of(plan.world),
        interrupted=interrupted,
    )


@dataclass(slots=True)
class _Ending:
    """How a case ended."""

    status: Status
    seconds: float = 0.0
    why: str = ""
    details: tuple[str, ...] = ()


@dataclass(slots=True)
class _Run:
    plan: Plan
    start: Start
    progress: Progress | None
    worlds: int = 0
    _endings: dict[int, _Ending] = field(default_factory=dict)
    _heard: dict[int, list[Finding]] = field(default_factory=dict)
    _failed: int = 0
    _lost: bool = False  # a part of the world that others started is gone: no world can follow

    def all(self) -> None:
        """Every case, world after world."""
        for world_size, numbers in self._by_size().items():
            left = numbers
            while left and not ((self.plan.fail_fast or self._lost) and self._failed):
                left = self._one_world(world_size, left)

    def results(self, *, interrupted: bool) -> tuple[CaseResult, ...]:
        """What came of every case, in their order."""
        why = "The check was interrupted." if interrupted else "An earlier case had failed."
        missing = _Ending("not run", why=why)
        return tuple(
            self._result(case, self._endings.get(number, missing))
            for number, case in enumerate(self.plan.cases)
        )

    def _result(self, case: Case, ending: _Ending) -> CaseResult:
        return CaseResult(
            id=case.id,
            op=case.op.name,
            form=case.form.name,
            dtype=case.dtype,
            world_size=case.world_size,
            status=ending.status,
            seconds=ending.seconds,
            why=ending.why,
            command=case.command(self.plan.world.backend, self._device()),
            details=ending.details,
        )

    def _device(self) -> str:
        """The device, if a command line has to name it."""
        world = self.plan.world
        usual = backends.REGISTRY[world.backend].default_device()
        return "" if world.device == usual else world.device

    def _by_size(self) -> dict[int, list[int]]:
        """The numbers of the cases to run by the size of their world; the others end here."""
        sizes: dict[int, list[int]] = {}
        world = self.plan.world
        backend = backends.REGISTRY[world.backend]
        for number, case in enumerate(self.plan.cases):
            reason = _too_large(case, self.plan.gpus)
            if reason is None and self.plan.skip_refused:
                reason = backend.refuses(case.op, case.spec, world.device)
            if reason is None:
                sizes.setdefault(case.world_size, []).append(number)
            else:
                self._endings[number] = _Ending("not supported", why=reason)
        return dict(sorted(sizes.items()))

    # ------------------------------------------------------------------------------- one world

    def _one_world(self, world_size: int, numbers: list[int]) -> list[int]:
        """Run these cases in a new world until one fails; returns those that are left."""
        mine = numbers[:1] if self.plan.isolate else numbers
        self._heard = {number: [] for number in mine}
        self.worlds += 1
        cases = tuple((number, self.plan.cases[number]) for number in mine)
        report = self.start(
            _of_size(self.plan.world, world_size),
            run_cases,
            (cases,),
            hear=lambda _, finding: self._hear(world_size, finding),
        )
        self._lost |= any(isinstance(outcome, Lost) for outcome in report.outcomes)
        left = [number for number in mine if number not in self._endings]
        if left:
            guilty = guilty_case(mine, left, self._heard, report)
            self._end(guilty, self._blame(guilty, report))
            left.remove(guilty)  # the others have done nothing: they run again
        return [*left, *numbers[len(mine) :]]

    def _hear(self, world_size: int, finding: Finding) -> bool:
        """Note what a rank said; True if the world is of no more use."""
        heard = self._heard[finding.number]
        heard.append(finding)
        if finding.wrong:
            return True
        if len(heard) == world_size:
            self._end(finding.number, _Ending("passed", _seconds(heard)))
        return False

    def _end(self, number: int, ending: _Ending) -> None:
        self._endings[number] = ending
        self._failed += ending.status == "failed"
        if self.progress is not None:
            self.progress(len(self._endings), self._failed, self.plan.cases[number].id)

    def _blame(self, number: int, report: WorldReport) -> _Ending:
        """Why the case that ended its world failed."""
        heard = self._heard[number]
        wrong = [finding for finding in heard if finding.wrong]
        if wrong:
            why = wrong[0].wrong[0]
            details = tuple(line for finding in wrong for line in finding.wrong[1:])
            return _Ending("failed", _seconds(heard), why, details)
        verdict = report.verdict
        why = "Its world ended without a word." if verdict is None else verdict.what
        known = () if verdict is None else (verdict.why,)
        ranks = tuple(words_of(outcome) for outcome in report.outcomes)
        return _Ending("failed", report.seconds, why, (*known, *filter(None, ranks)))


def _too_large(case: Case, gpus: int | None) -> str | None:
    """Why there are too few GPUs for this case; None if there are enough."""
    if gpus is None or case.world_size <= gpus:
        return None
    return f"It needs a GPU for every rank, and there are {gpus} here."


def _of_size(world: WorldSpec, size: int) -> WorldSpec:
    return replace(world, world_size=size, deadline=OUTER_LIMIT, capture=True, lazy=False)


def _seconds(heard: Iterable[Finding]) -> float:
    """The longest that a rank was in the case. Clocks of several hosts can't be compared."""
    return max(finding.done - finding.entered for finding in heard)
