"""Cost of ranks that stay: a cell beside the call in it, and the start beside the import of torch.

The cell is ``dist.all_reduce(t)`` on 4 ranks, typed into the same world again and again; the call
is timed in a loop on these ranks, all in ms. The start is the time until the first cell could run;
it alternates with an import of torch.distributed by a new Python. Exit 1 if a limit is missed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from contextlib import closing

from distdemo.interactive.ranks import Ranks
from distdemo.interactive.records import Cell, Settings

ROUNDS = 7
CELLS = 200
MORE_MS = 10.0  # of a cell, at most, beside the call itself
START_RATIO = 1.2  # of the start to the import, at most
LOOP = """
import time
def timed():
    began = time.perf_counter()
    dist.all_reduce(t)
    return 1e3 * (time.perf_counter() - began)
times = sorted(timed() for _ in range(200))
"""


def main() -> int:
    """Measure and print the figures."""
    starts, imports, cells, calls = [], [], [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch.distributed"], check=True)
        imports.append(time.perf_counter() - began)
        began = time.perf_counter()
        with closing(Ranks(Settings(4), lambda *_: None)) as ranks:
            ranks.wait()
            starts.append(time.perf_counter() - began)
            ranks.run(Cell("<shell 1>", "t = torch.ones(2); dist.all_reduce(t)"))
            for _ in range(CELLS // ROUNDS):
                began = time.perf_counter()
                ranks.run(Cell("<shell 2>", "dist.all_reduce(t)"))
                cells.append(1e3 * (time.perf_counter() - began))
            ranks.run(Cell("<shell 3>", LOOP))
            calls.append(ranks.pull("times")[0][100])
    cell, call = statistics.median(cells), statistics.median(calls)
    ratio = statistics.median(a / b for a, b in zip(starts, imports, strict=True))
    print(f"cell {cell:.2f} ms, call {call:.2f} ms: {cell - call:.2f} ms more (limit {MORE_MS:g})")
    print(f"start {ratio:.2f} x the import (limit {START_RATIO:g})")
    return 0 if cell - call <= MORE_MS and ratio <= START_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
