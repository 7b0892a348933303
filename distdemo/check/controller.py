"""Run the cases of a check in shared worlds, with a new world after each failure.

Cases with the same world size run in one world, in order. The first failure (a wrong element, an
exception, a dead rank or a stall) ends the world, because later results couldn't be trusted. The
remaining cases run in a new world, so failures are independent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from distdemo import backends
from distdemo.check.matrix import Case
from distdemo.check.records import CaseResult, CheckReport, Status
from distdemo.errors import Terminated
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

if TYPE_CHECKING:
    from distdemo.check.rank import CaseFinding

WORLD_TIMEOUT_S = 24 * 3600.0  # seconds; stalled cases end a world long before
INTERRUPTED = "The check was interrupted."
LOST = "lost its connection: "
Progress = Callable[[int, int, str], None]
"""Callback with (finished cases, failed cases, ID of the last case)."""
Start = Callable[..., WorldReport]
"""``distdemo.launcher.local.run_world``, or its counterpart for a joined world."""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """Cases and settings of a check.

    Attributes:
        cases: Cases in the order in which they run.
        world: World to start, except for its size. Its ``stall`` limits a single case.
        scope: ``quick`` or ``full``.
        seed: Seed of the order and values.
        fail_fast: True to stop at the first failure.
        isolate: True to start one world per case.
        skip_refused: True to skip cases that are unsupported or wrong in this release of torch
            according to the backend's map.
        gpus: Number of GPUs if it limits the world size, else None.
        strict: True to count cases known to be wrong as failures.
        timeout: Seconds until the remaining cases are given up, or None for no limit.
        started_at: Start of the command, on the monotonic clock.
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
    timeout: float | None = None
    started_at: float = field(default_factory=time.monotonic)

    def time_left_s(self) -> float:
        """Return the seconds until the check is given up."""
        if self.timeout is None:
            return WORLD_TIMEOUT_S
        return self.started_at + self.timeout - time.monotonic()

    def result(
        self, number: int, status: Status, time_s: float = 0.0, why: str = "", *details: str
    ) -> CaseResult:
        """Return the result of a case. Its command names the device unless it is the default."""
        case, world = self.cases[number], self.world
        usual = backends.REGISTRY[world.backend].default_device()
        return CaseResult(
            id=case.id,
            op=case.op.call(case.spec),
            world_size=case.world_size,
            status=status,
            time_s=time_s,
            why=why,
            command=case.command(world.backend, "" if world.device == usual else world.device),
            details=details,
        )

    def report(self, results: Mapping[int, CaseResult], why: str, worlds: int = 0) -> CheckReport:
        """Return the report.

        Args:
            results: Results by case number; the other cases are not run.
            why: Reason why they are not run.
            worlds: Number of worlds that were started.
        """
        return CheckReport(
            scope=self.scope,
            backend=self.world.backend,
            device=self.world.device,
            seed=self.seed,
            cases=tuple(
                results.get(number) or self.result(number, "not run", why=why)
                for number in range(len(self.cases))
            ),
            time_s=time.monotonic() - self.started_at,
            worlds=worlds,
            versions=versions(),
            interrupted=why == INTERRUPTED,
            strict=self.strict,
        )


def check(plan: CheckPlan, start: Start, progress: Progress | None = None) -> CheckReport:
    """Run every case that the backend supports, and return the results."""
    run = _Run(plan, start, progress)
    why = INTERRUPTED
    with suppress(KeyboardInterrupt, Terminated):
        why = run.all()
    report = plan.report(run.results, why, run.worlds)
    return replace(report, versions=report.versions | backends.versions_of(plan.world))


