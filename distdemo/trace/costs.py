"""Costs of algorithms on any number of ranks, by their formulas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distdemo.measure.fit import link_of_files
from distdemo.schedules.contract import Algorithm
from distdemo.schedules.count import by_formula, cost, crossovers, infos, predicted
from distdemo.schedules.schedule import Schedule
from distdemo.trace.records import AlgorithmCost, AlgorithmList


def costs_on(
    n: int, algorithms: Sequence[Algorithm], sizes: Sequence[int], files: Sequence[Path]
) -> AlgorithmList:
    """Return the costs of these algorithms on n ranks.

    Args:
        n: Number of ranks.
        algorithms: Algorithms, those of one op together.
        sizes: Sizes in bytes.
        files: Files of ``bench`` from which times are predicted; may be empty.

    Raises:
        UsageError: A file can't be read, or nothing in them can be fitted.
    """
    ops = dict.fromkeys(algorithm.op for algorithm in algorithms)
    links = {op: link_of_files(files, op) for op in ops} if files else {}
    costs = []
    for op in ops:
        for size in sorted(set(sizes)):
            for algorithm in algorithms:
                if algorithm.op == op:
                    counts = by_formula(Schedule.of(algorithm, n, 1), size)
                    seconds = predicted(counts, links[op]) if links else None
                    costs.append(AlgorithmCost(op, algorithm.name, size, counts, seconds))
    changes = {
        op: tuple(
            crossovers(
                [cost(op, algorithm.name, n) for algorithm in algorithms if algorithm.op == op],
                link.alpha_s,
                link.beta_s_per_byte,
            )
        )
        for op, link in links.items()
    }
    return AlgorithmList(infos(algorithms), n, tuple(costs), links, changes)
