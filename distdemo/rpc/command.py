"""``distdemo rpc``: calls between workers, and a model trained over them."""

from __future__ import annotations

import math
import resource
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Annotated

import typer

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import ADVANCED, Stall, StartMethod, Timeout, WorldSize
from distdemo.cli.session import Session
from distdemo.cli.types import whole
from distdemo.errors import UsageError
from distdemo.rpc.records import RpcSpec

STALL = 10.0  # seconds
STEP = 0.05  # seconds that a step of the training may take on a slow machine
LOADING = 1.5  # seconds of the processor to load torch and its optimizers, in a rank of its own
MOST_WORKERS = 24  # 36 that connected at once failed 9 of 12 times, 32 none of 12 (torch 2.13)
FILES = 120  # open files of worker 0, measured on torch 2.13: 87 + 56 for each worker
FILES_EACH = 60
DEFAULT = RpcSpec()


@command(
    record="distdemo.rpc.records:RpcReport",
    joins=True,
    epilog="Try: distdemo rpc; distdemo rpc -n 3; distdemo rpc --steps 100 --lr 0.1",
)
def rpc(
    session: Session,
    *,
    world_size: WorldSize = None,
    steps: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole(1, "It is the number of steps.", 1_000_000),
            help="Steps of the training.",
        ),
    ] = DEFAULT.steps,
    learning_rate: Annotated[
        float, typer.Option("--lr", "--learning-rate", metavar="RATE", help="Learning rate of SGD.")
    ] = DEFAULT.learning_rate,
    seed: Annotated[
        int,
        typer.Option(
            metavar="NUMBER",
            parser=whole(0, "It is the seed of the random numbers.", 2**62),
            help="Seed of the model's first weights.",
            rich_help_panel=ADVANCED,
        ),
    ] = DEFAULT.seed,
    timeout: Timeout = None,
    stall: Stall = None,
    start_method: StartMethod = "auto",
) -> Result:
    """Call functions on other workers, and train a model over the calls (maintenance mode).

    rpc_sync, rpc_async, remote and RRefs, an exception that crosses back; then a model that lives
    on other workers, trained with distributed autograd, proved equal to the same in one process.
    PyTorch calls RPC stable and in maintenance mode: learn it for programs that use it already.
    """
    spec = RpcSpec(steps, learning_rate, seed)
    if not 0 < learning_rate < math.inf:
        raise UsageError(
            f"--lr {learning_rate:g} can't be used.", "It is a number above 0.", "Try --lr 0.2."
        )
    size = session.world_size(world_size, 2, 2, "One worker calls, another answers.")
    _check_connections(size)
    if stall is None:  # ranks that are not forked all load torch at once, and say nothing
        stall = STALL + (20 + LOADING * size if start_method in ("spawn", "forkserver") else 0)
    deadline = timeout or 30.0 + STEP * steps + LOADING * size
    # Over gloo, whose group the workers have besides; TensorPipe carries the calls.
    world = session.world(size, "gloo", "cpu", deadline, start_method, stall=min(stall, deadline))
    with session.waiting(f"{size} workers over TensorPipe", world):
        from distdemo.rpc.rank import run  # which loads RPC once, before ranks are forked
        from distdemo.rpc.report import report

        ended = session.start(
            replace(world, lazy=True),
            run,
            (spec, 2 * deadline + 60),
            meanwhile=partial(import_module, "distdemo.rpc.view"),
        )
    result = report(spec, ended)
    failed = [proof.claim for proof in result.proofs if not proof.held]
    errors = tuple(Error(f"{claim}: this proof failed.") for claim in failed)
    return Result(result, "distdemo.rpc.view", errors=errors)


def _check_connections(size: int) -> None:
    """Refuse more workers than TensorPipe connects: it would fail, or end a process, on the way.

    Raises:
        UsageError: naming the limit.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = math.inf if hard == resource.RLIM_INFINITY else (hard - FILES) // FILES_EACH
    if size > min(files, MOST_WORKERS):
        most = max(2, int(min(files, MOST_WORKERS)))
        why = "When more connect to one at once, TensorPipe refuses some of them."
        if files < MOST_WORKERS:
            why = f"TensorPipe opens some {FILES_EACH} files a worker; {hard:,} are allowed here."
        raise UsageError(
            f"--world-size {size}: {most} workers at most.", why, f"Try --world-size {most}."
        )
