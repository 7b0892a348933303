"""Schedules on real ranks: right results, and detection of wrong results."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from forked import in_a_child
from running import Numbered
from traces import spec_of

from distdemo import ops, schedules
from distdemo.backends import prepared
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.launcher.local import run_world
from distdemo.launcher.records import Returned, Verdict, WorldReport, WorldSpec
from distdemo.ops.buffers import expected, held_before, verify
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec
from distdemo.schedules import check_arithmetic
from distdemo.schedules.run import Runner
from distdemo.trace.rank import trace
from distdemo.trace.records import TraceReport
from distdemo.trace.report import make_report

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

pytestmark = pytest.mark.processes
REDUCE_OPS = ("sum", "max", "avg", "product")
Run = tuple[OpSpec, str]
"""Op, and the name of an algorithm."""


def world(n: int, **options: Any) -> WorldSpec:
    return WorldSpec(n, start_method="fork", deadline=90, lazy=False, **options)


# ------------------------------------------------------------------------------ results and counts


def runs_of(n: int, payloads: Sequence[int]) -> Iterator[Run]:
    """Yield every algorithm with these payloads; reduce ops and roots alternate."""
    for turn, algorithm in enumerate(schedules.REGISTRY):
        for index, elements in enumerate(payloads):
            reduce_op = REDUCE_OPS[(turn + index + n) % len(REDUCE_OPS)]
            spec = spec_of(algorithm.op, n, elements, reduce_op, (turn + index) % n)
            yield spec, algorithm.name


def run_each(rank: Rank, runs: Sequence[Run]) -> list[Any]:
    """Run each on the first ranks; return the numbers of wrong and checked elements. Collective."""
    results: list[Any] = []
    for spec, algorithm in runs:
        if rank.rank >= spec.group_size:
            results.append(None)
            continue
        op = ops.REGISTRY[spec.op]
        runner = Runner(rank.rank, schedules.schedule(spec, algorithm), spec, rank.device)
        pieces = held_before(op, rank.rank, spec)
        for place, piece in zip(runner.inputs(), pieces, strict=False):
            place.copy_(piece.reshape(-1))
        for _ in range(2 if spec.numel == 1 else 1):
            runner.reset()
            runner.run()
        check = verify(runner.result(), expected(op, rank.rank, spec))
        results.append((check.wrong, check.checked))
    return results


def assert_all_right(runs: Sequence[Run], done: WorldReport) -> None:
    assert done.ok, done.verdict
    for (spec, algorithm), *all_ranks in zip(runs, *done.values, strict=True):
        ranks = all_ranks[: spec.group_size]
        assert [wrong for wrong, _ in ranks] == [0] * len(ranks), (spec, algorithm)
        assert sum(checked for _, checked in ranks) or not spec.numel, spec


def test_every_algorithm_is_right() -> None:
    """One world of five, using its first n ranks; includes large messages and user data."""
    values = ((True, True), (True, False), (True, True))
    runs = [
        *runs_of(5, (1, 6)),
        *runs_of(4, (3,)),
        *runs_of(3, (0, 1000)),
        *runs_of(2, (3,)),
        *runs_of(1, (2,)),
        (spec_of("all_reduce", 2, 1 << 20), "doubling"),  # 4 MiB both ways at once
        (spec_of("all_reduce", 3, 1 << 18), "naive-ring"),
        (spec_of("all_gather", 3, 2, dtype="bool", values=values), "bruck"),
        (OpSpec("all_reduce", 3, shape=(2, 3), reduce_op="min", seed=7), "ring"),
        (OpSpec("broadcast", 3, shape=(), root=2), "chain"),
    ]
    assert_all_right(runs, run_world(world(5), run_each, (runs,)))


def test_every_accepted_dtype_and_reduce_op_works() -> None:
    """One algorithm packs and reduces, one copies."""
    runs = []
    for dtype in DTYPES:
        runs.append((spec_of("all_to_all", 3, 3, dtype=dtype), "bruck"))
        for reduction in REDUCTIONS:
            spec = spec_of("reduce_scatter", 3, 3, reduction, dtype=dtype)
            try:
                check_arithmetic(spec)
            except UsageError:
                continue
            runs.append((spec, "halving"))
    assert len(runs) > 80
    assert_all_right(runs, run_world(world(3), run_each, (runs,)))


@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py")
def test_every_algorithm_is_right_over_mpi() -> None:
    runs = [*runs_of(3, (7,)), (spec_of("all_reduce", 3, 1 << 18), "doubling")]

    def work() -> None:
        assert_all_right(runs, run_world(prepared(world(3, backend="mpi")), run_each, (runs,)))

    in_a_child(work)


# ------------------------------------------------------------------------------------- the report

RUNS = {
    "small": (spec_of("all_reduce", 4, 4), "ring"),
    "avg": (spec_of("reduce", 4, 6, "avg", root=2), "tree"),
    "wrong": (spec_of("all_reduce", 4, 4), "ring"),
}


def trace_each(rank: Rank) -> list[Any]:
    """Run one trace after the other; in the last one rank 1 adds nothing. Collective."""
    traces = []
    for number, (name, run) in enumerate(RUNS.items()):
        with pytest.MonkeyPatch.context() as patch:
            if name == "wrong" and rank.rank == 1:
                patch.setattr(torch, "add", lambda held, message, *, out: out.copy_(held))
            traces.append(trace(cast("Rank", Numbered(rank, number)), *run))
    return traces


@pytest.fixture(scope="module")
def worlds() -> dict[str, WorldReport]:
    """Return the outcome of each run; all run in one world."""
    done = run_world(world(4), trace_each)
    assert done.ok, done.verdict
    outcomes = [outcome for outcome in done.outcomes if isinstance(outcome, Returned)]
    return {
        name: replace(
            done,
            outcomes=tuple(replace(outcome, value=outcome.value[number]) for outcome in outcomes),
        )
        for number, name in enumerate(RUNS)
    }


def report_of(name: str, ended: WorldReport) -> TraceReport:
    spec, algorithm = RUNS[name]
    return make_report(spec, schedules.find(spec.op, algorithm), ended)


def test_the_report_has_the_state_after_every_round(worlds: dict[str, WorldReport]) -> None:
    report = report_of("small", worlds["small"])
    assert report.ok
    assert report.counts == report.by_formula
    states = list(report.states())
    numbers = [[[c.values[0] for c in held.values()] for held in state] for state in states]
    assert numbers[0] == [[10 * rank + index for index in range(4)] for rank in range(4)]
    assert numbers[-1] == [[60, 64, 68, 72]] * 4
    rank_2 = states[3][2]
    assert [cell.chunk for cell in rank_2.values() if cell.complete] == [3]
    assert (rank_2[3].ranks, rank_2[3].values) == ((0, 1, 2, 3), (72.0,))


def test_averages_are_divided(worlds: dict[str, WorldReport]) -> None:
    report = report_of("avg", worlds["avg"])
    *_, divided = report.states()
    assert divided[2][0].values == (15.0, 16.0, 17.0, 18.0, 19.0, 20.0)
    assert report.ok


def test_a_wrong_result_is_reported_by_rank(worlds: dict[str, WorldReport]) -> None:
    report = report_of("wrong", worlds["wrong"])
    assert not report.ok
    assert report.wrong_ranks == {0, 1, 2, 3}
    assert report.verifications[0].mismatches[0].got != 60.0


def test_the_report_of_a_failed_world_has_no_rounds(worlds: dict[str, WorldReport]) -> None:
    verdict = Verdict("Rank 1 died.", "It was killed.", "Look at its memory.", (1,))
    report = report_of("small", replace(worlds["small"], verdict=verdict))
    assert not report.ok
    assert (report.rounds, report.start, report.counts.rounds) == ((), (), 6)
