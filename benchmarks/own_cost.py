"""What ``bench`` itself costs: its loop, and the time until its default answer is there."""

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

LOOP = 2e-6  # seconds that an iteration of the loop may cost
FEW, MANY = 5_000, 25_000  # iterations, from whose difference an iteration's cost follows
WORLDS = 7
DEFAULT = 15.0  # seconds that the default command may take
WIDE = 0.10  # half an interval as a share of the median, beyond which the row has to be named


def loop() -> Iterator[Result]:
    """As the command itself says, and as it looks from outside."""
    words = ("bench", "all-reduce", "-e", "8", "--no-limits", "--iters", "60")
    runs = [document(words)["setups"][0]["harness"] for _ in range(WORLDS)]
    said = [each["inside_s"] + each["outside_s"] for each in runs]
    inside = statistics.median(each["inside_s"] for each in runs)
    yield _cost(
        "loop's own cost, as bench says", said, f"{in_words(inside)} of it in the reported time"
    )
    for ranks in (1, 2):
        yield _cost(f"loop's own cost, from outside, {_count(ranks)}", *_from_outside(ranks))


def _cost(name: str, costs: list[float], beside: str) -> Result:
    middle = statistics.median(costs)
    return Result(
        name,
        in_words(middle),
        f"{in_words(min(costs))} to {in_words(max(costs))} (all)",
        f"at most {1e6 * LOOP:g} µs",
        middle <= LOOP,
        beside,
    )


def _count(ranks: int) -> str:
    return f"{ranks} rank{'s' if ranks > 1 else ''}"


def _from_outside(ranks: int) -> tuple[list[float], str]:
    """What an op that does nothing costs an iteration, the common start included, in each world.

    Raises:
        RuntimeError: a world failed.
    """
    from distdemo.backends.starting import run_prepared
    from distdemo.launcher.records import WorldSpec

    costs, reported = [], []
    for _ in range(WORLDS):
        world = WorldSpec(ranks, backend="gloo", start_method="fork", deadline=60.0)
        report = run_prepared(world, nothing_timed)
        if not report.ok:
            raise RuntimeError(f"a world of {_count(ranks)} failed: {report.verdict}")
        costs.append(max(each for each, _ in report.values))
        reported.append(max(each for _, each in report.values))
    said = f"{in_words(statistics.median(reported))} of it in the reported time"
    return costs, f"{said}; {'with' if ranks > 1 else 'without'} a common start"


def nothing_timed(rank: Rank) -> tuple[float, float]:
    """On a rank: what an iteration of the real loop takes around nothing, and what it reports."""
    from distdemo.bench.timing import common_start, timed

    meet = common_start(rank).meet
    gc.freeze()  # the loop collects garbage first, which is not what is looked for
    spent, reported = [], 0.0
    for count in (FEW, FEW, MANY):  # the first one warms up
        began = time.perf_counter()
        reported = statistics.median(timed(rank, _nothing, count, meet).took)
        spent.append(time.perf_counter() - began)
    return (spent[2] - spent[1]) / (MANY - FEW), reported


def _nothing() -> None:
    pass


def default() -> Iterator[Result]:
    """``distdemo bench all-reduce`` from its start to its end, and what it says is not steady.

    Raises:
        RuntimeError: it failed.
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
    named = [row for row in wide if not row["steady"] and _marked(row, done.stdout)]
    good = took <= DEFAULT and len(named) == len(wide) and bool(rows)
    yield Result(
        "default bench all-reduce",
        f"{took:.1f} s",
        "",
        f"at most {DEFAULT:g} s; ±{WIDE:.0%}, or named",
        good,
        f"{len(rows)} sizes; {len(rows) - len(wide)} within ±{WIDE:.0%}, "
        f"{len(named)} of {len(wide)} others named",
    )


def spread(row: dict[str, Any]) -> float:
    """Half the interval as a share of the median; of one without an interval infinite."""
    if row["interval_s"] is None:
        return float("inf")
    middle = row["median_s"]
    return float(max(abs(end - middle) for end in row["interval_s"]) / middle)


def _marked(row: dict[str, Any], text: str) -> bool:
    """Whether the table marks the row as not steady: ``8 B │ 53.5 µs │ ±32%!``."""
    from distdemo.view.format import exact_size

    size = re.escape(exact_size(row["size_bytes"]))
    return bool(re.search(rf"^\W*{size} +[│|].*!", text, re.MULTILINE))
