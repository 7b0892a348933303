"""Check that ``bench compare`` distinguishes a change from noise.

Each try runs ``distdemo bench all-reduce`` three times: twice unchanged, then with 20 % more work:
before its call every rank is busy for a fifth of the time of its previous call. (After the call
the backend's threads may still be working for a waiting peer, and would get a core only after a
time slice of the scheduler, which is much longer than a fifth.) The backend is mpi: its ranks poll,
so its times are the steadiest. With gloo, on a virtual machine whose cores go idle, medians of
fresh worlds can differ by half; then a change of a fifth can't be detected.

In nine of ten tries the first two runs must compare as unchanged, overall and at every size. In
eight of ten the slowed run must compare as slower, overall or at one size, at the default
threshold. Takes five minutes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import rounds
from rounds import Result, document

from distdemo import ops
from distdemo.bench.records_files import Change, CompareReport
from distdemo.encoding import decode, dumps
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
        last_s = 0.0

        def slowed() -> object:
            nonlocal last_s
            until = time.perf_counter() + MORE * last_s
            while time.perf_counter() < until:
                pass
            began = time.perf_counter()
            done = call()
            last_s = time.perf_counter() - began
            return done

        return slowed


def slow_down() -> None:
    """Replace all_reduce by its slowed version in the process of a command."""
    ops.REGISTRY[AllReduce.name] = Slowed()


def changes(old: Path, new: Path) -> set[Change]:
    """Return the changes in a comparison, of all sizes together and at every size."""
    report = decode(CompareReport, document(("bench", "compare", str(old), str(new))))
    return {row.change for row in report.rows}


def attempt(options: tuple[str, ...]) -> tuple[bool, bool]:
    """Return True if equal runs are unchanged, and True if the slowed run is slower."""
    with tempfile.TemporaryDirectory() as folder:

        def measured(name: str, before: Callable[[], None] | None = None) -> Path:
            path = Path(folder, f"{name}.json")
            path.write_text(dumps(document(("bench", "all-reduce", *options), before)))
            return path

        first, second = measured("first"), measured("second")
        slow = measured("slowed", slow_down)
        equal = not {Change.SLOWER, Change.FASTER} & changes(first, second)
        return equal, Change.SLOWER in changes(second, slow)


def measure(smoke: bool) -> Iterator[Result]:
    """Yield how many tries were judged rightly."""
    options = ("--sizes", "8", "--iters", "1") if smoke else ()
    tries = [attempt(("--backend", "mpi", *options)) for _ in range(1 if smoke else TRIES)]
    for name, count, least in (
        ("two equal runs: no change in any row", sum(equal for equal, _ in tries), UNCHANGED),
        (f"{MORE:.0%} more work: slower", sum(slower for _, slower in tries), CHANGED),
    ):
        asked = f"at least {least * len(tries):g} of {len(tries)}"
        met = count >= least * len(tries)
        yield Result(name, f"{count} of {len(tries)}", asked=asked, met=met)


if __name__ == "__main__":
    sys.exit(rounds.main(__doc__, {"compare": measure}))
