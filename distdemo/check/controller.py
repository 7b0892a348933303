"""The check's side in the launcher: worlds that many cases share, and a fresh one after a failure.

Cases of one world size run in one world, in order. The first that fails there (a wrong element, an
exception, a rank that died, no progress) ends that world, because nothing after it could be
trusted; the cases behind it go on in a new one. So every failure is its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from distdemo import backends
from distdemo.check.matrix import Case
from distdemo.check.rank import CaseFinding, case_of, run_cases
from distdemo.check.records import CaseResult, CheckReport, Status
from distdemo.launcher.records import (
    Died,
    Lost,
    Outcome,
    Raised,
    Returned,
    TimedOut,
    WorldReport,
    WorldSpec,
    headline,
)
from distdemo.versions import versions

OUTER_LIMIT = 24 * 3600.0  # seconds; a world of the check ends when a case stalls, not by this
LOST = "lost its peer: "
Progress = Callable[[int, int, str], None]
"""Called with (cases done, cases failed, the one that ended last)."""
Start = Callable[..., WorldReport]
"""``distdemo.launcher.local.run_world``, or what does the same for a joined world."""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """What to check, and how.

    Attributes:
        cases: in the order in which they run.
        world: the world to start, but for its size; its ``stall`` is the limit of a single case.
        scope: ``quick`` or ``full``.
        fail_fast: stop at the first failure.
        isolate: a world for each case.
        skip_refused: leave out what the backend's map says it does not take, or does wrongly in
            this release of torch.
        strict: of the report.
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
    strict: bool = False


def check(plan: CheckPlan, start: Start, progress: Progress | None = None) -> CheckReport:
    """Run every case that the backend supports, and say how each went."""
    began = time.monotonic()
    run = _Run(plan, start, progress)
    interrupted = False
    try:
        run.all()
    except KeyboardInterrupt:
        interrupted = True
    why = "The check was interrupted." if interrupted else "An earlier case had failed."
    return CheckReport(
        scope=plan.scope,
        backend=plan.world.backend,
        device=plan.world.device,
        seed=plan.seed,
        cases=tuple(
            run.results.get(number) or run.result(number, "not run", why=why)
            for number in range(len(plan.cases))
        ),
        time_s=time.monotonic() - began,
        worlds=run.worlds,
        versions=versions() | backends.versions_of(plan.world),
        interrupted=interrupted,
        strict=plan.strict,
    )


