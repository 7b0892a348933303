"""Run the cases of a check in shared worlds, with a new world after each failure.

Cases with the same world size run in one world, in order. The first failure (a wrong element, an
exception, a dead rank or a stall) ends the world, because later results couldn't be trusted. The
remaining cases run in a new world, so failures are independent.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from distdemo import backends
from distdemo.check.matrix import Case
from distdemo.check.records import CaseResult, CheckReport, Status
from distdemo.launcher.records import (
    Died,
    Lost,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    WorldReport,
    WorldSpec,
)
from distdemo.versions import versions

if TYPE_CHECKING:
    from distdemo.backends.contract import Failure
    from distdemo.check.rank import CaseFinding

WORLD_TIMEOUT_S = 24 * 3600.0  # seconds; stalled cases end a world long before
Progress = Callable[[int, int, str], None]
"""Callback with (finished cases, failed cases, ID of the last case)."""
Start = Callable[..., WorldReport]
"""``distdemo.launcher.local.run_world``, or its counterpart for a joined world."""


@dataclass(slots=True)
class CheckRun:
    """A check: its cases and settings, and the results so far.

    Attributes:
        cases: Cases to run.
        world: World to start, except for its size. Its ``stall`` limits a single case.
        scope: ``quick``, ``full`` or ``probe``, which also runs the cases that are unsupported or
            wrong in this release of torch according to the backend's map.
        strict: True if a case that is skipped on this machine or release is a failure.
        fail_fast: True to stop at the first failure.
        gpus: Number of GPUs if it limits the world size, else None.
        timeout: Seconds until the remaining cases are given up, or None for no limit.
        started_at: Start of the command, on the monotonic clock.
        worlds: Number of worlds that were started.
        results: Results by case number.
    """

    cases: Sequence[Case]
    world: WorldSpec
    scope: str = "quick"
    strict: bool = False
    fail_fast: bool = False
    gpus: int | None = None
    timeout: float | None = None
    started_at: float = field(default_factory=time.monotonic)
    worlds: int = 0
    results: dict[int, CaseResult] = field(default_factory=dict)
    _failed: int = 0
    _has_lost_node: bool = False  # no further world can start in the joined world

    def run(self, start: Start, progress: Progress = lambda *_: None) -> CheckReport:
        """Run every case that the backend supports, and return the results."""
        for world_size, numbers in sorted(self._numbers_by_world_size().items()):
            remaining = numbers
            while remaining and not self._reason_to_stop():
                remaining = self._one_world(world_size, remaining, start, progress)
        return self.report()

    def report(self, why: str = "") -> CheckReport:
        """Return the results so far.

        Args:
            why: Reason why the other cases were not run; by default a failure or the time limit.
        """
        why = why or self._reason_to_stop()
        return CheckReport(
            scope=self.scope,
            strict=self.strict,
            backend=self.world.backend,
            device=self.world.device,
            cases=tuple(
                self.results.get(number) or self._result(number, "not run", why=why)
                for number in range(len(self.cases))
            ),
            time_s=time.monotonic() - self.started_at,
            worlds=self.worlds,
            versions=versions() | backends.versions_of(self.world),
        )

    def _numbers_by_world_size(self) -> dict[int, list[int]]:
        """Return the numbers of the cases to run; record why the other cases are skipped."""
        backend = backends.REGISTRY[self.world.backend]
        numbers: defaultdict[int, list[int]] = defaultdict(list)
        for number, case in enumerate(self.cases):
            reason = known_bug = None
            if self.gpus is not None and case.world_size > self.gpus:
                why = f"It needs one GPU per rank, but this machine has {self.gpus}."
                self.results[number] = self._result(number, "unavailable", why=why)
                continue
            if self.scope != "probe":
                reason = backend.why_unsupported(case.op, case.spec, self.world.device)
                if case.world_size > 1:
                    known_bug = backend.known_bug(case.op, case.spec)
            if reason is not None:
                self.results[number] = self._result(number, "not supported", why=reason)
            elif known_bug is not None:
                self.results[number] = self._result(number, "known wrong", why=known_bug)
            else:
                numbers[case.world_size].append(number)
        return numbers

    def _reason_to_stop(self) -> str:
        """Return the reason to run no further case, or ""."""
        if (self.fail_fast or self._has_lost_node) and self._failed:
            return "An earlier case had failed."
        if self._time_left_s() <= 0:
            return f"The time limit of {self.timeout:g} s was reached (--timeout)."
        return ""

    def _time_left_s(self) -> float:
        if self.timeout is None:
            return WORLD_TIMEOUT_S
        return self.started_at + self.timeout - time.monotonic()

    def _one_world(
        self, world_size: int, numbers: list[int], start: Start, progress: Progress
    ) -> list[int]:
        """Run cases in a new world until one fails; return the remaining ones."""
        from distdemo.check.rank import run_cases

        findings: dict[int, list[CaseFinding]] = {number: [] for number in numbers}
        finished: Counter[int] = Counter()  # cases by rank
        self.worlds += 1
        world = replace(
            self.world,
            world_size=world_size,
            deadline=min(WORLD_TIMEOUT_S, max(0.1, self._time_left_s())),
            capture=True,
            lazy=False,
        )

        def finish(number: int, result: CaseResult) -> None:
            self.results[number] = result
            self._failed += result.status == "failed"
            progress(len(self.results), self._failed, result.id)

        def on_message(rank: int, finding: CaseFinding) -> bool:
            """Record a rank's finding; return True if it ends the world."""
            finished[rank] += 1
            of_case = findings[finding.number]
            of_case.append(finding)
            if not finding.wrong and len(of_case) == world_size:
                passed = self._result(finding.number, "passed", _longest(of_case))
                finish(finding.number, passed)
            return bool(finding.wrong)

        report = start(world, run_cases, (self.cases, tuple(numbers)), on_message=on_message)
        self._has_lost_node |= any(isinstance(outcome, Lost) for outcome in report.outcomes)
        remaining = [number for number in numbers if number not in self.results]
        timed_out = any(isinstance(outcome, TimedOut) for outcome in report.outcomes)
        if remaining and not (timed_out and self._time_left_s() <= 0):  # else no case is to blame
            number = failed_case(findings, finished, report)
            finish(number, self._failure(number, findings[number], report))
            remaining.remove(number)
        return remaining

    def _failure(
        self, number: int, findings: Sequence[CaseFinding], report: WorldReport
    ) -> CaseResult:
        """Return the result of the case that ended its world."""
        from distdemo.view.failure import what_happened

        wrong = [finding.wrong for finding in findings if finding.wrong]
        if wrong:
            details = [line for lines in wrong for line in lines[1:]]
            failed = self._result(number, "failed", _longest(findings), wrong[0][0], *details)
            return replace(failed, failure="wrong")
        verdict = report.verdict
        what = verdict.what if verdict else "Its world ended."
        details = [verdict.why] if verdict and verdict.why else []
        details += [
            f"rank {outcome.rank}: {what_happened(outcome, at_fault=False)}"
            for outcome in report.outcomes
            if not isinstance(outcome, Returned | Stopped)
        ]
        failed = self._result(number, "failed", report.seconds, what, *details)
        return replace(failed, failure=_failure_of(report))

    def _result(
        self, number: int, status: Status, time_s: float = 0.0, why: str = "", *details: str
    ) -> CaseResult:
        """Return the result of a case."""
        case = self.cases[number]
        call = case.op.call(case.spec)
        return CaseResult(case.id, call, case.world_size, status, time_s, why, details)


