"""Cost of the sanitizer: a program under ``distdemo run`` with it, without it, and with DETAIL.

The variants alternate, A B C A B C ..., each in a new world of two ranks. The programs make small
all_reduces over mpi and over gloo, also from C++ (functional collectives), and steps of DDP on a
model of 10 million parameters. Times are those of rank 0 in µs: the median of wall time, and the
mean of the CPU time of all its threads. Over mpi, which polls while it waits, CPU time would be
that of waiting. The extra time is the median of the differences per round. DETAIL is torch's own
check (``TORCH_DISTRIBUTED_DEBUG=DETAIL``). Exit 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

PATIENCE = 300  # seconds until a command is stopped
ROUNDS = 5
CALLS = 4000
STEPS = 20
WIDTH = 1024  # ten square layers of it have 10 million parameters
LIMITS = {  # of the extra time: µs per call, or a fraction of a step
    ("python-mpi", "wall"): 25.0,
    ("python-gloo", "CPU"): 20.0,
    ("functional-gloo", "CPU"): 30.0,
    ("ddp-gloo", "CPU"): 0.03,
}
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}

VARIANTS: Mapping[str, tuple[str, dict[str, str]]] = {
    "nothing": ("--no-sanitize", {}),
    "sanitizer": ("--sanitize=calls", {}),
    "DETAIL": ("--no-sanitize", DETAIL),
}


def program(what: str) -> None:
    """Time the program on each rank; rank 0 prints its times in µs."""
    import torch
    import torch.distributed as dist

    name, _, backend = what.partition("-")
    if backend == "mpi":
        importlib.import_module("distdemo.mpi")
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    make = {"python": small_call, "functional": functional_call, "ddp": step_of_ddp}[name]
    once, count = make(), STEPS if name == "ddp" else CALLS
    for _ in range(count // 10):
        once()
    times = []
    used = time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    used = time.process_time() - used
    if dist.get_rank() == 0:
        print(json.dumps({"wall": 1e6 * statistics.median(times), "CPU": 1e6 * used / count}))
    dist.barrier()
    dist.destroy_process_group()


def small_call() -> Callable[[], object]:
    """Return an all_reduce of 8 bytes."""
    import torch
    import torch.distributed as dist

    tensor = torch.ones(2)
    return lambda: dist.all_reduce(tensor)


def functional_call() -> Callable[[], object]:
    """Return a functional all_reduce of 8 bytes, which C++ issues, with its wait."""
    import torch
    import torch.distributed as dist

    functional: Any = importlib.import_module("torch.distributed._functional_collectives")
    tensor, group = torch.ones(2), dist.group.WORLD
    return lambda: functional.wait_tensor(functional.all_reduce(tensor, "sum", group))


def step_of_ddp() -> Callable[[], object]:
    """Return a step on a model of 10 million parameters."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(10)]
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(8, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()

    return step


def timed(what: str, variant: str) -> dict[str, float]:
    """Return the times of one world in µs by clock.

    Raises:
        RuntimeError: The program failed.
    """
    option, variables = VARIANTS[variant]
    backend = ["--backend", "mpi"] if what.endswith("mpi") else []
    line = [sys.executable, "-m", "distdemo", "run", __file__, "-n", "2", option, *backend]
    line += ["--capture", "--format", "json", "--", what]
    done = subprocess.run(
        line,
        capture_output=True,
        check=False,
        timeout=PATIENCE,
        env={**os.environ, **variables},
        text=True,
    )
    if done.returncode:
        raise RuntimeError(
            f"{what} with {variant} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    output = json.loads(done.stdout)["ranks"][0]["output"]
    times: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return times


def measure(what: str, variants: list[str], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Return the times of every round by variant."""
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in variants}
    for _ in range(rounds):
        for variant in variants:
            found[variant].append(timed(what, variant))
    return found


def main() -> int:
    """Measure all programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", help="run as a rank's program")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if options.what:
        program(options.what)
        return 0
    table = Table("program", "with", "clock", "µs", "more, µs", "range", "share", "asked", "met")
    good = True
    for what, variants in {
        "python-mpi": ["nothing", "sanitizer"],
        "python-gloo": ["nothing", "sanitizer", "DETAIL"],
        "functional-gloo": ["nothing", "sanitizer"],
        "ddp-gloo": ["nothing", "sanitizer"],  # DETAIL crashes DDP's constructor over gloo
    }.items():
        found = measure(what, variants, options.rounds)
        for clock in ["wall"] if what.endswith("mpi") else ["wall", "CPU"]:
            times = {variant: [each[clock] for each in found[variant]] for variant in variants}
            base = statistics.median(times["nothing"])
            for variant in variants:
                more = [a - b for a, b in zip(times[variant], times["nothing"], strict=True)]
                extra = statistics.median(more)
                limit = LIMITS.get((what, clock)) if variant == "sanitizer" else None
                asked, met = "", True
                if limit is not None:
                    asked = f"at most {limit:.0%}" if limit < 1 else f"at most {limit:g} µs"
                    met = extra <= (limit * base if limit < 1 else limit)
                spread = f"{min(more):.1f} to {max(more):.1f}"
                figures = (f"{statistics.median(times[variant]):.1f}", f"{extra:.1f}", spread)
                met_text = ("yes" if met else "NO") if asked else ""
                share = f"{extra / base:.1%}"
                table.add_row(what, variant, clock, *figures, share, asked, met_text)
                good &= met
    Console(width=120).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
