"""Check that ``bench compare`` distinguishes a change from noise.

Each try runs ``distdemo bench all-reduce`` three times: twice unchanged, then with 20 % more work:
before its call every rank is busy for a fifth of the time of its previous call. (After the call
the backend's threads may still be working for a waiting peer, and would get a core only after a
time slice of the scheduler, which is much longer than a fifth.) The default backend is mpi: its
ranks poll, so its times are the steadiest. With ``--backend gloo``, on a virtual machine whose
cores go idle, medians of fresh worlds can differ by half; then a change of a fifth can't be
detected.

In nine of ten tries the first two runs must compare as unchanged, overall and at every size. In
eight of ten the slowed run must compare as slower, overall or at one size, at the default
threshold. Exit 1 if not. Takes five minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratios import Result, add, command, document, table
from rich.console import Console

from distdemo import ops
from distdemo.ops.all_reduce import AllReduce

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from distdemo.ops.contract import BoundCall, Buffers
    from distdemo.ops.spec import OpSpec

TRIES = 10
MORE = 0.20  # extra work of the slowed op, as a fraction of its time
UNCHANGED = 0.9  # fraction of the tries with two equal runs
CHANGED = 0.8  # fraction of the tries with more work


class Slowed(AllReduce):
    """An all_reduce with more work: every rank is busy for a while before its call."""

    def bind(
        self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, *, async_op: bool
    ) -> BoundCall:
        """Return a call that first stays busy for a fraction of its previous time."""
        call = super().bind(buffers, spec, group, async_op=async_op)
        last = 0.0

        def slowed() -> object:
            nonlocal last
            until = time.perf_counter() + MORE * last
            while time.perf_counter() < until:
                pass
            began = time.perf_counter()
            done = call()
            last = time.perf_counter() - began
            return done

        return slowed


def slow_down() -> None:
    """Replace all_reduce by its slowed version in the process of a command."""
    ops.REGISTRY[AllReduce.name] = Slowed()


def run(path: Path, more: list[str], before: Callable[[], None] | None = None) -> Path:
    """Write one measurement to this file.

    Raises:
        RuntimeError: The measurement failed.
    """
    words = ["bench", "all-reduce", "--output", str(path), "--quiet", *more]
    output, code = command(words, before)
    if code:
        raise RuntimeError(f"distdemo {' '.join(words)} ended with {code}: {output}")
    return path


def compared(old: Path, new: Path) -> dict[str, Any]:
    """Return the document of ``bench compare``."""
    return document(("bench", "compare", str(old), str(new)))


def outcomes(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the overall outcomes of all series, then those of their sizes."""
    series = found["series"]
    return [
        *(each["overall"] for each in series),
        *(row["outcome"] for each in series for row in each["rows"]),
    ]


def attempt(folder: Path, more: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make three runs; compare the first with the second, and the second with a slowed one."""
    first, second, slow = (folder / f"{name}.json" for name in ("first", "second", "slowed"))
    run(first, more)
    run(second, more)
    run(slow, more, slow_down)
    return compared(first, second), compared(second, slow)


def summary(found: dict[str, Any]) -> str:
    """Summarize the overall outcome, the sizes, and the change of the machine's limits."""
    whole, *sizes = outcomes(found)
    interval = "-".join(f"{edge:.3f}" for edge in whole["interval"] or ())
    counts = [
        f"{count} {change}"
        for change in ("slower", "faster", "undecided")
        if (count := sum(each["change"] == change for each in sizes))
    ]
    text = f"{whole['ratio']:.3f} ({interval}) {whole['change']}; sizes: "
    text += ", ".join(counts) or "no change"
    names = ("time_ratio", "latency_ratio")
    ratios = [each[name] for each in found["limits"] for name in names if each[name] is not None]
    if ratios:
        text += f"; limits: {min(ratios):.2f} to {max(ratios):.2f} of the time before"
    return text


def judge(same: dict[str, Any], slowed: dict[str, Any]) -> tuple[bool, bool, str]:
    """Return whether each verdict is right, and a summary."""
    changed = any(each["change"] in ("slower", "faster") for each in outcomes(same))
    slower = any(each["change"] == "slower" for each in outcomes(slowed))
    return not changed, slower, f"same: {summary(same)}\n   slowed: {summary(slowed)}"


def tries(count: int, more: list[str], console: Console) -> tuple[int, int]:
    """Count the tries with equal runs found unchanged, and with the slowed run found slower."""
    unchanged = changed = 0
    for number in range(1, count + 1):
        with tempfile.TemporaryDirectory() as folder:
            quiet, seen, text = judge(*attempt(Path(folder), more))
        console.print(f"{number}: {text}", highlight=False)
        unchanged, changed = unchanged + quiet, changed + seen
    return unchanged, changed


def main() -> int:
    """Run all tries and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=TRIES)
    parser.add_argument("--backend", default="mpi")
    parser.add_argument("--more", type=json.loads, default=[], help="options of bench, as JSON")
    options = parser.parse_args()
    console, rows = Console(width=140), table("distdemo bench compare")
    unchanged, changed = tries(
        options.tries, ["--backend", options.backend, *options.more], console
    )
    good = True
    for name, count, least in (
        ("two equal runs: no change in any row", unchanged, UNCHANGED),
        (f"{MORE:.0%} more work: slower", changed, CHANGED),
    ):
        asked = f"at least {least * options.tries:g} of {options.tries}"
        met = count >= least * options.tries
        add(rows, Result(name, f"{count} of {options.tries}", asked=asked, met=met))
        good = good and met
    console.print(rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
