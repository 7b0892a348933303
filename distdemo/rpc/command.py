"""``distdemo rpc``: calls between workers, and a training step over RPC."""

from __future__ import annotations

from dataclasses import replace

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    Stall,
    StartMethod,
    Timeout,
    WorldSize,
)
from distdemo.cli.session import Session
from distdemo.errors import UsageError

STALL = 10.0  # seconds
LOADING = 1.5  # CPU seconds to load torch and its optimizers in one rank
MOST_WORKERS = 24  # torch 2.13: 36 connecting at once failed 9 of 12 times, 32 never


@command(
    record="distdemo.rpc.records:RpcReport",
    joins=True,
    epilog="Try: distdemo rpc; distdemo rpc -n 3",
)
def rpc(
    session: Session,
    *,
    world_size: WorldSize = None,
    timeout: Timeout = None,
    stall: Stall = None,
    start_method: StartMethod = "auto",
) -> Result:
    """Call functions on other workers, and take a training step over them (maintenance mode).

    Shows rpc_sync, rpc_async, remote, RRefs and a remote exception, then one step of distributed
    autograd and its optimizer, compared with one process. PyTorch's RPC is stable and in
    maintenance mode: learn it for programs that already use it.
    """
    size = session.world_size(world_size, 2, 2, "One worker calls, another one answers.")
    if size > MOST_WORKERS:
        raise UsageError(
            f"--world-size {size}: at most {MOST_WORKERS} workers.",
            "TensorPipe refuses connections when more workers connect to one at once.",
            f"Try --world-size {MOST_WORKERS}.",
        )
    if stall is None:  # unless forked, all ranks load torch at once without progress reports
        stall = STALL + (20 + LOADING * size if start_method in ("spawn", "forkserver") else 0)
    deadline = timeout or 30.0 + LOADING * size
    # The process group uses gloo; the calls use TensorPipe.
    world = session.world(size, "gloo", "cpu", deadline, start_method, stall=min(stall, deadline))
    with session.waiting(f"{size} workers over TensorPipe", world):
        from distdemo.rpc.rank import load_rpc, run
        from distdemo.rpc.records import RpcCall
        from distdemo.rpc.report import report

        load_rpc()  # once, before the ranks are forked
        ended = session.start(
            replace(world, lazy=True),
            run,
            (2 * deadline + 60,),
            returns=tuple[RpcCall, ...] | None,
        )
    result = report(ended)
    errors = tuple(
        Error(f"{call.callee}: {call.function} {call.what} returned a wrong value.")
        for call in result.wrong
    )
    return Result(result, "distdemo.rpc.view", errors=errors)
