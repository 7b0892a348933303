"""Overhead of the timed loop of ``bench``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rounds import Result, compared, in_words

from distdemo.view.format import plural

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

LOOP_S = 2e-6  # allowed per iteration of the loop
FEW = 5_000  # iterations
SMOKE_FEW = 50  # ranks that share a busy processor take turns in each
MANY = 5  # times as many iterations: the difference gives the cost of one
WORLDS = 7


def loop(smoke: bool) -> Iterator[Result]:
    """Yield the cost of an iteration without an operation."""
    for ranks in (1, 2):
        seconds = _cost_s(ranks, *((1, SMOKE_FEW) if smoke else (WORLDS, FEW)))
        name = f"loop's own cost, {plural(ranks, 'rank')}"
        yield compared(name, seconds, most=LOOP_S, text=in_words)


def _cost_s(ranks: int, worlds: int, few: int) -> list[float]:
    """Return the cost per iteration of an empty op, with the common start, for each world.

    Raises:
        RuntimeError: A world failed.
    """
    from distdemo.backends import prepared
    from distdemo.launcher.local import run_world
    from distdemo.launcher.records import WorldSpec

    costs = []
    for _ in range(worlds):
        world = WorldSpec(ranks, backend="gloo", start_method="fork", deadline=60.0)
        report = run_world(prepared(world), nothing_timed, (few,))
        if not report.ok:
            raise RuntimeError(f"a world of {plural(ranks, 'rank')} failed: {report.verdict}")
        costs.append(max(report.values))
    return costs


def nothing_timed(rank: Rank, few: int) -> float:
    """Return the time of an empty iteration of the real loop on a rank."""
    from distdemo.measure.timing import CommonStart, timed

    align = CommonStart(rank).align
    spent = []
    for count in (few, few, MANY * few):  # the first run is a warm-up
        began = time.perf_counter()
        timed(rank, lambda: None, count, align)
        spent.append(time.perf_counter() - began)
    return (spent[2] - spent[1]) / ((MANY - 1) * few)
