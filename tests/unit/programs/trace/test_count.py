"""Counts are what playing gives, and what the formulas say."""

from __future__ import annotations

import pytest

from distdemo import ops
from distdemo.bench.fitting import Link
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.algorithms.plan import plan_of
from distdemo.trace.count import checks, count, misprints

ALL = pytest.mark.parametrize(
    "algorithm", algorithms.REGISTRY, ids=lambda each: f"{each.op}-{each.name}"
)
ITEM = 4


def payload_of(algorithm: Algorithm, n: int, elements: int) -> int:
    """The B that the op itself declares, in bytes."""
    return (
        ops.REGISTRY[algorithm.op].traffic(OpSpec(algorithm.op, n, shape=(elements,))).payload_bytes
    )


@ALL
def test_formulas_are_exact(algorithm: Algorithm) -> None:
    for n in (*range(1, 65), 1024):
        whole = algorithm.op in {"all_reduce", "reduce", "broadcast"}
        elements = 3 * algorithm.chunks(n) if whole else 3
        for root in {0, n // 3} if ops.REGISTRY[algorithm.op].root_is else {0}:
            plan = plan_of(algorithm, n, elements, root)
            found = checks(plan, count(plan, ITEM), payload_of(algorithm, n, elements))
            assert [each.name for each in found if not each.same] == [], n
            assert [each.name for each in found] == ["rounds", "sent", "busiest", "total"]


@ALL
def test_what_is_counted_in_one_go_is_what_the_written_out_steps_do(algorithm: Algorithm) -> None:
    for n in range(1, 18):
        for elements in sorted({0, 1, n - 1, n, n + 1, 1000}):
            plan = plan_of(algorithm, n, elements, n // 2 if algorithm.op != "all_reduce" else 0)
            counts = count(plan, 1)
            sent, received, messages, serial = [0] * n, [0] * n, 0, 0
            steps = list(plan.steps())
            for step in steps:
                for each in step.transfers:
                    sent[each.src] += each.elements
                    received[each.dst] += each.elements
                    messages += each.elements > 0
                serial += max((each.elements for each in step.transfers), default=0)
            assert (counts.sent, counts.received) == (tuple(sent), tuple(received)), (n, elements)
            assert (counts.messages, counts.serial) == (messages, serial)
            assert (counts.rounds, counts.total) == (len(steps), sum(sent))
            through = [a + b for a, b in zip(sent, received, strict=True)]
            assert counts.busiest == max(through) == through[counts.busiest_rank]


def test_the_table_of_the_three_schemes() -> None:
    """Four ranks and 4 MiB: what texts that compare them should print."""
    mega = 1 << 20
    found = {}
    for each in algorithms.of_op("all_reduce"):
        plan = plan_of(each, 4, mega)
        found[each.name] = count(plan, ITEM)
    naive, aggregator, ring = (found[name] for name in ("naive", "aggregator", "ring"))
    assert (naive.rounds, naive.sent_most, naive.total) == (3, 12 * mega, 48 * mega)
    assert (aggregator.rounds, aggregator.busiest, aggregator.total) == (6, 24 * mega, 24 * mega)
    assert (ring.rounds, ring.sent_most, ring.total) == (6, 6 * mega, 24 * mega)
    assert ring.sent_least == ring.sent_most
    assert aggregator.busiest_rank == 0


def test_other_formulas_in_print_are_named_where_they_differ() -> None:
    found = {
        each.name: misprints(each, 4, each.chunks(4), 100)
        for each in algorithms.of_op("all_reduce")
    }
    assert [(each.formula, int(each.value)) for each in found["naive"]] == [("(n−1)²B", 900)]
    assert [(each.formula, int(each.value)) for each in found["ring"]] == [("2nB", 800)]
    assert found["doubling"] == ()


def test_where_nothing_is_sent_no_other_formula_is_named() -> None:
    for each in algorithms.of_op("all_reduce"):
        assert misprints(each, 1, each.chunks(1), 100) == ()
        assert misprints(each, 4, each.chunks(4), 0) == ()


def test_the_ring_of_a_hundred_thousand() -> None:
    """Rounds are forgotten, not stored; unequal chunks are still counted rank by rank."""
    (ring,) = (each for each in algorithms.of_op("all_reduce") if each.name == "ring")
    n, elements = 100_000, 250_001
    counts = count(plan_of(ring, n, elements), ITEM)
    assert counts.total == 2 * (n - 1) * elements * ITEM
    assert counts.rounds == 2 * (n - 1)
    assert counts.sent_least < counts.sent_most


def test_the_model_pays_alpha_a_round_and_beta_for_its_largest_message() -> None:
    (ring,) = (each for each in algorithms.of_op("all_reduce") if each.name == "ring")
    counts = count(plan_of(ring, 4, 8), ITEM)
    assert counts.seconds(Link(10.0, 1.0)) == 6 * 10.0 + 6 * 2 * ITEM
    assert count(plan_of(ring, 4, 0), ITEM).seconds(Link(10.0, 1.0)) == 0.0
