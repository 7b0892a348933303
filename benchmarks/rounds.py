"""Measure things alternately, compare them per round, and print ratios with their limits.

Changes in the machine's speed affect all sides of a round equally. So every figure is the median of
the rounds' ratios or differences, shown with its 95 % interval (with fewer than six rounds, with
the smallest and the largest). Times are seconds.

Commands may write bytecode, as an installer does: without it, distdemo would be compiled each time.

Every benchmark is a set of parts, functions that yield results. ``--only PART`` runs one of them.
``--smoke`` runs all for a few seconds, to see that they work; then no limit counts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from distdemo.bench.records import BenchReport
from distdemo.encoding import decode
from distdemo.measure.statistics import interval

T = TypeVar("T")
PYTHON = sys.executable
PATIENCE_S = 300  # until a benchmarked command is stopped
WIDTH = 140  # of the table
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@dataclass(frozen=True)
class Result:
    """A row of the table.

    Attributes:
        name: Name of the measurement.
        figure: Ratio, or other measured figure.
        between: Its interval.
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


Part = Callable[[bool], Iterator[Result]]
"""Function that yields results; its argument is True for a smoke run."""


def main(description: str | None, parts: Mapping[str, Part]) -> int:
    """Run the parts, print their results, and return 1 if a limit is missed, else 0."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", choices=parts, action="append", help="only this part")
    parser.add_argument("--smoke", action="store_true", help="a few seconds, without limits")
    options = parser.parse_args()
    console = Console(width=WIDTH)
    table = Table("figure", "measured", "between", "asked", "met", "details")
    missed = 0
    for part in options.only or parts:
        for result in parts[part](options.smoke):
            console.print(f"{result.name}: {result.figure}", highlight=False)
            met = "" if result.met is None else "yes" if result.met else "NO"
            texts = (result.between, result.asked, met, result.details)
            table.add_row(result.name, result.figure, *texts)
            missed += result.met is False
    console.print(table)
    return int(missed > 0 and not options.smoke)


def alternate(sides: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Run all sides in every round and return their results; the order rotates."""
    results: dict[str, list[T]] = {name: [] for name in sides}
    names = list(sides)
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(sides[name]())
    return results


def ratios(times: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratio of each round."""
    return [time / other for time, other in zip(times, others, strict=True)]


def compared(
    name: str,
    figures: Sequence[float],
    *,
    most: float | None = None,
    least: float | None = None,
    text: Callable[[float], str] = "{:.2f} ×".format,
    details: str = "",
) -> Result:
    """Return the row of a figure that was measured in several rounds.

    Args:
        name: Name of the figure.
        figures: Ratio, difference or time of each round.
        most: Largest median allowed.
        least: Smallest median allowed.
        text: Function that formats a figure.
        details: Underlying times.
    """
    middle = median(figures)
    low, high = interval(figures) or (min(figures), max(figures))
    limits = [f"at most {text(most)}"] if most is not None else []
    limits += [f"at least {text(least)}"] if least is not None else []
    met = (most is None or middle <= most) and (least is None or middle >= least)
    between = f"{text(low)} to {text(high)}"
    return Result(name, text(middle), between, ", ".join(limits), met if limits else None, details)


def in_words(seconds: float) -> str:
    """Return a time with its unit."""
    return f"{1e6 * seconds:.2f} µs" if abs(seconds) < 1e-3 else f"{1e3 * seconds:.2f} ms"


# --------------------------------------------------------------------------------------- commands


def run(words: Sequence[str], status: int = 0, **options: Any) -> str:
    """Run a command in a new process and return its output.

    Args:
        words: Words of the command line.
        status: Exit code that it must end with.
        options: More arguments of ``subprocess.run``.

    Raises:
        RuntimeError: It ended with a different exit code.
    """
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, **options
    )
    if done.returncode != status:
        output = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {output}")
    return str(done.stdout)


def document(words: Sequence[str], before: Callable[[], None] | None = None) -> dict[str, Any]:
    """Run a distdemo command line with ``--format json`` and return its document.

    It runs in a fork of this process, so torch is imported once for all commands.

    Args:
        words: Words of the command line, without ``distdemo``.
        before: Function that the new process calls first.

    Raises:
        RuntimeError: The command failed, or did not end in time.
    """
    import distdemo.cli.app  # noqa: F401 - once for all forks
    from distdemo.launcher.torch_import import load_torch

    load_torch()
    line = [*words, "--format", "json"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out")
        process = multiprocessing.get_context("fork").Process(
            target=_run_command, args=(line, str(path), before)
        )
        process.start()
        process.join(PATIENCE_S)
        if process.exitcode is None:
            process.terminate()  # also stops the ranks
            process.join()
        output = path.read_text()
    if process.exitcode:
        raise RuntimeError(f"distdemo {' '.join(line)} ended with {process.exitcode}: {output}")
    fields: dict[str, Any] = json.loads(output)
    return fields


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


def bench(*words: str, before: Callable[[], None] | None = None) -> BenchReport:
    """Run ``distdemo bench all-reduce`` with these options and return its report."""
    return decode(BenchReport, document(("bench", "all-reduce", *words), before))
