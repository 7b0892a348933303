"""Algorithms and the backend's own call in one world: timed, verified, and what ends it early."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch.distributed as dist

from distdemo import ops
from distdemo.bench.fitting import Link
from distdemo.bench.old_records import Course
from distdemo.errors import Terminated, UsageError
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.compare import compare
from distdemo.trace.contending import CompareReport, Contender, ContestSpec, LinkSource

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

GIVEN = LinkSource(Link(1e-5, 1e-9), "given")


def spec(op: str, n: int, *elements: int, link: LinkSource | None = GIVEN, **how) -> ContestSpec:
    takes = ops.REGISTRY[op].takes
    settings: dict[str, Any] = {"reduce_op": "sum"} if "reduce_op" in takes else {}
    settings |= {"root": n - 1} if "root" in takes else {}
    settings |= how.pop("settings", {})
    sized = tuple(OpSpec(op, n, shape=(each,), **settings) for each in elements)
    world = WorldSpec(n, deadline=20.0, start_method="fork")
    return ContestSpec(sized, how.pop("names", ()), world, budget=0.01, link=link, **how)


def by_name(report: CompareReport, place: int = 0) -> dict[str, Contender]:
    return {each.about.name: each for each in report.arenas[place].contenders}


def altered(how: Callable[[int], None]) -> Callable[..., WorldReport]:
    """Starts worlds whose ranks are altered first."""

    def start(world: WorldSpec, target: Any, args: Any, *, hear: Any) -> WorldReport:
        def work(rank: Rank, *given: Any) -> Any:
            how(rank.rank)
            return target(rank, *given)

        return run_world(world, work, args, hear=hear)

    return start


def test_all_algorithms_and_the_backends_own_call_run_and_are_right() -> None:
    report = compare(spec("all_reduce", 3, 5, 70_000, link=None), run_world)
    assert report.ok, report.failure
    assert [arena.traffic.payload_bytes for arena in report.arenas] == [20, 280_000]
    for place, elements in enumerate((5, 70_000)):
        found = by_name(report, place)
        assert list(found) == ["all_reduce", *(a.name for a in algorithms.of_op("all_reduce"))]
        for name, each in found.items():
            assert each.timing is not None
            assert each.timing.runs >= 1
            assert each.timing.low <= each.timing.median <= each.timing.high
            assert (each.timing.wrong, each.timing.checked) == (0, 3 * elements), name
            assert each.own == (name == "all_reduce")
            if each.counts is not None:
                assert each.handed == each.counts.total
                assert each.predicted is not None
                assert each.shared is not None
    own = found["all_reduce"]
    assert (own.counts, own.handed, own.predicted) == (None, None, None)
    assert report.arenas[1].order
    assert report.link is not None
    assert report.link.together is not None
    assert report.world is not None
    assert not report.simulated


@pytest.mark.parametrize(
    "op", ["reduce_scatter", "all_gather", "broadcast", "reduce", "scatter", "gather", "all_to_all"]
)
def test_every_op_is_verified_wherever_its_result_is_due(op: str) -> None:
    report = compare(spec(op, 3, 4), run_world)
    assert report.ok, report.failure
    due = {"all_gather": 9, "all_to_all": 9, "gather": 3, "reduce": 1}.get(op, 3)
    for name, each in by_name(report).items():
        assert each.timing is not None
        assert (each.timing.wrong, each.timing.checked) == (0, 4 * due), name
    assert report.link == GIVEN


def test_a_world_of_one_has_no_link_and_sends_nothing() -> None:
    report = compare(spec("all_reduce", 1, 4, link=None, names=("ring",)), run_world)
    assert report.ok, report.failure
    assert report.link is None
    assert report.crossovers == ()
    ring = by_name(report)["ring"]
    assert (ring.handed, ring.predicted) == (0, None)
    assert ring.timing is not None


def test_what_the_backend_is_known_to_refuse_is_not_tried() -> None:
    asked = spec("all_reduce", 2, 4, names=("ring", "naive"), settings={"reduce_op": "premul_sum"})
    report = compare(asked, run_world)
    assert report.ok, report.failure
    own, *others = by_name(report).values()
    assert "NCCL" in own.refused
    assert own.timing is None
    assert [each.timing is not None and each.timing.checked for each in others] == [8, 8]


def corrupting(me: int) -> None:
    """Rank 1 finds the first element of gloo's own all_reduce changed."""
    call = dist.all_reduce

    def wrong(tensor: Any, *args: Any, **how: Any) -> Any:
        work = call(tensor, *args, **how)
        if me == 1:
            tensor[0] += 1
        return work

    dist.all_reduce = wrong


def test_a_wrong_element_is_counted_for_whom_it_is_wrong() -> None:
    report = compare(spec("all_reduce", 2, 1000, names=("ring",)), altered(corrupting))
    assert not report.ok
    assert report.failure is None
    wrong = {name: each.timing and each.timing.wrong for name, each in by_name(report).items()}
    assert wrong == {"all_reduce": 1, "ring": 0}


def dying(me: int) -> None:
    """Rank 1 dies in its first call with a tensor of 9 elements."""
    call = dist.all_reduce

    def last(tensor: Any, *args: Any, **how: Any) -> Any:
        if me == 1 and tensor.numel() == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(tensor, *args, **how)

    dist.all_reduce = last


def test_a_rank_that_dies_leaves_the_sizes_before() -> None:
    report = compare(spec("all_reduce", 2, 4, 9, 16, names=("ring",)), altered(dying))
    assert not report.ok
    assert [arena.op.shape for arena in report.arenas] == [(4,)]
    assert report.failure is not None
    assert report.failure.verdict is not None
    assert report.failure.verdict.ranks == (1,)
    assert "The world failed: 2 of 3 sizes are missing." in report.notes


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Terminated])
def test_a_signal_leaves_the_sizes_before(stop: type[BaseException]) -> None:
    seen: list[Course] = []

    def watch(course: Course) -> None:
        seen.append(course)
        if course.done:
            raise stop

    report = compare(
        spec("all_reduce", 2, 4, 9, names=("ring",), notes=("Cut.",)), run_world, watch
    )
    assert report.interrupted
    assert [arena.op.shape for arena in report.arenas] == [(4,)]
    assert (seen[0].now, seen[0].done) == ("16 B", 0.0)
    assert seen[-1].done == 0.5
    assert report.notes[0] == "Cut."
    assert report.notes[-1] == "The run was interrupted: 1 of 2 sizes are missing."


def test_an_algorithm_that_the_op_lacks_is_found_before_any_rank_starts() -> None:
    def never(*_: Any, **__: Any) -> WorldReport:
        raise AssertionError

    with pytest.raises(UsageError):
        compare(spec("broadcast", 2, 4, names=("ring",)), never)
