"""``distdemo rpc``: calls between workers, and a training step over RPC."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    SizeOptions,
    StartOptions,
    WorldsOptions,
    stall_option,
    world_size_option,
)
from distdemo.cli.session import Session
from distdemo.errors import UsageError

STALL_S = 10.0
LOADING_S = 1.5  # CPU seconds to load torch and its optimizers in one rank
MAX_WORKERS = 24  # torch 2.13: 36 connecting at once failed 9 of 12 times, 32 never


@dataclass(frozen=True, kw_only=True)
class RpcOptions(StartOptions, SizeOptions):
    """Options of ``distdemo rpc``; the backend and device of the process group are fixed."""

    world_size: Annotated[int | None, world_size_option("2")] = None
    stall: Annotated[float | None, stall_option(f"{STALL_S:g}")] = None


@command(
    record="distdemo.rpc.records:RpcReport",
    joins=True,
    epilog="Try: distdemo rpc; distdemo rpc -n 3",
)
def rpc(session: Session, options: RpcOptions) -> Result:
    """Call functions on other workers, and take a training step over them (maintenance mode).

    Shows rpc_sync, rpc_async, remote, RRefs and a remote exception, then one step of distributed
    autograd and its optimizer, compared with one process. PyTorch's RPC is stable and in
    maintenance mode: learn it for programs that already use it.
    """
    size = session.world_size(options.world_size, 2, 2, "One worker calls, another one answers.")
    if size > MAX_WORKERS:
        raise UsageError(
            f"--world-size {size}: at most {MAX_WORKERS} workers.",
            "TensorPipe refuses connections when more workers connect to one at once.",
            f"Try --world-size {MAX_WORKERS}.",
        )
    # Unless forked, all ranks load torch at once without progress reports.
    loading = 20 + LOADING_S * size if options.start_method in ("spawn", "forkserver") else 0
    deadline = options.timeout or 30.0 + LOADING_S * size
    stall = min(options.stall or STALL_S + loading, deadline)
    group = WorldsOptions(  # the calls use TensorPipe
        backend="gloo", device="cpu", timeout=deadline, start_method=options.start_method
    )
    world = session.world(size, group, stall=stall)
    with session.waiting(f"{size} workers over TensorPipe", world):
        from distdemo.rpc.rank import load_rpc, run
        from distdemo.rpc.report import make_report

        load_rpc()  # once, before the ranks are forked
        world = replace(world, lazy=True)
        report = make_report(session.start(world, run, (2 * deadline + 60,)))
    from distdemo.rpc.view import rpc_view

    errors = tuple(
        Error(f"{call.callee}: {call.function} {call.what} returned a wrong value.")
        for call in report.wrong
    )
    return Result(report, rpc_view, errors=errors)
