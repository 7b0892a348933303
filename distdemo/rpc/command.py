"""``distdemo rpc``: calls between workers, and a training step over RPC."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Annotated

from distdemo import backends
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
from distdemo.launcher.records import Raised, TimedOut, Verdict, WorldReport
from distdemo.launcher.verdict import limit_text, ranks_of
from distdemo.rpc.records import RAISED, RpcCall, RpcReport
from distdemo.versions import versions

STALL_S = 10.0
LOADING_S = 1.5  # CPU seconds to load torch and its optimizers in one rank
MAX_WORKERS = 24  # torch 2.13: 36 connecting at once failed 9 of 12 times, 32 never


@dataclass(frozen=True, kw_only=True)
class RpcOptions(StartOptions, SizeOptions):
    """Options of ``distdemo rpc``; the backend and device of the process group are fixed."""

    world_size: Annotated[int | None, world_size_option("2")] = None
    stall: Annotated[float | None, stall_option(f"{STALL_S:g} plus {LOADING_S:g} per worker")] = (
        None
    )


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
    loading_s = LOADING_S * size
    deadline = options.timeout or 30.0 + loading_s
    stall = min(options.stall or STALL_S + loading_s, deadline)
    group = WorldsOptions(  # the calls use TensorPipe
        backend="gloo", device="cpu", timeout=deadline, start_method=options.start_method
    )
    world = session.world(size, group, stall=stall)
    with session.waiting(f"{size} workers over TensorPipe", world):
        from distdemo.rpc.rank import load_rpc, run

        load_rpc()  # once, before the ranks are forked
        awaited: list[RpcCall | None] = [None]
        ended = session.start(
            replace(world, lazy=True),
            run,
            (2 * deadline + 60,),
            on_message=lambda _, call: awaited.append(call),
        )
        report = make_report(ended, awaited[-1])
    from distdemo.rpc.view import rpc_view

    errors = tuple(
        Error(f"{call.callee}: {call.text} returned a wrong value.") for call in report.wrong
    )
    return Result(report, rpc_view, errors=errors)


def make_report(world: WorldReport, awaited: RpcCall | None) -> RpcReport:
    """Return the report of a world; if it failed, with the worker at fault.

    Args:
        world: Report of the launcher.
        awaited: Call that rank 0 made last; None before its first call and after its last.
    """
    all_versions = versions() | backends.versions_of(world.world)
    if world.verdict is None:
        return RpcReport(world, world.values[0], all_versions)
    if world.interrupted_by is None:
        world = replace(world, verdict=_blame(world, world.verdict, awaited))
    return RpcReport(world, versions=all_versions)


def _blame(world: WorldReport, verdict: Verdict, awaited: RpcCall | None) -> Verdict:
    """Return the launcher's verdict, or one that blames the callee instead of its caller."""
    outcomes = world.outcomes
    caller = outcomes[0]
    cause = outcomes[verdict.ranks[0]] if verdict.ranks else caller
    if isinstance(cause, Raised) and (raised := re.search(RAISED, cause.message)):
        callees: tuple[int, ...] = (int(raised[1]),)
        what = f"Rank {raised[1]} raised {raised[2]}"
        why = f"Rank {cause.rank} called it and received the exception: {cause.phase.name}."
    elif isinstance(caller, TimedOut) and awaited is not None and verdict.limit is not None:
        callees = awaited.callees
        limit = limit_text(world.world, verdict.limit)
        what = f"{limit}: {ranks_of(callees).lower()} did not finish {awaited.text}."
        why = f"Last phase of rank 0: {caller.phase.name}."
    else:
        return verdict
    others = tuple(outcome.rank for outcome in outcomes if outcome.rank not in callees)
    return replace(verdict, what=what, reason=why, ranks=callees, consequences=others)
