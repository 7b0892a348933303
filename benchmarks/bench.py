"""Check the accuracy and the cost of ``distdemo bench`` against their limits.

Its timed loop is compared with an empty one and with hand-written ones, its command with Intel's
MPI benchmarks, and with a copy on a GPU if there is one. See the modules.
"""

from __future__ import annotations

import sys

import beside_imb
import on_gpu
import own_cost
import rounds
import within_world

PARTS = {
    "harness": own_cost.loop,
    "same-worlds": within_world.measure,
    "imb": beside_imb.measure,
    "gpu": on_gpu.measure,
}

if __name__ == "__main__":
    sys.exit(rounds.main(__doc__, PARTS))
