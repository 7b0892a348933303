"""From the flags of ``rpc`` to what is called and trained, on which workers; needs no torch."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace

from distdemo.cli.parse import Flags, View, parse_view, parse_world, whole
from distdemo.cli.parse_engine import parse_seat, placed, ranks_here, size_of_world
from distdemo.errors import UsageError
from distdemo.launcher.joined.seat import Seat
from distdemo.launcher.limits import check_machine
from distdemo.launcher.records import WorldSpec
from distdemo.rpc.records import RpcSpec

LARGEST_SEED = 2**62

PATIENCE = 10.0  # seconds at least that workers may go without progress
MOST_PATIENCE = 30.0  # seconds of it that a long --timeout gives
STEP = 0.05  # seconds that a step of the training may take on a slow machine
LOADING = 1.5  # seconds of the processor to load torch and its optimizers, in a rank of its own
MOST_WORKERS = 24  # 36 that connected at once failed 9 of 12 times, 32 none of 12 (torch 2.13)
FILES_OF_A_WORKER = 120  # open files, measured on torch 2.13: 87 + 56 for each worker
FILES_OF_A_CONNECTION = 60
MOST_STEPS = 1_000_000

_DEFAULT = RpcSpec()


@dataclass(frozen=True, slots=True)
class RpcRequest:
    """Calls and a training that can be run, as far as can be told without torch."""

    spec: RpcSpec
    world: WorldSpec
    view: View
    seat: Seat | None = None

    @property
    def call_patience(self) -> float:
        """Seconds that a single call may take: longer than the launcher would ever wait."""
        return 2 * self.world.deadline + 60


def parse_rpc(flags: Flags) -> RpcRequest:
    """The run that these flags ask for.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    spec = RpcSpec(_steps(flags["rpc_steps"]), _rate(flags["rpc_rate"]), _seed(flags["rpc_seed"]))
    view = parse_view(flags, 1)
    seat = parse_seat(flags)
    size = size_of_world(
        seat, flags["workers"], default=2, smallest=2, why="One worker calls, another answers."
    )
    seat = placed(seat, size)
    world = _world(flags, size, spec)
    check_machine(replace(world, world_size=ranks_here(seat, size)))
    _check_connections(size)
    return RpcRequest(spec, world, view, seat)


def _world(flags: Flags, size: int, spec: RpcSpec) -> WorldSpec:
    """Over gloo, whose group the workers have besides; TensorPipe carries the calls.

    A worker that hangs is found by the world's patience, before its timeout. Many steps lengthen
    the timeout alone: each of them is progress.
    """
    settings = {**flags, "backend": "gloo", "device": None, "timeout": flags["rpc_timeout"]}
    world = parse_world(settings, size)
    timeout, patience = world.deadline, PATIENCE
    if flags["rpc_timeout"] is None:
        timeout += STEP * spec.steps
    else:
        patience = min(max(PATIENCE, timeout / 3), MOST_PATIENCE)
    if world.start_method in ("spawn", "forkserver"):  # all load torch at once, and say nothing
        patience += LOADING * size
    return replace(world, deadline=timeout, stall=min(patience, timeout), lazy=True)


def _check_connections(size: int) -> None:
    """Refuse more workers than TensorPipe connects: it would fail, or end a process, on the way.

    Raises:
        UsageError: naming the limit.
    """
    if size > MOST_WORKERS:
        raise UsageError(
            f"--world-size {size}: {MOST_WORKERS} workers at most.",
            "When more connect to one at once, TensorPipe refuses some of them.",
            f"Try --world-size {MOST_WORKERS}.",
        )
    needed = FILES_OF_A_WORKER + FILES_OF_A_CONNECTION * size
    allowed = most_files()
    if needed > allowed:
        fitting = (allowed - FILES_OF_A_WORKER) // FILES_OF_A_CONNECTION
        raise UsageError(
            f"--world-size {size} needs {needed:,} open files in worker 0.",
            f"TensorPipe opens some {FILES_OF_A_CONNECTION} for each worker, and a process may "
            f"have {allowed:,} here.",
            f"Try --world-size {max(2, fitting)}, or raise the hard limit (ulimit -Hn).",
        )


def most_files() -> int:
    """How many files a process may have open once it has raised its soft limit."""
    try:
        import resource
    except ImportError:  # not on Windows
        return sys.maxsize
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def _steps(text: str | None) -> int:
    if text is None:
        return _DEFAULT.steps
    steps = whole("--steps", text, "It counts the steps of the training.", "Try --steps 20.")
    if not 1 <= steps <= MOST_STEPS:
        raise UsageError(
            f"--steps {text} is out of range.",
            f"It takes 1 to {MOST_STEPS:,} steps.",
            "Try --steps 20.",
        )
    return steps


def _rate(text: str | None) -> float:
    if text is None:
        return _DEFAULT.learning_rate
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise UsageError(
            f"--lr {text}: that is no learning rate.",
            "It is a number above 0, like 0.5 or 1e-3.",
            f"Try --lr {_DEFAULT.learning_rate:g}.",
        )
    return rate


def _seed(text: str | None) -> int:
    if text is None:
        return _DEFAULT.seed
    seed = whole("--seed", text, "It starts random numbers.", "Try --seed 1.")
    if not 0 <= seed <= LARGEST_SEED:
        raise UsageError(
            f"--seed {text} can't be used.",
            "Torch's generators take whole numbers from 0 to 2^62.",
            "Try --seed 1.",
        )
    return seed