def _failure_of(report: WorldReport) -> Failure:
    """Return how the ranks at fault failed."""
    at_fault = report.verdict.ranks if report.verdict else ()
    outcomes = [report.outcomes[rank] for rank in at_fault]
    if any(isinstance(outcome, Raised) for outcome in outcomes):
        return "raised"
    return "died" if any(isinstance(outcome, Died | Lost) for outcome in outcomes) else "stalled"


def _longest(findings: Iterable[CaseFinding]) -> float:
    """Return the longest time of a rank in the case. Clocks of hosts can't be compared."""
    return max(finding.time_s for finding in findings)


def failed_case(
    findings: Mapping[int, Sequence[CaseFinding]], finished: Mapping[int, int], report: WorldReport
) -> int:
    """Return the number of the case that ended its world.

    A rank may be ahead of its peers. If it fails, only the case that it was in is to blame.

    Args:
        findings: Findings of the ranks by case, in order.
        finished: Number of cases that each rank has finished.
        report: Report of the world.
    """
    for number, of_case in findings.items():
        if any(finding.wrong for finding in of_case):
            return number
    verdict = report.verdict
    at_fault = [report.outcomes[rank] for rank in verdict.ranks[:1]] if verdict else []
    if not (at_fault and isinstance(at_fault[0], Raised | Died | Lost)):
        at_fault = [outcome for outcome in report.outcomes if not isinstance(outcome, Returned)]
    ended_after = min((finished.get(outcome.rank, 0) for outcome in at_fault), default=0)
    numbers = list(findings)
    return numbers[min(ended_after, len(numbers) - 1)]
