"""Every case on every rank, as a program for mpiexec: one line of JSON a case and rank."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.distributed as dist

torch.set_num_threads(1)

import ranks.mpi.cases_p2p  # noqa: E402, F401 - adds cases
from ranks.mpi.cases import CASES  # noqa: E402

import distdemo.mpi  # noqa: E402, F401 - what is tested


def report(name: str, rank: int, problem: str, seconds: float) -> None:
    """One write a line, so that lines of several ranks do not mix."""
    line = json.dumps({"case": name, "rank": rank, "problem": problem, "seconds": seconds}) + "\n"
    os.write(1, line.encode())


def tried(wanted: list[str]) -> None:
    """Collective: these cases, in the order in which they are written."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in sorted(wanted, key=list(CASES).index):
        problem, began = "", time.monotonic()
        try:
            CASES[name](rank, size)
        except Exception:  # noqa: BLE001 - the report has it
            problem = traceback.format_exc()
        report(name, rank, problem, time.monotonic() - began)
        if problem:  # the ranks are in different places now
            os._exit(1)


if __name__ == "__main__":
    dist.init_process_group("mpi", timeout=timedelta(seconds=10))
    tried(sys.argv[1:] or list(CASES))
