"""Costs of algorithms on any number of ranks, by their formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from distdemo.schedules.contract import Algorithm
from distdemo.schedules.count import CostModel, by_formula, cost, crossovers, infos, predicted
from distdemo.schedules.schedule import Schedule
from distdemo.trace.records import AlgorithmCost, AlgorithmList


def costs_on(n: int, algorithms: Sequence[Algorithm], sizes: Sequence[int]) -> AlgorithmList:
    """Return the costs of these algorithms on n ranks.

    Args:
        n: Number of ranks.
        algorithms: Algorithms, those of one op together.
        sizes: Sizes in bytes.
    """
    costs = [
        AlgorithmCost(op, algorithm.name, size, by_formula(Schedule.of(algorithm, n, 1), size))
        for op, members in groupby(algorithms, attrgetter("op"))
        for same_op in [tuple(members)]
        for size in sorted(set(sizes))
        for algorithm in same_op
    ]
    return AlgorithmList(infos(algorithms), n, tuple(costs))


def with_times(record: AlgorithmList, links: Mapping[str, CostModel]) -> AlgorithmList:
    """Return the costs with predicted times.

    Args:
        record: Costs on a number of ranks.
        links: α and β for each op.
    """
    names: dict[str, list[str]] = {}
    for algorithm in record.algorithms:
        names.setdefault(algorithm.op, []).append(algorithm.name)
    changes = {}
    for op, link in links.items():
        lines = [cost(op, name, record.world_size or 0) for name in names[op]]
        changes[op] = tuple(crossovers(lines, link.alpha_s, link.beta_s_per_byte))
    costs = [replace(row, predicted_s=predicted(row.counts, links[row.op])) for row in record.costs]
    return replace(record, costs=tuple(costs), links=dict(links), crossovers=changes)
