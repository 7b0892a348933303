"""Overhead of ``bench``: its loop, and the time of its default command."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rounds import PYTHON, Result, compared, in_words, run

from distdemo.bench.records import BenchReport, SizeRow
from distdemo.encoding import decode
from distdemo.view.format import plural

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

LOOP_S = 2e-6  # allowed per iteration of the loop
FEW, MANY = 5_000, 25_000  # iterations; the difference gives the cost of one
WORLDS = 7
DEFAULT_S = 15.0  # allowed for the default command
WIDE = 0.10  # half-width of an interval, relative to the median, above which a row must be marked


def loop(smoke: bool) -> Iterator[Result]:
    """Yield the cost of an iteration without an operation."""
    for ranks in (1, 2):
        seconds = _cost_s(ranks, 1 if smoke else WORLDS)
        name = f"loop's own cost, {plural(ranks, 'rank')}"
        yield compared(name, seconds, most=LOOP_S, text=in_words)


def _cost_s(ranks: int, worlds: int) -> list[float]:
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
        report = run_world(prepared(world), nothing_timed)
        if not report.ok:
            raise RuntimeError(f"a world of {plural(ranks, 'rank')} failed: {report.verdict}")
        costs.append(max(report.values))
    return costs


def nothing_timed(rank: Rank) -> float:
    """Return the time of an empty iteration of the real loop on a rank."""
    from distdemo.measure.timing import CommonStart, timed

    align = CommonStart(rank).align
    spent = []
    for count in (FEW, FEW, MANY):  # the first run is a warm-up
        began = time.perf_counter()
        timed(rank, lambda: None, count, align)
        spent.append(time.perf_counter() - began)
    return (spent[2] - spent[1]) / (MANY - FEW)


def default(smoke: bool) -> Iterator[Result]:
    """Time ``distdemo bench all-reduce`` and check that it marks unsteady rows."""
    short = ("--sizes", "8", "--iters", "1") if smoke else ()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        began = time.monotonic()
        command = (PYTHON, "-m", "distdemo", "bench", "all-reduce", "--output", str(path))
        shown = run((*command, *short))
        took = time.monotonic() - began
        rows = decode(BenchReport, json.loads(path.read_text())).rows
    wide = [row for row in rows if row.spread_share is None or row.spread_share > WIDE]
    marked = [row for row in wide if _is_marked(row, shown)]
    yield Result(
        "default bench all-reduce",
        f"{took:.1f} s",
        asked=f"at most {DEFAULT_S:g} s; ±{WIDE:.0%}, or marked",
        met=took <= DEFAULT_S and len(marked) == len(wide),
        details=f"{len(rows)} sizes; {len(rows) - len(wide)} within ±{WIDE:.0%}, "
        f"{len(marked)} of {len(wide)} others marked",
    )


def _is_marked(row: SizeRow, text: str) -> bool:
    """Return True if the table marks the row as unsteady: ``8 B │ 53.5 µs │ ±32%!``."""
    from distdemo.view.format import exact_size

    size = re.escape(exact_size(row.size_bytes))
    return not row.steady and bool(re.search(rf"^\W*{size} +[│|].*!", text, re.MULTILINE))
