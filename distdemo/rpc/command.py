"""``distdemo rpc``: calls between workers, and a training step over RPC."""

from __future__ import annotations

from dataclasses import dataclass, replace

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import Backend, Device, Stall, WorldOptions
from distdemo.cli.session import Session
from distdemo.errors import UsageError

STALL_S = 10.0
LOADING_S = 1.5  # CPU seconds to load torch and its optimizers in one rank
MAX_WORKERS = 24  # torch 2.13: 36 connecting at once failed 9 of 12 times, 32 never


@dataclass(frozen=True, kw_only=True)
class RpcOptions(WorldOptions):
    """Options of ``distdemo rpc``; the backend and device of the process group are fixed."""

    backend: Backend = "gloo"  # the calls use TensorPipe
    device: Device = "cpu"
    stall: Stall = None


@command(
    record="distdemo.rpc.records:RpcReport",
    joins=True,
    epilog="Try: distdemo rpc; distdemo rpc -n 3",
    takes=frozenset({"world_size", "timeout", "start_method", "stall"}),
    defaults={"world_size": "2", "stall": f"{STALL_S:g}"},
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
    world = session.world(size, replace(options, timeout=deadline), stall=stall)
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
