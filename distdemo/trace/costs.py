"""Costs of algorithms on any number of ranks, by their formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

from distdemo.schedules.contract import Algorithm
from distdemo.schedules.count import CostModel, by_formula, costs, crossovers, infos
from distdemo.schedules.schedule import Schedule
from distdemo.trace.records import AlgorithmCost, AlgorithmList


def costs_on(n: int, algorithms: Sequence[Algorithm], sizes: Sequence[int]) -> AlgorithmList:
    """Return the costs of these algorithms on n ranks.

    Args:
        n: Number of ranks.
        algorithms: Algorithms, those of one op together.
        sizes: Sizes in bytes.
    """
    rows = [
        AlgorithmCost(op, algorithm.name, size, by_formula(Schedule.of(algorithm, n, 1), size))
        for op, members in groupby(algorithms, attrgetter("op"))
        for same_op in [tuple(members)]
        for size in sorted(set(sizes))
        for algorithm in same_op
    ]
    return AlgorithmList(infos(algorithms), n, tuple(rows))


def with_times(record: AlgorithmList, links: Mapping[str, CostModel]) -> AlgorithmList:
    """Return the costs with predicted times.

    Args:
        record: Costs on a number of ranks.
        links: α and β for each op.
    """
    changes = {}
    for op, link in links.items():
        lines = costs(op, record.world_size or 0)
        changes[op] = tuple(crossovers(lines, link.alpha_s, link.beta_s_per_byte))
    timed = []
    for row in record.costs:
        link = links[row.op]
        predicted_s = row.counts.alpha_rounds * link.alpha_s
        predicted_s += row.counts.beta_bytes * link.beta_s_per_byte
        timed.append(replace(row, predicted_s=predicted_s))
    return replace(record, costs=tuple(timed), links=dict(links), crossovers=changes)
