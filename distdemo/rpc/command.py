"""``distdemo rpc``: calls between workers, and a model trained over them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    LearningRate,
    Seed,
    Stall,
    StartMethod,
    Timeout,
    WorldSize,
    count,
)
from distdemo.cli.session import Session
from distdemo.errors import UsageError
from distdemo.rpc.records import RpcSpec

STALL = 10.0  # seconds
STEP = 0.05  # seconds that a step of the training may take on a slow machine
LOADING = 1.5  # seconds of the processor to load torch and its optimizers, in a rank of its own
MOST_WORKERS = 24  # 36 that connected at once failed 9 of 12 times, 32 none of 12 (torch 2.13)
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
    steps: Annotated[int, count("Number of training steps.", most=1_000_000)] = DEFAULT.steps,
    learning_rate: LearningRate = DEFAULT.learning_rate,
    seed: Seed = DEFAULT.seed,
    timeout: Timeout = None,
    stall: Stall = None,
    start_method: StartMethod = "auto",
) -> Result:
    """Call functions on other workers, and train a model over the calls (maintenance mode).

    rpc_sync, rpc_async, remote and RRefs, an exception that crosses back; then a model that lives
    on other workers, trained with distributed autograd, proved equal to the same in one process.
    PyTorch calls RPC stable and in maintenance mode: learn it for programs that use it already.
    """
    spec = RpcSpec(steps, learning_rate, seed or 0)
    size = session.world_size(world_size, 2, 2, "One worker calls, another answers.")
    if size > MOST_WORKERS:
        raise UsageError(
            f"--world-size {size}: {MOST_WORKERS} workers at most.",
            "When more connect to one at once, TensorPipe refuses some of them.",
            f"Try --world-size {MOST_WORKERS}.",
        )
    if stall is None:  # ranks that are not forked all load torch at once, and report nothing
        stall = STALL + (20 + LOADING * size if start_method in ("spawn", "forkserver") else 0)
    deadline = timeout or 30.0 + STEP * steps + LOADING * size
    # Over gloo, whose group the workers have besides; TensorPipe carries the calls.
    world = session.world(size, "gloo", "cpu", deadline, start_method, stall=min(stall, deadline))
    with session.waiting(f"{size} workers over TensorPipe", world):
        from distdemo.rpc.rank import load_rpc, run
        from distdemo.rpc.records import RpcCall, Trainings
        from distdemo.rpc.report import report

        load_rpc()  # once, before ranks are forked
        ended = session.start(
            replace(world, lazy=True),
            run,
            (spec, 2 * deadline + 60),
            returns=tuple[tuple[RpcCall, ...], Trainings] | None,
        )
    result = report(spec, ended)
    failed = [proof.claim for proof in result.proofs if not proof.held]
    errors = tuple(Error(f"{claim}: this proof failed.") for claim in failed)
    return Result(result, "distdemo.rpc.view", errors=errors)
