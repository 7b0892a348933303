"""Shared helpers of the benchmarks of ``bench``: commands, ratios with intervals, a table.

Times are seconds.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from distdemo.measure.statistics import RatioEstimate, estimate_ratio, u_critical

PATIENCE = 300  # seconds until a benchmarked command is stopped
ERROR = 0.05  # probability that an interval misses the true ratio


@dataclass(frozen=True)
class Result:
    """A row of the table.

    Attributes:
        name: Name of the measurement.
        figure: Ratio, or other measured figure.
        between: Its 95 % confidence interval.
        asked: Limit as text, or empty.
        met: True if the limit is met; None without a limit or a measurement.
        details: Underlying times.
    """

    name: str
    figure: str
    between: str = ""
    asked: str = ""
    met: bool | None = None
    details: str = ""


def table(title: str) -> Table:
    """Return an empty table."""
    return Table("figure", "measured", "95 % between", "asked", "met", "details", title=title)


def add(rows: Table, result: Result) -> None:
    """Add a result to the table."""
    met = "" if result.met is None else "yes" if result.met else "NO"
    rows.add_row(result.name, result.figure, result.between, result.asked, met, result.details)


# --------------------------------------------------------------------------------------- commands


def command(words: Sequence[str], before: Callable[[], None] | None = None) -> tuple[str, int]:
    """Run a distdemo command line and return its output and exit code.

    It runs in a fork of this process, so torch is imported once for all commands.

    Args:
        words: Words of the command line, without ``distdemo``.
        before: Function that the new process calls first.

    Raises:
        RuntimeError: The command did not end in time.
    """
    import distdemo.cli.app  # noqa: F401 - once for all forks
    from distdemo.launcher.torch_import import load_torch

    load_torch()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out")
        arguments = (tuple(words), str(path), before)
        process = multiprocessing.get_context("fork").Process(target=_run_command, args=arguments)
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.terminate()  # also stops the ranks
            process.join(PATIENCE)
            raise RuntimeError(f"distdemo {' '.join(words)} did not end in {PATIENCE} s")
        return path.read_text(), process.exitcode


def _run_command(words: Sequence[str], path: str, before: Callable[[], None] | None) -> None:
    """Run the command with its output redirected to the file."""
    out = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    from distdemo.cli.main import run

    if before is not None:
        before()
    code = run(list(words))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def document(words: Sequence[str], before: Callable[[], None] | None = None) -> dict[str, Any]:
    """Run a command line with ``--format json`` and return its document.

    Raises:
        RuntimeError: The command failed.
    """
    output, code = command([*words, "--format", "json"], before)
    if code:
        raise RuntimeError(f"distdemo {' '.join(words)} ended with {code}: {output}")
    found: dict[str, Any] = json.loads(output)
    return found


def launches(
    found: dict[str, Any], middle: Callable[[Sequence[float]], float] = statistics.median
) -> list[float]:
    """Return the median, or other mean, of each launch in a measurement's first row."""
    return [middle(times) for times in found["series"][0]["rows"][0]["times_s"]]


# ----------------------------------------------------------------------------------------- ratios


def quotient(times: Sequence[float], others: Sequence[float]) -> RatioEstimate:
    """Return the ratio of `times` to `others`, medians of independent launches."""
    return estimate_ratio(others, times, ERROR)


def added(times: Sequence[float], others: Sequence[float]) -> RatioEstimate:
    """Return the difference of `times` and `others` in seconds, with an interval as `quotient`."""
    apart = sorted(one - other for one in times for other in others)
    cut = u_critical(len(others), len(times), ERROR)
    return RatioEstimate(statistics.median(apart), (apart[cut - 1], apart[-cut]) if cut else None)


def known(found: RatioEstimate, precision: float) -> bool:
    """Return True if the ratio's interval has this precision."""
    if found.interval is None:
        return False
    low, high = found.interval
    return max(high / found.ratio, found.ratio / low) <= 1 + precision


def between(found: RatioEstimate) -> str:
    """Return the interval as text."""
    return "" if found.interval is None else "{:.3f} to {:.3f}".format(*found.interval)


def inverse(found: RatioEstimate) -> RatioEstimate:
    """Return the ratio of bandwidths, given that of times."""
    ends = None if found.interval is None else (1 / found.interval[1], 1 / found.interval[0])
    return RatioEstimate(1 / found.ratio, ends)


def in_words(seconds: float) -> str:
    """Return a time with its unit."""
    return f"{1e6 * seconds:.2f} µs" if seconds < 1e-3 else f"{1e3 * seconds:.2f} ms"
