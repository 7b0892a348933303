"""Cost of ranks that stay: a cell beside the call in it, and the start beside the import of torch.

The cell is ``dist.all_reduce(t)`` on 4 ranks, typed into the same world again and again; the call
is timed in a loop on these ranks. The start is the time until the first cell could run; it
alternates with an import of torch.distributed by a new Python.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from statistics import median

import rounds
from rounds import PYTHON, Result, alternate, compared, in_words, ratios, run

from distdemo.interactive.ranks import Ranks
from distdemo.interactive.records import Settings

ROUNDS = 7
CELLS = 30  # per round
ADDED_S = 10e-3  # of a cell beside the call itself, at most
START_RATIO = 1.2  # of the start to the import, at most
LOOP = """
import time
def timed():
    began = time.perf_counter()
    dist.all_reduce(t)
    return time.perf_counter() - began
times = sorted(timed() for _ in range(200))
"""


def imported() -> tuple[float, float]:
    """Return the seconds of an import of torch."""
    began = time.perf_counter()
    run((PYTHON, "-c", "import torch.distributed"))
    return time.perf_counter() - began, 0.0


def shell() -> tuple[float, float]:
    """Return the seconds of a start, and the median of a cell's, less those of its call."""
    began = time.perf_counter()
    with closing(Ranks(Settings(4), lambda *_: None)) as ranks:
        ranks.wait()
        start_s = time.perf_counter() - began
        ranks.run("<shell 1>", "t = torch.ones(2); dist.all_reduce(t)")
        cells = []
        for _ in range(CELLS):
            began = time.perf_counter()
            ranks.run("<shell 2>", "dist.all_reduce(t)")
            cells.append(time.perf_counter() - began)
        ranks.run("<shell 3>", LOOP)
        return start_s, median(cells) - ranks.pull("times")[0][100]


def measure(smoke: bool) -> Iterator[Result]:
    """Yield the added time of a cell, and the ratio of the starts."""
    times = alternate({"shell": shell, "import": imported}, 1 if smoke else ROUNDS)
    starts, more = zip(*times["shell"], strict=True)
    imports = [seconds for seconds, _ in times["import"]]
    yield compared("a cell − its call", more, most=ADDED_S, text=in_words)
    yield compared("start / import", ratios(starts, imports), most=START_RATIO)


if __name__ == "__main__":
    sys.exit(rounds.main(__doc__, {"shell": measure}))
