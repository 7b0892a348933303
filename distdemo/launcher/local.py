"""Ranks on this machine, started by torch.multiprocessing, watched until the last one is gone.

Whatever happens (a result, an exception, a killed rank, Ctrl-C, a timeout), ``run_world`` tells
how every rank ended, and no process or file of the world is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from distdemo.launcher import verdict
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.limits import check_loopback, open_files
from distdemo.launcher.pmi import PmiServer
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.launcher.rendezvous import Agent, LocalRanks, file_rendezvous
from distdemo.launcher.start_method import choose
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.worker import Hear, Look, Wrote
from distdemo.launcher.workers import End, Part, Workers


def run_world(  # noqa: PLR0913 - what to run, and how to follow it, by keyword
    world: WorldSpec,
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    *,
    meanwhile: Callable[[], object] | None = None,
    hear: Hear | None = None,
    wrote: Wrote | None = None,
    look: Look | None = None,
    node: Part | None = None,
) -> WorldReport:
    """Run ``target(rank, *args)`` on every rank of a new world and say how each ended.

    Args:
        world: how many ranks, over which backend, on which device, for how long.
        target: gets a :class:`distdemo.launcher.rank.Rank` first. Under forkserver and spawn it
            and ``args`` have to be importable and picklable.
        args: the same for every rank.
        meanwhile: called once, in this process, when all ranks have been started.
        hear: called in this process as ``hear(rank, value)`` for each value that a rank tells
            (``Rank.tell``), in the order of arrival. True ends the world at once.
        wrote: called in this process as ``wrote(rank, piece)`` with what each rank whose output is
            captured writes, as it comes; now and then with an empty piece, as time goes by.
        look: called in this process now and then with how each rank ended, None for one that
            runs. True ends the world at once.
        node: this process's part of a world that other processes start too; None: it starts all
            ranks.

    Raises:
        UsageError: the ranks can't be started this way.
        KeyboardInterrupt: after Ctrl-C, when all ranks are gone. Other signals are handed to
            their own handlers then; if those return, so does this, with ``interrupted_by`` set.
            Not where the signal is the consequence of a failure on another node: then that is
            reported.
            What is raised carries the report: see ``verdict.report_of``.
        Exception: whatever ``meanwhile``, ``hear`` or ``wrote`` raises, when all ranks are gone.
    """
    load_torch()
    if node is None:
        check_loopback()
    method = choose(world.start_method, world.device)
    program = world.user_program
    interrupts = Interrupts()
    report = None
    try:
        with ExitStack() as held:
            held.enter_context(interrupts)
            agent = None
            if node is None and program is not None and not program.group:
                agent = held.enter_context(closing(Agent(world.world_size)))
            if node is None:
                place = held.enter_context(file_rendezvous()) if agent is None else agent.store
                here = LocalRanks(range(world.world_size), place, local_size=world.world_size)
                private: Sequence[int] = () if agent is None else agent.descriptors
            else:
                here, private = node.begin(world), node.descriptors
            held.enter_context(open_files(world))
            pmi = None
            if world.mpi_start is not None:
                pmi = held.enter_context(closing(PmiServer(world.mpi_start, world.world_size)))
            workers = Workers(world, here, method, interrupts, private, pmi=pmi)
            try:
                workers.start(target, args)
                if agent is not None:
                    agent.serve()
                if meanwhile is not None:
                    meanwhile()
                if node is None:
                    workers.watch(hear, wrote=wrote, look=look)
                else:
                    node.watch(workers, interrupts, hear, look)
            finally:
                if node is not None:
                    node.stop()
                workers.end()
            outcomes = workers.outcomes() if node is None else node.outcomes(workers)
            received: int | None = interrupts.received
            stalled = workers.ended is End.STALLED or (node is not None and node.stalled)
            judged = verdict.judge(world, outcomes, stalled=stalled)
            if node is not None and node.failed and verdict.names_cause(judged, outcomes):
                received = None  # the signal, if there was one, is a consequence
            elif received is not None or (node is not None and node.interrupted):
                judged = verdict.interrupted(outcomes)
            report = WorldReport(
                world=world,
                outcomes=tuple(outcomes),
                verdict=judged,
                seconds=time.monotonic() - workers.began,
                start_method=method.name,
                start_reason=method.reason,
                interrupted_by=received,
                engine="local" if node is None else node.engine,
                hosts=() if node is None else node.hosts(),
            )
    finally:
        if report is None or report.interrupted_by is not None:
            interrupts.redeliver(report)
    return report
