"""Cost of the sanitizer: a program under ``distdemo run`` with it, without it, and with DETAIL.

The variants alternate, each in a new world of two ranks. The programs make small all_reduces over
mpi and over gloo, also from C++ (functional collectives), and steps of DDP on a model of 10 million
parameters. Times are those of rank 0: the median of wall time, and the mean of the CPU time of all
its threads. Over mpi, which polls while it waits, CPU time would be that of waiting. DETAIL is
torch's own check (``TORCH_DISTRIBUTED_DEBUG=DETAIL``).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import rounds
from rounds import PYTHON, Result, alternate, compared, in_words, run

ROUNDS = 5
CALLS = 4000
STEPS = 100  # from the first one: parameters are compared in the first 16
WIDTH = 1024  # ten square layers of it have 10 million parameters
LIMITS = {("python-mpi", "wall"): 25e-6, ("python-gloo", "CPU"): 20e-6} | {
    ("functional-gloo", "CPU"): 30e-6
}
"""Extra seconds per call that are allowed."""
DDP_SHARE = 0.01  # allowed extra CPU time of a step of DDP
VARIANTS: dict[str, tuple[str, dict[str, str]]] = {
    "nothing": ("--no-sanitize", {}),
    "sanitizer": ("--sanitize=calls", {}),
    "DETAIL": ("--no-sanitize", {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
}
PROGRAMS = {
    "python-mpi": ("nothing", "sanitizer"),
    "python-gloo": ("nothing", "sanitizer", "DETAIL"),
    "functional-gloo": ("nothing", "sanitizer"),
    "ddp-gloo": ("nothing", "sanitizer"),  # DETAIL crashes DDP's constructor over gloo
}

# ------------------------------------------------------------------------------------ the programs


def program(name: str, count: int) -> None:
    """Time the program on each rank; rank 0 prints its times."""
    import torch
    import torch.distributed as dist

    kind, _, backend = name.partition("-")
    if backend == "mpi":
        importlib.import_module("distdemo.mpi")
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    once = {"python": small_call, "functional": functional_call, "ddp": step_of_ddp}[kind]()
    for _ in range(0 if kind == "ddp" else count // 10):
        once()
    times = []
    cpu_began = time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    cpu_s = (time.process_time() - cpu_began) / count
    if dist.get_rank() == 0:
        print(json.dumps({"wall": median(times), "CPU": cpu_s}))
    dist.barrier()
    dist.destroy_process_group()


def small_call() -> Callable[[], object]:
    """Return an all_reduce of 8 bytes."""
    import torch
    import torch.distributed as dist

    return partial(dist.all_reduce, torch.ones(2))


def functional_call() -> Callable[[], object]:
    """Return a functional all_reduce of 8 bytes, which C++ issues, with its wait."""
    import torch
    import torch.distributed as dist

    functional: Any = importlib.import_module("torch.distributed._functional_collectives")
    tensor = torch.ones(2)
    return lambda: functional.wait_tensor(functional.all_reduce(tensor, "sum", dist.group.WORLD))


def step_of_ddp() -> Callable[[], object]:
    """Return a step on a model of 10 million parameters."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(10))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(8, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()

    return step


# ----------------------------------------------------------------------------------- the comparison


def world(name: str, variant: str, count: int) -> dict[str, float]:
    """Return the times of one world by clock."""
    option, variables = VARIANTS[variant]
    backend = ("--backend", "mpi") if name.endswith("mpi") else ()
    options = ("-n", "2", option, *backend, "--format", "json")
    command = (PYTHON, "-m", "distdemo", "run", __file__, *options, "--", name, str(count))
    output = json.loads(run(command, env={**os.environ, **variables}))["ranks"][0]["output"]
    times: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return times


def measure(name: str, smoke: bool) -> Iterator[Result]:
    """Yield the extra time of a call under each variant."""
    count = STEPS if name.startswith("ddp") else CALLS
    variants = PROGRAMS[name][:2] if smoke else PROGRAMS[name]
    sides = {variant: partial(world, name, variant, 10 if smoke else count) for variant in variants}
    worlds = alternate(sides, 1 if smoke else ROUNDS)
    for clock in ("wall",) if name.endswith("mpi") else ("wall", "CPU"):
        base = [times[clock] for times in worlds["nothing"]]
        for variant in variants[1:]:
            times = [one[clock] for one in worlds[variant]]
            most = LIMITS.get((name, clock)) if variant == "sanitizer" else None
            if (name, clock, variant) == ("ddp-gloo", "CPU", "sanitizer"):
                most = DDP_SHARE * median(base)
            yield compared(
                f"{name} with {variant}, {clock} time: more",
                [time - other for time, other in zip(times, base, strict=True)],
                most=most,
                text=in_words,
                details=f"{in_words(median(times))}, {in_words(median(base))}",
            )


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in PROGRAMS:
        program(sys.argv[1], int(sys.argv[2]))
    else:
        sys.exit(rounds.main(__doc__, {name: partial(measure, name) for name in PROGRAMS}))
