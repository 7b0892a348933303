"""Cases on real ranks: every failure is found, isolated and attributed to its case."""

from __future__ import annotations

import faulthandler
import os
import signal
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from broken import broken

from distdemo.check import matrix
from distdemo.check.controller import CheckRun, failed_case
from distdemo.check.rank import CaseFinding
from distdemo.launcher.local import run_world
from distdemo.launcher.records import Raised, Returned, Verdict, WorldReport, WorldSpec


def checked(cases, stall=20.0, progress=lambda *_: None, **more):
    run = CheckRun(cases, WorldSpec(2, start_method="fork", stall=stall), **more)
    return run.run(run_world, progress)


@cache
def sound():
    """Return passing cases of three ranks."""
    known = matrix.quick(sizes=(3,), names=("scatter", "all_reduce"))
    return [case for case in known if case.dtype == "float32" and case.spec.members is None]


def injected(how):
    """Return a case of three ranks with this fault."""
    (case,) = [case for case in sound() if case.id == "all_reduce/tensor/sum/float32/n3/7"]
    return replace(case, op=broken("all_reduce", how))


def wrong(call, buffers, spec, rank):
    made = call(buffers, spec)
    buffers.recv[0][3] += rank == 1
    return made


def aborting(call, buffers, spec, rank):
    if rank == 1:
        faulthandler.disable()  # its traceback would only clutter the output
        os.abort()
    return call(buffers, spec)


def hanging(call, buffers, spec, rank):
    if rank == 2:
        signal.pause()  # until the launcher kills it
    return call(buffers, spec)


def raising(call, buffers, spec, rank):
    if rank == 0:
        raise ArithmeticError("broken on purpose")
    return call(buffers, spec)


def statuses(report):
    return [case.status for case in report.cases]


@pytest.mark.processes
def test_every_kind_of_failure_is_isolated() -> None:
    good = sound()[:5]
    bad = map(injected, (wrong, aborting, raising, hanging))
    cases = [case for pair in zip(good, bad, strict=False) for case in pair] + good[4:]
    cases = [
        replace(case, specs=(replace(case.spec, seed=seed),)) for seed, case in enumerate(cases)
    ]
    expected = [*["passed", "failed"] * 4, "passed"]
    for stall in (1.0, 20.0):  # a busy machine may take more than a second for a good case
        calls: list[Any] = []
        report = checked(cases, stall, lambda *progress, to=calls: to.append(progress))
        if statuses(report) == expected and report.worlds == 5:
            break
    assert statuses(report) == expected
    assert report.worlds == 5
    assert not report.ok
    reasons = (
        "Rank 1: 1 of 7 elements are wrong.",
        "Rank 1 was killed by SIGABRT",
        "Rank 0 raised ArithmeticError",
        "rank 2 is not",
    )
    for why, failed in zip(reasons, report.of("failed"), strict=True):
        assert why in failed.why
    assert "rank 1, piece 0, index 3: got" in report.cases[1].details[0]
    assert [progress[:2] for progress in calls][-1] == (9, 4)


@pytest.mark.processes
def test_fail_fast() -> None:
    good = sound()[:3]
    report = checked([good[0], injected(wrong), *good[1:]], fail_fast=True)
    assert statuses(report) == ["passed", "failed", "not run", "not run"]


@pytest.mark.processes
def test_a_time_limit_blames_no_case() -> None:
    report = checked([injected(hanging), *sound()[:1]], timeout=1.0)
    assert statuses(report) == ["not run", "not run"]
    assert {case.why for case in report.cases} == {"The time limit of 1 s was reached (--timeout)."}
    assert not report.ok


def test_a_failure_in_the_next_case_is_attributed_to_it() -> None:
    # Rank 2 was still in case 4 when rank 0, which was ahead, failed in case 5.
    def raised(rank: int, type_: str = "RuntimeError") -> Any:
        return Raised(rank=rank, type=type_, message="closed", traceback="")

    outcomes = (raised(0, "ValueError"), raised(1), raised(2))
    verdict = Verdict("Rank 0 raised ValueError.", "no", "", (0,), (1, 2))
    ended = WorldReport(WorldSpec(3), outcomes, verdict, 1.0, "fork", "")
    findings: dict[int, list[CaseFinding]] = {4: [CaseFinding(4, 0.1)] * 2, 5: [], 6: []}
    finished = {0: 1, 1: 1}
    assert failed_case(findings, finished, ended) == 5
    # A wrong element decides, whatever the other ranks were doing when their world ended.
    findings[4].append(CaseFinding(4, 0.1, ("Rank 2: 1 of 7 elements are wrong.",)))
    assert failed_case(findings, finished, ended) == 4
    # No rank raised: the ranks that did not return decide.
    late = (Returned(rank=0), outcomes[1])
    stalled = replace(ended, outcomes=late, verdict=replace(verdict, ranks=(1,)))
    assert failed_case({5: [], 6: []}, {0: 2, 1: 1}, stalled) == 6
