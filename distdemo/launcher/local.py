"""Run a world on this machine with torch.multiprocessing.

Whatever happens (a result, an exception, a killed rank, Ctrl-C, a timeout), ``run_world`` reports
how every rank ended and leaves no process or file behind.
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
from distdemo.launcher.worker import OnMessage, OnOutput, Poll
from distdemo.launcher.workers import Node, StopReason, Workers


def run_world(
    world: WorldSpec,
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    *,
    after_start: Callable[[], object] | None = None,
    on_message: OnMessage | None = None,
    on_output: OnOutput | None = None,
    poll: Poll | None = None,
    node: Node | None = None,
    modules: Sequence[str] = (),
) -> WorldReport:
    """Run ``target(rank, *args)`` on every rank of a new world and report how each ended.

    Args:
        world: World to start.
        target: Function that receives a :class:`distdemo.launcher.rank.Rank` first. Under
            forkserver and spawn it and ``args`` must be importable and picklable.
        args: Further arguments, the same for every rank.
        after_start: Called once when all ranks have been started.
        on_message: Called as ``on_message(rank, value)`` for each value that a rank sends
            (``Rank.send``), in order of arrival. True ends the world at once.
        on_output: Called as ``on_output(rank, piece)`` with the output of captured ranks as it
            arrives, and periodically with an empty piece.
        poll: Called periodically with the outcome of each rank, None for one that runs. True ends
            the world at once.
        modules: Modules that the target needs, imported once for all ranks if they are forked.
        node: This process's node of a world on several nodes; None: this process starts all ranks.

    All callbacks run in this process.

    Raises:
        UsageError: The ranks can't be started this way.
        KeyboardInterrupt: Ctrl-C, once all ranks have exited. Other signals then go to their own
            handlers; if those return, so does this function, with ``interrupted_by`` set. If the
            signal is the consequence of a failure on another node, that failure is reported
            instead. The exception carries the report: see ``verdict.report_of``.
        Exception: A callback raised it; all ranks have exited.
    """
    if node is None:
        check_loopback()
    load_torch()
    method = choose(world.start_method, world.device)
    program = world.user_program
    interrupts = Interrupts()
    report = None
    consequence = False  # of a failure on another node: then the signal is not reported
    try:
        with ExitStack() as stack:
            stack.enter_context(interrupts)
            agent = None
            if node is None and program is not None and not program.group:
                agent = stack.enter_context(closing(Agent(world.world_size)))
            if node is None:
                rendezvous = agent.store if agent else stack.enter_context(file_rendezvous())
                ranks = LocalRanks(range(world.world_size), rendezvous, local_size=world.world_size)
                descriptors: Sequence[int] = agent.descriptors if agent else ()
            else:
                ranks, descriptors = node.begin(world), node.descriptors
            stack.enter_context(open_files(world))
            pmi = None
            if world.mpi_start is not None:
                pmi = stack.enter_context(closing(PmiServer(world.mpi_start, world.world_size)))
            workers = Workers(
                world, ranks, method, interrupts, descriptors, modules=modules, pmi=pmi
            )
            try:
                workers.start(target, args)
                if agent is not None:
                    agent.serve()
                if after_start is not None:
                    after_start()
                if node is None:
                    workers.watch(on_message, on_output=on_output, poll=poll)
                else:
                    node.watch(workers, interrupts, on_message, poll)
            finally:
                if node is not None:
                    node.stop()
                workers.end()
            outcomes = workers.outcomes() if node is None else node.outcomes(workers)
            stalled = workers.stop_reason is StopReason.STALLED or (
                node is not None and node.stalled
            )
            judged = verdict.judge(world, outcomes, stalled=stalled)
            if node is not None and node.failed and verdict.names_cause(judged, outcomes):
                consequence = True
            received = None if consequence else interrupts.received
            if received is not None or (node is not None and node.interrupted and not consequence):
                judged = verdict.interrupted(outcomes)
            report = WorldReport(
                world=world,
                outcomes=tuple(outcomes),
                verdict=judged,
                seconds=time.monotonic() - workers.started_at,
                start_method=method.name,
                start_reason=method.reason,
                interrupted_by=received,
                engine="local" if node is None else node.engine,
                hosts=() if node is None else node.hosts(),
            )
    finally:
        if not consequence:
            interrupts.redeliver(report)
    return report
