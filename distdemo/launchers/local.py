"""Ranks on this machine, started by torch.multiprocessing, watched until the last one is gone.

Whatever happens (a result, an exception, a killed rank, Ctrl-C, a timeout), ``run_world`` tells
how every rank ended, and no process or file of the world is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from distdemo.launchers import verdict
from distdemo.launchers.crew import Crew
from distdemo.launchers.interrupts import Interrupts
from distdemo.launchers.limits import check_loopback, open_files
from distdemo.launchers.rendezvous import rendezvous
from distdemo.launchers.site import Site
from distdemo.launchers.start_method import StartMethod, choose
from distdemo.launchers.watch import End, Hear
from distdemo.launchers.wires import strung
from distdemo.launchers.wires.contract import Wire
from distdemo.model import WorldSpec
from distdemo.outcomes import Verdict, WorldReport
from distdemo.torch_import import load_torch

_INTERRUPTED = Verdict("The run was interrupted.", "All its ranks were stopped.", "")


def run_world(
    world: WorldSpec,
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    *,
    meanwhile: Callable[[], object] | None = None,
    hear: Hear | None = None,
) -> WorldReport:
    """Run ``target(rank, *args)`` on every rank of a new world and say how each ended.

    Args:
        world: how many ranks, over which backend, on which device, for how long.
        target: gets a :class:`distdemo.launchers.rank.Rank` first. Under forkserver and spawn it
            and ``args`` have to be importable and picklable.
        args: the same for every rank.
        meanwhile: called once, in this process, when all ranks have been started.
        hear: called in this process as ``hear(rank, value)`` for each value that a rank tells
            (``Rank.tell``), in the order of arrival. True ends the world at once.

    Raises:
        UsageError: the ranks can't be started this way.
        KeyboardInterrupt: after Ctrl-C, when all ranks are gone. Other signals are handed to
            their own handlers then; if those return, so does this, with ``interrupted_by`` set.
        Exception: whatever ``meanwhile`` or ``hear`` raises, when all ranks are gone.
    """
    load_torch()
    check_loopback()
    method = choose(world.start_method, world.device)
    interrupts = Interrupts()
    try:
        with (
            interrupts,
            rendezvous() as place,
            open_files(world),
            strung(world, interrupts) as wire,
        ):
            crew = Crew(world, Site(range(world.world_size), place), method, interrupts, wire=wire)
            try:
                crew.start(target, args)
                if meanwhile is not None:
                    meanwhile()
                crew.watch(hear)
            finally:
                crew.end()
            report = _report(world, crew, method, interrupts.received)
            return _blame_wire(report, wire)
    finally:
        interrupts.redeliver()


def _blame_wire(report: WorldReport, wire: Wire) -> WorldReport:
    """The same; where no rank is at fault, but what connects them is, with that as the verdict."""
    judged = report.verdict
    if judged is None or judged.ranks or report.interrupted_by is not None or not wire.trouble:
        return report
    return replace(report, verdict=wire.trouble)


def _report(world: WorldSpec, crew: Crew, method: StartMethod, received: int | None) -> WorldReport:
    """How every rank ended, and why the world failed if it did."""
    outcomes = crew.outcomes()
    judged = verdict.judge(world, outcomes, stalled=crew.ended is End.STALLED)
    return WorldReport(
        world=world,
        outcomes=outcomes,
        verdict=judged if received is None else _INTERRUPTED,
        seconds=time.monotonic() - crew.began,
        start_method=method.name,
        start_reason=method.reason,
        interrupted_by=received,
    )
