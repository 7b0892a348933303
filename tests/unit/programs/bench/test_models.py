"""The formulas, against algorithms that are carried out step by step."""

from __future__ import annotations

import math

import pytest

from distdemo import ops
from distdemo.bench.models import ALGORITHMS, algorithms, find

POWERS = (2, 4, 8, 64)
ANY = (2, 3, 4, 5, 6, 7, 8, 12, 13, 31, 33)


def test_every_op_that_sends_bytes_has_formulas():
    assert set(ALGORITHMS) | {"barrier"} == set(ops.REGISTRY)
    assert algorithms("barrier") == ()
    for ways in ALGORITHMS.values():
        names = [each.name for each in ways]
        assert len(names) == len(set(names))
        assert all(each.words and each.source for each in ways)


def tree(n: int) -> int:
    """Rounds until a message has reached all, each who has it passing it on."""
    reached, rounds = 1, 0
    while reached < n:
        reached, rounds = min(n, 2 * reached), rounds + 1
    return rounds


def gathered(n: int) -> tuple[int, float]:
    """Rounds and share of a binomial gather: what the root receives, one child after the other."""
    rounds, step, parts = 0, 1, 0
    while step < n:
        parts += min(step, n - step)
        rounds, step = rounds + 1, 2 * step
    return rounds, parts / n


def bruck(n: int) -> tuple[int, float]:
    """Rounds and share of Bruck's all-to-all: parts whose number has a bit set go on."""
    bits = [1 << bit for bit in range((n - 1).bit_length())]
    return len(bits), sum(sum(bool(part & bit) for part in range(n)) for bit in bits) / n


@pytest.mark.parametrize("n", ANY)
def test_they_count_what_stepping_through_counts(n):
    for op in ("broadcast", "reduce"):
        way = find(op, "tree")
        assert (way.rounds(n), way.share(n)) == (tree(n), tree(n))
    for op in ("gather", "scatter"):
        way = find(op, "tree")
        assert (way.rounds(n), way.share(n)) == pytest.approx(gathered(n))
    way = find("all_to_all", "bruck")
    assert (way.rounds(n), way.share(n)) == pytest.approx(bruck(n))
    ring = find("all_reduce", "ring")
    halves = [find(op, "ring") for op in ("reduce_scatter", "all_gather")]
    assert ring.rounds(n) == sum(each.rounds(n) for each in halves)
    assert ring.share(n) == pytest.approx(sum(each.share(n) for each in halves))


@pytest.mark.parametrize("n", POWERS)
def test_powers_of_two_cost_what_the_papers_say(n):
    lg, parts = math.log2(n), (n - 1) / n
    costs = {
        ("all_reduce", "doubling"): (lg, lg),
        ("all_reduce", "halving-doubling"): (2 * lg, 2 * parts),
        ("reduce_scatter", "halving"): (lg, parts),
        ("all_gather", "doubling"): (lg, parts),
        ("broadcast", "scatter-ring"): (lg + n - 1, 2 * parts),
        ("broadcast", "scatter-doubling"): (2 * lg, 2 * parts),
        ("reduce", "halving-gather"): (2 * lg, 2 * parts),
        ("all_to_all", "pairwise"): (n - 1, parts),
        ("all_to_all", "bruck"): (lg, lg / 2),
    }
    for (op, name), cost in costs.items():
        way = find(op, name)
        assert (way.rounds(n), way.share(n)) == pytest.approx(cost), (op, name)


@pytest.mark.parametrize("n", ANY)
def test_no_algorithm_beats_what_has_to_be_sent(n):
    # A rank has to receive all that it lacks, and news needs lg n rounds to reach everyone: the
    # lower bounds of Chan et al. 2007, section 3.
    least = {"broadcast": 1, "reduce": 1, "all_reduce": 2 * (n - 1) / n, "p2p": 1}
    for op, ways in ALGORITHMS.items():
        for way in ways:
            assert way.share(n) >= least.get(op, (n - 1) / n) - 1e-12, (op, way.name)
            assert way.rounds(n) >= (1 if op == "p2p" else tree(n)), (op, way.name)


@pytest.mark.parametrize("op", ALGORITHMS)
def test_a_million_ranks_are_no_trouble(op):
    for way in ALGORITHMS[op]:
        for n in (1_000_000, 1 << 20, 999_983):
            assert 0 < way.seconds(n, 1 << 20, 1e-6, 1e-9) < math.inf
