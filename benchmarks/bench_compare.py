"""Whether ``bench compare`` tells a change from noise: pairs of runs, the same and one slowed.

Each try measures three times with ``distdemo bench all-reduce``: twice the same, then with 20 %
more work: before its call every rank is busy for a fifth of the time that the call before it took.
(Not after it: the backend's own threads may then be at work for a peer that waits, and would get a
core only after a slice of the scheduler's, which is much more than a fifth.)
Over MPI, whose ranks poll: its times are the steadiest that this machine has. ``--backend gloo``
tries another; where medians of fresh worlds differ by half, as gloo's can on a virtual machine
whose cores fall asleep, an honest answer to a fifth is that it cannot be told.

The first two have to compare as unchanged in nine of ten tries: nothing is slower or faster, as a
whole or at any size. The slowed one has to be slower than the
one before it, as a whole or at a size, in eight of ten, at the default threshold.
Exit 1 if not. Takes five minutes.
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

    from distdemo.ops.contract import Buffers, Call
    from distdemo.ops.spec import OpSpec

TRIES = 10
MORE = 0.20  # work that the slowed op does in addition, as a share of its own time
UNCHANGED = 0.9  # of the tries of two runs of the same
CHANGED = 0.8  # of the tries with more work


class Slowed(AllReduce):
    """An all_reduce with more to do: every rank is busy for a while before its call."""

    def bind(
        self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, *, async_op: bool
    ) -> Call:
        """As much more as the last call took, and then the call."""
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
    """In the process of a command: what it calls all_reduce has more to do."""
    ops.REGISTRY[AllReduce.name] = Slowed()


def run(path: Path, more: list[str], before: Callable[[], None] | None = None) -> Path:
    """One measurement, into this file.

    Raises:
        RuntimeError: it failed.
    """
    words = ["bench", "all-reduce", "--output", str(path), "--quiet", *more]
    said, code = command(words, before)
    if code:
        raise RuntimeError(f"distdemo {' '.join(words)} ended with {code}: {said}")
    return path


def compared(old: Path, new: Path) -> dict[str, Any]:
    """What ``bench compare`` says."""
    return document(("bench", "compare", str(old), str(new)))


def outcomes(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Of each series as a whole, then of its sizes."""
    series = found["series"]
    return [
        *(each["overall"] for each in series),
        *(row["outcome"] for each in series for row in each["rows"]),
    ]


def attempt(folder: Path, more: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Three runs: the first against the second, and the second against a slowed one."""
    first, second, slow = (folder / f"{name}.json" for name in ("first", "second", "slowed"))
    run(first, more)
    run(second, more)
    run(slow, more, slow_down)
    return compared(first, second), compared(second, slow)


def summary(found: dict[str, Any]) -> str:
    """What was found of the whole, of how many sizes, and how much the machine changed at most."""
    whole, *sizes = outcomes(found)
    interval = "-".join(f"{edge:.3f}" for edge in whole["interval"] or ())
    counts = [
        f"{count} {change}"
        for change in ("slower", "faster", "cannot be told")
        if (count := sum(each["change"] == change for each in sizes))
    ]
    said = f"{whole['ratio']:.3f} ({interval}) {whole['change']}; sizes: "
    said += ", ".join(counts) or "no change"
    names = ("time_ratio", "latency_ratio")
    ratios = [each[name] for each in found["limits"] for name in names if each[name] is not None]
    if ratios:
        said += f"; limits: {min(ratios):.2f} to {max(ratios):.2f} of the time before"
    return said


def told(same: dict[str, Any], slowed: dict[str, Any]) -> tuple[bool, bool, str]:
    """Whether both verdicts are right, and what was said."""
    changed = any(each["change"] in ("slower", "faster") for each in outcomes(same))
    slower = any(each["change"] == "slower" for each in outcomes(slowed))
    return not changed, slower, f"same: {summary(same)}\n   slowed: {summary(slowed)}"


def tries(count: int, more: list[str], console: Console) -> tuple[int, int]:
    """How often two runs of the same compare as such, and how often the slowed one as slower."""
    unchanged = changed = 0
    for number in range(1, count + 1):
        with tempfile.TemporaryDirectory() as folder:
            quiet, seen, said = told(*attempt(Path(folder), more))
        console.print(f"{number}: {said}", highlight=False)
        unchanged, changed = unchanged + quiet, changed + seen
    return unchanged, changed


def main() -> int:
    """Try and try again, and print the table."""
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
        ("two runs of the same: no change, in no row", unchanged, UNCHANGED),
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