@dataclass(slots=True)
class _Run:
    """A check under way: what came of the cases so far, by their number."""

    plan: CheckPlan
    start: Start
    progress: Progress | None
    worlds: int = 0
    results: dict[int, CaseResult] = field(default_factory=dict)
    _heard: dict[int, list[CaseFinding]] = field(default_factory=dict)
    _failed: int = 0
    _lost: bool = False  # a part of the world that others started is gone: no world can follow

    def all(self) -> None:
        """Every case, world after world."""
        sizes: dict[int, list[int]] = {}
        for number, case in enumerate(self.plan.cases):
            reason, wrong = self._refusal(case), self._known_wrong(case)
            if reason is not None:
                self.results[number] = self.result(number, "not supported", why=reason)
            elif wrong is not None:
                self.results[number] = self.result(number, "known wrong", why=wrong)
            else:
                sizes.setdefault(case.world_size, []).append(number)
        for world_size, left in sorted(sizes.items()):
            while left and not ((self.plan.fail_fast or self._lost) and self._failed):
                left = self._one_world(world_size, left)  # noqa: PLW2901 - what is left of it

    def _refusal(self, case: Case) -> str | None:
        world, gpus = self.plan.world, self.plan.gpus
        if gpus is not None and case.world_size > gpus:
            return f"It needs a GPU for every rank, and there are {gpus} here."
        if not self.plan.skip_refused:
            return None
        return backends.REGISTRY[world.backend].refuses(case.op, case.spec, world.device)

    def _known_wrong(self, case: Case) -> str | None:
        world = self.plan.world
        if not self.plan.skip_refused or case.world_size == 1:
            return None
        return backends.REGISTRY[world.backend].wrong(case.op, case.spec, world.device)

    def result(
        self, number: int, status: Status, time_s: float = 0.0, why: str = "", *details: str
    ) -> CaseResult:
        """How a case went; the device is named where it is not the backend's usual one."""
        case, world = self.plan.cases[number], self.plan.world
        usual = backends.REGISTRY[world.backend].default_device()
        return CaseResult(
            id=case.id,
            op=case.op.name,
            form=case.form.name,
            dtype=case.dtype,
            world_size=case.world_size,
            status=status,
            time_s=time_s,
            why=why,
            command=case.command(world.backend, "" if world.device == usual else world.device),
            details=details,
            reduce_op=case.spec.reduce_op or "",
        )

    def _one_world(self, world_size: int, numbers: list[int]) -> list[int]:
        """Run these cases in a new world until one fails; returns those that are left."""
        mine = numbers[:1] if self.plan.isolate else numbers
        self._heard = {number: [] for number in mine}
        self.worlds += 1
        world = replace(
            self.plan.world, world_size=world_size, deadline=OUTER_LIMIT, capture=True, lazy=False
        )
        cases = tuple((number, self.plan.cases[number]) for number in mine)

        def hear(_: int, finding: CaseFinding) -> bool:
            """Note what a rank said; True if the world is of no more use."""
            heard = self._heard[finding.number]
            heard.append(finding)
            if not finding.wrong and len(heard) == world_size:
                self._end(self.result(finding.number, "passed", _longest(heard)), finding.number)
            return bool(finding.wrong)

        report = self.start(world, run_cases, (cases,), hear=hear)
        self._lost |= any(isinstance(outcome, Lost) for outcome in report.outcomes)
        left = [number for number in mine if number not in self.results]
        if left:
            guilty = guilty_case(left, self._heard, report)
            self._end(self._blame(guilty, report), guilty)
            left.remove(guilty)  # the others run again
        return [*left, *numbers[len(mine) :]]

    def _end(self, result: CaseResult, number: int) -> None:
        self.results[number] = result
        self._failed += result.status == "failed"
        if self.progress is not None:
            self.progress(len(self.results), self._failed, result.id)

    def _blame(self, number: int, report: WorldReport) -> CaseResult:
        """Why the case that ended its world failed."""
        heard = self._heard[number]
        wrong = [finding.wrong for finding in heard if finding.wrong]
        if wrong:
            details = [line for lines in wrong for line in lines[1:]]
            return self.result(number, "failed", _longest(heard), wrong[0][0], *details)
        verdict = report.verdict
        what, why = (verdict.what, verdict.why) if verdict else ("Its world ended.", "")
        known = filter(None, (why, *map(how_it_ended, report.outcomes)))
        return self.result(number, "failed", report.seconds, what, *known)


def _longest(heard: Iterable[CaseFinding]) -> float:
    """The longest that a rank was in the case. Clocks of several hosts can't be compared."""
    return max(finding.time_s for finding in heard)


def guilty_case(
    left: Sequence[int], heard: dict[int, list[CaseFinding]], report: WorldReport
) -> int:
    """The number of the case that ended its world.

    A rank may be ahead of the others: what it did in its own case is no fault of theirs.

    Args:
        left: of the world's cases those that not every rank came through, in order.
        heard: what the ranks said of each of the world's cases, in order.
        report: how the world ended.
    """
    for number, findings in heard.items():
        if any(finding.wrong for finding in findings):
            return number
    verdict = report.verdict
    at_fault = [report.outcomes[rank] for rank in verdict.ranks[:1]] if verdict else []
    if not (at_fault and isinstance(at_fault[0], Raised | Died | Lost)):
        at_fault = [each for each in report.outcomes if not isinstance(each, Returned)]
    numbers = {case_of(outcome.phase.name) for outcome in at_fault}
    return next((number for number in left if number in numbers), left[0])


def how_it_ended(outcome: Outcome) -> str:
    """How a rank ended, if it did so by itself."""
    if isinstance(outcome, Died):
        signal = outcome.signal
        how = f"ended by {f'signal {signal}' if signal else f'exit code {outcome.exit_code}'}"
    elif isinstance(outcome, Lost):
        how = outcome.why
    elif isinstance(outcome, Raised):
        lost = LOST if outcome.consequence else ""
        how = f"{outcome.type}: {lost}{headline(outcome.message)}"
    elif isinstance(outcome, TimedOut):
        where = outcome.where
        place = where and (where.collective or where.place or "its own code")
        how = f"still in {place}" if place else "did not answer"
    else:
        return ""
    return f"rank {outcome.rank}: {how}"
