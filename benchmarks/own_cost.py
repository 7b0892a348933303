"""Overhead of ``bench``: its loop, and the time of its default command."""

from __future__ import annotations

import gc
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratios import PATIENCE, Result, document, in_words

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

LOOP = 2e-6  # allowed seconds per iteration of the loop
FEW, MANY = 5_000, 25_000  # iterations; the difference gives the cost of one
WORLDS = 7
DEFAULT = 15.0  # allowed seconds for the default command
WIDE = 0.10  # half-width of an interval, relative to the median, above which a row must be marked


def loop() -> Iterator[Result]:
    """Yield the cost as reported by the command and as measured from outside."""
    words = ("bench", "all-reduce", "-e", "8", "--no-limits", "--iters", "60")
    runs = [document(words)["setups"][0]["harness"] for _ in range(WORLDS)]
    reported = [each["inside_s"] + each["outside_s"] for each in runs]
    inside = statistics.median(each["inside_s"] for each in runs)
    yield _cost(
        "loop's own cost, as bench reports",
        reported,
        f"{in_words(inside)} of it in the reported time",
    )
    for ranks in (1, 2):
        yield _cost(f"loop's own cost, from outside, {_count(ranks)}", *_from_outside(ranks))


def _cost(name: str, costs: list[float], details: str) -> Result:
    middle = statistics.median(costs)
    return Result(
        name,
        in_words(middle),
        f"{in_words(min(costs))} to {in_words(max(costs))} (all)",
        f"at most {1e6 * LOOP:g} µs",
        middle <= LOOP,
        details,
    )


def _count(ranks: int) -> str:
    return f"{ranks} rank{'s' if ranks > 1 else ''}"


def _from_outside(ranks: int) -> tuple[list[float], str]:
    """Return the cost per iteration of an empty op, with the synchronized start, for each world.

    Raises:
        RuntimeError: A world failed.
    """
    from distdemo.backends import prepared
    from distdemo.launcher.local import run_world
    from distdemo.launcher.records import WorldSpec

    costs, reported = [], []
    for _ in range(WORLDS):
        world = WorldSpec(ranks, backend="gloo", start_method="fork", deadline=60.0)
        report = run_world(prepared(world), nothing_timed)
        if not report.ok:
            raise RuntimeError(f"a world of {_count(ranks)} failed: {report.verdict}")
        costs.append(max(each for each, _ in report.values))
        reported.append(max(each for _, each in report.values))
    inside = f"{in_words(statistics.median(reported))} of it in the reported time"
    return costs, f"{inside}; {'with' if ranks > 1 else 'without'} a synchronized start"


def nothing_timed(rank: Rank) -> tuple[float, float]:
    """Return the time of an empty iteration of the real loop on a rank, and its reported time."""
    from distdemo.measure.timing import common_start, timed

    align = common_start(rank).align
    gc.freeze()  # the loop starts with a garbage collection, which isn't measured here
    spent, reported = [], 0.0
    for count in (FEW, FEW, MANY):  # the first run is a warm-up
        began = time.perf_counter()
        reported = statistics.median(timed(rank, _nothing, count, align).took)
        spent.append(time.perf_counter() - began)
    return (spent[2] - spent[1]) / (MANY - FEW), reported


def _nothing() -> None:
    pass


def default() -> Iterator[Result]:
    """Time ``distdemo bench all-reduce`` and check that it marks unsteady rows.

    Raises:
        RuntimeError: The command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        words = [sys.executable, "-m", "distdemo", "bench", "all-reduce", "--output", str(path)]
        began = time.monotonic()
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE)
        took = time.monotonic() - began
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")
        rows = json.loads(path.read_text())["series"][0]["rows"]
    wide = [row for row in rows if spread(row) > WIDE]
    marked = [row for row in wide if not row["steady"] and _marked(row, done.stdout)]
    good = took <= DEFAULT and len(marked) == len(wide) and bool(rows)
    yield Result(
        "default bench all-reduce",
        f"{took:.1f} s",
        "",
        f"at most {DEFAULT:g} s; ±{WIDE:.0%}, or marked",
        good,
        f"{len(rows)} sizes; {len(rows) - len(wide)} within ±{WIDE:.0%}, "
        f"{len(marked)} of {len(wide)} others marked",
    )


def spread(row: dict[str, Any]) -> float:
    """Return half the interval relative to the median; infinite without an interval."""
    if row["interval_s"] is None:
        return float("inf")
    middle = row["median_s"]
    return float(max(abs(end - middle) for end in row["interval_s"]) / middle)


def _marked(row: dict[str, Any], text: str) -> bool:
    """Return True if the table marks the row as unsteady: ``8 B │ 53.5 µs │ ±32%!``."""
    from distdemo.view.format import exact_size

    size = re.escape(exact_size(row["size_bytes"]))
    return bool(re.search(rf"^\W*{size} +[│|].*!", text, re.MULTILINE))
