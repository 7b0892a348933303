from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from check.mutants import (
    MUTATIONS,
    Break,
    Mutation,
    aborting,
    hanging,
    lagging,
    nobody_calls,
    raising,
    unbroken,
)

from distdemo import ops
from distdemo.check import matrix
from distdemo.check.controller import Plan, check
from distdemo.check.matrix import Case
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec

if TYPE_CHECKING:
    from distdemo.check.records import CheckReport

SHORT = 1.0  # seconds without progress after which a case is given up here


def checked(
    cases: Sequence[Case],
    patience: float = 20.0,
    *,
    fail_fast: bool = False,
    isolate: bool = False,
) -> CheckReport:
    world = WorldSpec(2, stall=patience)
    return check(Plan(cases, world, fail_fast=fail_fast, isolate=isolate), run_world)


# -------------------------------------------------------------------------------- broken ops


@cache
def quick(*sizes: int) -> tuple[Case, ...]:
    """The quick cases of these sizes, or of all: made once."""
    return tuple(matrix.quick(sizes=sizes) if sizes else matrix.quick())


def broken_cases(mutation: Mutation) -> list[Case]:
    """Cases of two and three ranks for every form of the op, with the op broken."""
    mutant = mutation.mutant()
    return [
        replace(case, op=mutant)
        for case in quick(2, 3)
        if case.op.name == mutation.op and case.dtype in ("float32", "object", "none")
    ]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_every_broken_op_fails_the_check_and_is_named(mutation: Mutation) -> None:
    report = checked(broken_cases(mutation), SHORT, fail_fast=True)
    failed = [result for result in report.cases if result.status == "failed"]
    assert not report.ok
    assert [result.op for result in failed] == [mutation.op]
    assert failed[0].why
    assert mutation.op.replace("_", "-") in failed[0].command or "check --case" in failed[0].command


def test_every_op_is_broken_in_several_ways() -> None:
    ways = {name: [m for m in MUTATIONS if m.op == name] for name in ops.REGISTRY}
    assert all(len(each) >= 2 for each in ways.values()), ways


def test_mutants_that_are_not_broken_pass() -> None:
    cases = [case for name in ops.REGISTRY for case in broken_cases(Mutation(name, unbroken))]
    report = checked(cases)
    assert report.ok, [result for result in report.cases if result.status == "failed"]
    assert report.worlds == 2


# ------------------------------------------------------------------- cases that take the world


def sound(count: int) -> list[Case]:
    """So many cases of three ranks that pass."""
    known = [case for case in quick() if case.world_size == 3 and case.op.name == "gather"]
    return [case for case in known if case.dtype == "float32"][:count]


def injected(how: Break) -> Case:
    """A case of three ranks that is broken like this."""
    case = next(
        case
        for case in quick()
        if case.op.name == "all_reduce" and case.world_size == 3 and case.spec.members is None
    )
    return replace(case, op=Mutation("all_reduce", how).mutant())


def test_a_case_that_aborts_and_one_that_hangs_fail_alone() -> None:
    good = sound(6)
    cases = [*good[:2], injected(aborting), *good[2:4], injected(hanging), *good[4:]]
    cases = [replace(case, specs=(replace(case.spec, seed=n),)) for n, case in enumerate(cases)]
    report = checked(cases, SHORT)
    statuses = [result.status for result in report.cases]
    assert statuses == [*["passed"] * 2, "failed", *["passed"] * 2, "failed", *["passed"] * 2]
    aborted, hung = (result for result in report.cases if result.status == "failed")
    assert "Rank 1 was killed by SIGABRT" in aborted.why
    assert "rank 2 never arrived" in hung.why
    assert report.worlds == 3
    assert not report.ok


@pytest.mark.parametrize("how", [nobody_calls, raising], ids=lambda how: how.__name__)
def test_a_case_is_not_blamed_for_the_failure_of_the_next_one(how: Break) -> None:
    # Rank 2 is still in the first case while rank 0 fails in the second.
    slow, broken = injected(lagging), injected(how)
    cases = [replace(slow, specs=(replace(slow.spec, seed=7),)), broken, *sound(2)]
    report = checked(cases, 5.0)
    statuses = [result.status for result in report.cases]
    assert statuses == ["passed", "failed", "passed", "passed"], report.cases


def test_after_a_failure_nothing_runs_if_so_asked() -> None:
    good = sound(4)
    report = checked([*good[:2], injected(aborting), *good[2:]], SHORT, fail_fast=True)
    statuses = [result.status for result in report.cases]
    assert statuses == ["passed", "passed", "failed", "not run", "not run"]
    assert not report.ok
    assert len(report.of("not run")) == 2


def test_a_world_for_each_case_is_what_isolation_means() -> None:
    report = checked(sound(4), isolate=True)
    assert report.ok
    assert report.worlds == 4


def test_what_a_backend_refuses_is_not_run_and_has_its_reason() -> None:
    cases = [
        case
        for case in quick()
        if case.op.name == "all_reduce" and case.spec.reduce_op == "premul_sum"
    ]
    report = checked(cases)
    assert {result.status for result in report.cases} == {"not supported"}
    assert all(result.why for result in report.cases)
    assert report.worlds == 0
    assert not report.ok, "nothing ran, so nothing was proved"


def test_progress_is_told_case_by_case() -> None:
    told: list[tuple[int, int, str]] = []
    cases = sound(3)
    plan = Plan(cases, WorldSpec(2, stall=20.0))
    check(plan, run_world, lambda done, failed, now: told.append((done, failed, now)))
    assert told == [(n, 0, case.id) for n, case in enumerate(cases, start=1)]