@dataclass(slots=True)
class _Run:
    """A check in progress, with the results so far by case number."""

    plan: CheckPlan
    start: Start
    progress: Progress | None
    worlds: int = 0
    results: dict[int, CaseResult] = field(default_factory=dict)
    _findings: dict[int, list[CaseFinding]] = field(default_factory=dict)
    _failed: int = 0
    _lost: bool = False  # a node of the joined world is gone: no further world can start

    def all(self) -> str:
        """Run all cases, world after world; return the reason why others are not run, or ""."""
        sizes: dict[int, list[int]] = {}
        for number, case in enumerate(self.plan.cases):
            reason, wrong = self._refusal(case), self._known_wrong(case)
            if reason is not None:
                self.results[number] = self.plan.result(number, "not supported", why=reason)
            elif wrong is not None:
                self.results[number] = self.plan.result(number, "known wrong", why=wrong)
            else:
                sizes.setdefault(case.world_size, []).append(number)
        for world_size, left in sorted(sizes.items()):
            while left and not self._given_up():
                left = self._one_world(world_size, left)  # noqa: PLW2901 - the remaining cases
        return self._given_up()

    def _given_up(self) -> str:
        """Return the reason to run no further case, or ""."""
        if (self.plan.fail_fast or self._lost) and self._failed:
            return "An earlier case had failed."
        if self.plan.time_left_s() <= 0:
            return f"The time limit of {self.plan.timeout:g} s was reached (--timeout)."
        return ""

    def _refusal(self, case: Case) -> str | None:
        world, gpus = self.plan.world, self.plan.gpus
        if gpus is not None and case.world_size > gpus:
            return f"It needs one GPU per rank, but this machine has {gpus}."
        if not self.plan.skip_refused:
            return None
        return backends.REGISTRY[world.backend].why_unsupported(case.op, case.spec, world.device)

    def _known_wrong(self, case: Case) -> str | None:
        world = self.plan.world
        if not self.plan.skip_refused or case.world_size == 1:
            return None
        return backends.REGISTRY[world.backend].known_bug(case.op, case.spec)

    def _one_world(self, world_size: int, numbers: list[int]) -> list[int]:
        """Run cases in a new world until one fails; return the remaining ones."""
        from distdemo.check.rank import run_cases

        mine = numbers[:1] if self.plan.isolate else numbers
        self._findings = {number: [] for number in mine}
        self.worlds += 1
        world = replace(
            self.plan.world,
            world_size=world_size,
            deadline=min(WORLD_TIMEOUT_S, max(0.1, self.plan.time_left_s())),
            capture=True,
            lazy=False,
        )

        def on_message(_: int, finding: CaseFinding) -> bool:
            """Record a rank's finding; return True if it ends the world."""
            findings = self._findings[finding.number]
            findings.append(finding)
            if not finding.wrong and len(findings) == world_size:
                self._finish(
                    self.plan.result(finding.number, "passed", _longest(findings)), finding.number
                )
            return bool(finding.wrong)

        report = self.start(world, run_cases, (self.plan.cases, tuple(mine)), on_message=on_message)
        self._lost |= any(isinstance(outcome, Lost) for outcome in report.outcomes)
        left = [number for number in mine if number not in self.results]
        late = self.plan.time_left_s() <= 0
        timed_out = late and any(isinstance(outcome, TimedOut) for outcome in report.outcomes)
        if left and not timed_out:  # otherwise the case is not to blame
            failed = failed_case(left, self._findings, report)
            self._finish(self._failure(failed, report), failed)
            left.remove(failed)  # the remaining cases run again
        return [*left, *numbers[len(mine) :]]

    def _finish(self, result: CaseResult, number: int) -> None:
        self.results[number] = result
        self._failed += result.status == "failed"
        if self.progress is not None:
            self.progress(len(self.results), self._failed, result.id)

    def _failure(self, number: int, report: WorldReport) -> CaseResult:
        """Return the result of the case that ended its world."""
        findings = self._findings[number]
        wrong = [finding.wrong for finding in findings if finding.wrong]
        if wrong:
            details = [line for lines in wrong for line in lines[1:]]
            return self.plan.result(number, "failed", _longest(findings), wrong[0][0], *details)
        verdict = report.verdict
        what, why = (verdict.what, verdict.why) if verdict else ("Its world ended.", "")
        known = filter(None, (why, *map(_describe_failure, report.outcomes)))
        return self.plan.result(number, "failed", report.seconds, what, *known)


def _longest(findings: Iterable[CaseFinding]) -> float:
    """Return the longest time of a rank in the case. Clocks of hosts can't be compared."""
    return max(finding.time_s for finding in findings)


def failed_case(
    left: Sequence[int], findings: dict[int, list[CaseFinding]], report: WorldReport
) -> int:
    """Return the number of the case that ended its world.

    A rank may be ahead of its peers. If it fails, only the case that it was in is to blame.

    Args:
        left: Cases that not every rank completed, in order.
        findings: Findings of the ranks by case, in order.
        report: Report of the world.
    """
    from distdemo.check.rank import case_of

    for number, of_case in findings.items():
        if any(finding.wrong for finding in of_case):
            return number
    verdict = report.verdict
    at_fault = [report.outcomes[rank] for rank in verdict.ranks[:1]] if verdict else []
    if not (at_fault and isinstance(at_fault[0], Raised | Died | Lost)):
        at_fault = [each for each in report.outcomes if not isinstance(each, Returned)]
    numbers = {case_of(outcome.phase.name) for outcome in at_fault}
    return next((number for number in left if number in numbers), left[0])


def _describe_failure(outcome: Outcome) -> str:
    """Return a line about how a rank failed, or "" if it was stopped."""
    if isinstance(outcome, Died):
        signal = outcome.signal
        how = f"killed by signal {signal}" if signal else f"exit code {outcome.exit_code}"
    elif isinstance(outcome, Lost):
        how = outcome.why
    elif isinstance(outcome, Raised):
        lost = LOST if outcome.consequence else ""
        how = f"{outcome.type}: {lost}{headline(outcome.message)}"
    elif isinstance(outcome, TimedOut):
        where = outcome.where
        place = where and (where.collective or where.source_line or "its own code")
        how = f"still in {place}" if place else "did not answer"
    else:
        return ""
    return f"rank {outcome.rank}: {how}"
