"""What the benchmarks of ``bench`` have in common: commands, ratios with an interval, a table.

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

from distdemo.bench.compare.compare import RatioEstimate, critical, shift

PATIENCE = 300  # seconds until a benchmarked command is given up
ERROR = 0.05  # probability that an interval misses its ratio


@dataclass(frozen=True)
class Result:
    """A row of the table.

    Attributes:
        name: what was measured.
        figure: the ratio, or whatever is asked for.
        between: where it lies with 95 %.
        asked: in words; empty: nothing is.
        met: None: nothing is asked, or there is nothing to measure it on.
        beside: the times themselves.
    """

    name: str
    figure: str
    between: str = ""
    asked: str = ""
    met: bool | None = None
    beside: str = ""


def table(title: str) -> Table:
    """One without rows."""
    return Table("figure", "measured", "95 % between", "asked", "met", "beside", title=title)


def add(rows: Table, result: Result) -> None:
    """Put it into the table."""
    met = "" if result.met is None else "yes" if result.met else "NO"
    rows.add_row(result.name, result.figure, result.between, result.asked, met, result.beside)


# --------------------------------------------------------------------------------------- commands


def command(words: Sequence[str], before: Callable[[], None] | None = None) -> tuple[str, int]:
    """What a command line of distdemo prints, and its exit code.

    It is carried out by a fork of this process, so that torch is imported once for all of them.

    Args:
        words: without ``distdemo``.
        before: what the new process does first.

    Raises:
        RuntimeError: it did not end in time.
    """
    import distdemo.cli.app  # noqa: F401 - once for all forks
    from distdemo.launcher.torch_import import load_torch

    load_torch()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out")
        arguments = (tuple(words), str(path), before)
        process = multiprocessing.get_context("fork").Process(target=_be, args=arguments)
        process.start()
        process.join(PATIENCE)
        if process.exitcode is None:
            process.terminate()  # which takes the ranks along
            process.join(PATIENCE)
            raise RuntimeError(f"distdemo {' '.join(words)} did not end in {PATIENCE} s")
        return path.read_text(), process.exitcode


def _be(words: Sequence[str], path: str, before: Callable[[], None] | None) -> None:
    """Be the command: its output goes to the file."""
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
    """The JSON document that a command line prints with ``--format json``.

    Raises:
        RuntimeError: it failed.
    """
    said, code = command([*words, "--format", "json"], before)
    if code:
        raise RuntimeError(f"distdemo {' '.join(words)} ended with {code}: {said}")
    found: dict[str, Any] = json.loads(said)
    return found


def launches(
    found: dict[str, Any], middle: Callable[[Sequence[float]], float] = statistics.median
) -> list[float]:
    """The middle of each launch's times, of a measurement's first row."""
    return [middle(times) for times in found["series"][0]["rows"][0]["times_s"]]


# ----------------------------------------------------------------------------------------- ratios


def quotient(times: Sequence[float], others: Sequence[float]) -> RatioEstimate:
    """How many times as long as the others these take, by the medians of independent launches."""
    return shift(others, times, ERROR)


def added(times: Sequence[float], others: Sequence[float]) -> RatioEstimate:
    """How much longer these take than the others, in seconds; as ``quotient`` otherwise."""
    apart = sorted(one - other for one in times for other in others)
    cut = critical(len(others), len(times), ERROR)
    return RatioEstimate(statistics.median(apart), (apart[cut - 1], apart[-cut]) if cut else None)


def known(found: RatioEstimate, precision: float) -> bool:
    """Whether the ratio's interval is as narrow as that."""
    if found.interval is None:
        return False
    low, high = found.interval
    return max(high / found.ratio, found.ratio / low) <= 1 + precision


def between(found: RatioEstimate) -> str:
    """The interval in words."""
    return "" if found.interval is None else "{:.3f} to {:.3f}".format(*found.interval)


def inverse(found: RatioEstimate) -> RatioEstimate:
    """The ratio of bandwidths from that of times."""
    ends = None if found.interval is None else (1 / found.interval[1], 1 / found.interval[0])
    return RatioEstimate(1 / found.ratio, ends)


def in_words(seconds: float) -> str:
    """A time with its unit."""
    return f"{1e6 * seconds:.2f} µs" if seconds < 1e-3 else f"{1e3 * seconds:.2f} ms"
