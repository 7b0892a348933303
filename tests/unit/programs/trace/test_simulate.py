"""On paper: what is scaled is what would be counted, and times follow from α and β alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distdemo import ops
from distdemo.bench.fitting import Link
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.contending import CompareReport, Contender, ContestSpec, LinkSource
from distdemo.trace.count import count
from distdemo.trace.paper import EACH, plan
from distdemo.trace.scheduling import Counts
from distdemo.trace.simulate import NO_LINK, simulate

LINK = LinkSource(Link(5e-6, 1e-10), "given")


def spec(
    op: str, n: int, *elements: int, link: LinkSource | None = LINK, **how: Any
) -> ContestSpec:
    takes = ops.REGISTRY[op].takes
    settings: dict[str, Any] = {"reduce_op": "sum"} if "reduce_op" in takes else {}
    settings |= {"root": n - 1} if "root" in takes else {}
    sized = tuple(OpSpec(op, n, shape=(each,), **settings) for each in elements)
    return ContestSpec(sized, how.pop("names", ()), WorldSpec(n), link=link, **how)


def counted(each: Contender) -> Counts:
    assert each.counts is not None
    return each.counts


def rows(report: CompareReport) -> list[tuple[OpSpec, Contender]]:
    return [(arena.op, each) for arena in report.arenas for each in arena.contenders]


@pytest.mark.parametrize("op", algorithms.ops())
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_every_size_is_as_it_is_counted_alone(op: str, n: int) -> None:
    report = simulate(spec(op, n, 0, 3, 40, 4000, names=()))
    found = rows(report)
    assert len(found) == 4 * len(algorithms.of_op(op))
    for sized, each in found:
        assert each.counts == count(plan(sized, each.about.name, None), 4), each.about.name
        assert each.predicted == counted(each).seconds(LINK.link)
        assert each.timing is None
        assert each.handed is None
        assert each.shared is None
    assert report.simulated
    assert report.world is None
    assert report.ok


def test_formulas_stand_beside_the_counts() -> None:
    arena = simulate(spec("all_reduce", 4, 1 << 20, names=("ring", "naive"))).arenas[0]
    ring, naive = arena.contenders
    assert arena.traffic.payload_bytes == 4 << 20
    assert [each.name for each in ring.checks] == ["rounds", "sent", "busiest", "total"]
    assert all(each.same for each in (*ring.checks, *naive.checks))
    assert (counted(ring).total, counted(naive).total) == (6 * 4 << 20, 12 * 4 << 20)
    assert ring.misprints[0].formula == "2nB"
    assert dict(ring.about.formulas)["total"] == "2(n−1)B"


def test_without_a_link_no_time_is_predicted_and_it_is_said_how_to_get_one() -> None:
    report = simulate(spec("broadcast", 4, 8, link=None, notes=("Sizes were cut.",)))
    assert all(each.predicted is None for _, each in rows(report))
    assert report.crossovers == ()
    assert report.notes == ("Sizes were cut.", NO_LINK)
    assert simulate(spec("broadcast", 1, 8, link=None)).notes == ()


def test_the_fastest_changes_where_the_lines_meet() -> None:
    (found,) = simulate(spec("all_reduce", 4, 256)).crossovers
    # 2α + 2Bβ = 4α + 1.5Bβ
    assert (found.below, found.above) == ("doubling", "halving-doubling")
    assert found.size == pytest.approx(4 * 5e-6 / 1e-10)


def test_parts_cross_by_the_bytes_of_all_of_them() -> None:
    (found,) = simulate(spec("all_to_all", 8, 4)).crossovers
    # 3α + 12/8·Bβ = 7α + 7/8·Bβ
    assert (found.below, found.above) == ("bruck", "pairwise")
    assert found.size == pytest.approx(4 / 0.625 * 5e-6 / 1e-10)


def test_chunks_are_for_algorithms_that_leave_them_open() -> None:
    chain, tree = (
        simulate(spec("broadcast", 4, 64, names=("chain", "tree"), chunks=5)).arenas[0].contenders
    )
    assert (counted(chain).rounds, counted(tree).rounds) == (3 + 4, 2)


def test_many_ranks_are_counted_without_what_each_of_them_does() -> None:
    n = 100_000
    assert n > EACH
    arena = simulate(spec("all_reduce", n, 1 << 18, names=("binary-tree",))).arenas[0]
    (tree,) = arena.contenders
    assert counted(tree).sent == counted(tree).received == ()
    assert counted(tree).total == 2 * (n - 1) << 20
    assert counted(tree).busiest == 6 << 20


def test_an_algorithm_that_the_op_lacks_is_a_usage_error() -> None:
    with pytest.raises(UsageError) as caught:
        simulate(spec("broadcast", 4, 8, names=("ring",)))
    assert "ring" in caught.value.what
    assert "tree, flat, chain" in caught.value.why
    with pytest.raises(UsageError):
        simulate(replace(spec("all_reduce", 4, 8), ops=(OpSpec("barrier", 4, shape=()),)))
