"""Check the accuracy and overhead of ``distdemo bench`` against their limits.

Compares it with a hand-written loop and Intel's MPI benchmarks, measures its empty loop and its
default command, and runs it on a GPU if there is one. Each result is a ratio or difference of
things measured alternately in one run; see the modules. Exit 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

import beside_imb
import beside_loop
import on_gpu
import own_cost
import within_world
from ratios import Result, add, table
from rich.console import Console

PARTS: dict[str, Callable[[], Iterator[Result]]] = {
    "harness": own_cost.loop,
    "default": own_cost.default,
    "same-worlds": within_world.measure,
    "loop": beside_loop.measure,
    "imb": beside_imb.measure,
    "gpu": on_gpu.measure,
}


def main() -> int:
    """Measure every part and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="only this part")
    options = parser.parse_args()
    console, rows, all_good = Console(width=140), table("distdemo bench"), True
    for part in options.only or PARTS:
        for result in PARTS[part]():
            console.print(f"{result.name}: {result.figure}", highlight=False)
            add(rows, result)
            all_good &= result.met is not False
    console.print(rows)
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main())
