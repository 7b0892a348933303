"""Cost of the sanitizer: a program under ``distdemo run`` with it, without it, and with DETAIL.

The variants alternate, A B C A B C ..., each in a new world of two ranks. The programs make small
all_reduces over mpi and over gloo, and steps of DDP. Times are medians of rank 0 in µs; the extra
time is the median of the differences per round. DETAIL is torch's own check
(``TORCH_DISTRIBUTED_DEBUG=DETAIL``). Exit 1 if a limit is missed.
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

from rich.console import Console
from rich.table import Table

PATIENCE = 300  # seconds until a command is stopped
ROUNDS = 5
CALLS = 4000
STEPS = 300
EACH_US = 25.0  # extra µs allowed per call over mpi
STEP_SHARE = 0.03  # extra time allowed per step of DDP, as a fraction
DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}

VARIANTS: Mapping[str, tuple[str, dict[str, str]]] = {
    "nothing": ("--no-sanitize", {}),
    "sanitizer": ("--sanitize=calls", {}),
    "DETAIL": ("--no-sanitize", DETAIL),
}


def program(what: str) -> None:
    """Time the program on each rank; rank 0 prints the median in µs."""
    import torch
    import torch.distributed as dist

    backend = what.partition("-")[2]
    if backend == "mpi":
        importlib.import_module("distdemo.mpi")
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    once, count = (step_of_ddp(), STEPS) if what.startswith("ddp") else (small_call(), CALLS)
    for _ in range(count // 10):
        once()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    if dist.get_rank() == 0:
        print(json.dumps(1e6 * statistics.median(times)))
    dist.barrier()
    dist.destroy_process_group()


def small_call() -> Callable[[], object]:
    """Return an all_reduce of 8 bytes."""
    import torch
    import torch.distributed as dist

    tensor = torch.ones(2)
    return lambda: dist.all_reduce(tensor)


def step_of_ddp() -> Callable[[], object]:
    """Return a step on a model of the size of ``distdemo train``'s."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    layers = (nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    model = DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(64, 64)

    def step() -> None:
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()

    return step


def timed(what: str, variant: str) -> float:
    """Return the median of one world in µs.

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
    return float(output.strip().splitlines()[-1])


def measure(what: str, variants: list[str], rounds: int) -> dict[str, list[float]]:
    """Return the medians of every round by variant."""
    found: dict[str, list[float]] = {variant: [] for variant in variants}
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
    table = Table("program", "with", "µs", "more, µs", "range", "share", "asked", "met")
    good = True
    for what, variants in {
        "calls-mpi": ["nothing", "sanitizer"],
        "calls-gloo": ["nothing", "sanitizer", "DETAIL"],
        "ddp-gloo": ["nothing", "sanitizer"],  # DETAIL crashes DDP's constructor over gloo
    }.items():
        found = measure(what, variants, options.rounds)
        for variant in variants:
            more = [a - b for a, b in zip(found[variant], found["nothing"], strict=True)]
            extra, base = statistics.median(more), statistics.median(found["nothing"])
            asked, met = "", True
            if variant == "sanitizer" and what == "calls-mpi":
                asked, met = f"at most {EACH_US:g} µs", extra <= EACH_US
            elif variant == "sanitizer" and what == "ddp-gloo":
                asked, met = f"at most {STEP_SHARE:.0%}", extra <= STEP_SHARE * base
            spread = f"{min(more):.1f} to {max(more):.1f}"
            figures = (f"{statistics.median(found[variant]):.1f}", f"{extra:.1f}", spread)
            met_text = ("yes" if met else "NO") if asked else ""
            table.add_row(what, variant, *figures, f"{extra / base:.1%}", asked, met_text)
            good &= met
    Console(width=120).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
