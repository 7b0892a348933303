"""Ranks on this machine, started by torch.multiprocessing, watched until the last one is gone.

Whatever happens (a result, an exception, a killed rank, Ctrl-C, a timeout), ``run_world`` tells
how every rank ended, and no process or file of the world is left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from distdemo.launcher import verdict
from distdemo.launcher.elastic import AgentRendezvous, agent
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.limits import check_loopback, open_files
from distdemo.launcher.local_ranks import LocalRanks
from distdemo.launcher.records import Verdict, WorldReport, WorldSpec
from distdemo.launcher.rendezvous import Rendezvous, rendezvous
from distdemo.launcher.start_method import StartMethod, choose
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.watch import End, Hear
from distdemo.launcher.wires import strung
from distdemo.launcher.wires.contract import Wire
from distdemo.launcher.workers import Workers

_INTERRUPTED = Verdict("The run was interrupted.", "All its ranks were stopped.", "")


def run_world(  # noqa: PLR0913 - what to run, and three ears by keyword
    world: WorldSpec,
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    *,
    meanwhile: Callable[[], object] | None = None,
    hear: Hear | None = None,
    wrote: Callable[[int, bytes], object] | None = None,
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

    Raises:
        UsageError: the ranks can't be started this way.
        KeyboardInterrupt: after Ctrl-C, when all ranks are gone. Other signals are handed to
            their own handlers then; if those return, so does this, with ``interrupted_by`` set.
        Exception: whatever ``meanwhile``, ``hear`` or ``wrote`` raises, when all ranks are gone.
    """
    load_torch()
    check_loopback()
    method = choose(world.start_method, world.device)
    interrupts = Interrupts()
    try:
        with (
            interrupts,
            _meeting(world) as meeting,
            open_files(world),
            strung(world) as wire,
        ):
            site = LocalRanks(range(world.world_size), meeting.rendezvous)
            private = meeting.descriptors()
            workers = Workers(world, site, method, interrupts, private, wire=wire)
            try:
                workers.start(target, args)
                meeting.serve()
                if meanwhile is not None:
                    meanwhile()
                workers.watch(hear, wrote=wrote)
            finally:
                workers.end()
            report = _report(world, workers, method, interrupts.received)
            return _blame_wire(report, wire)
    finally:
        interrupts.redeliver()


class _Meeting(Protocol):
    """Where the ranks of a world meet, and this process's part in it."""

    @property
    def rendezvous(self) -> Rendezvous | AgentRendezvous:
        """For the ranks."""

    def descriptors(self) -> tuple[int, ...]:
        """What a forked rank has to close."""

    def serve(self) -> None:
        """Called when all ranks have been forked."""


class _File:
    """A file that needs nobody to serve it."""

    def __init__(self, place: Rendezvous) -> None:
        self.rendezvous = place

    def descriptors(self) -> tuple[int, ...]:
        return ()

    def serve(self) -> None:
        pass


@contextmanager
def _meeting(world: WorldSpec) -> Iterator[_Meeting]:
    """A store in a file; for programs that make their own group one over TCP, as they expect."""
    if world.user_program is not None and not world.user_program.group:
        with agent(world) as held:
            yield held
        return
    with rendezvous() as place:
        yield _File(place)


def _blame_wire(report: WorldReport, wire: Wire) -> WorldReport:
    """The same; where no rank is at fault, but what connects them is, with that as the verdict."""
    judged = report.verdict
    if judged is None or judged.ranks or report.interrupted_by is not None or not wire.trouble:
        return report
    return replace(report, verdict=wire.trouble)


def _report(
    world: WorldSpec, workers: Workers, method: StartMethod, received: int | None
) -> WorldReport:
    """How every rank ended, and why the world failed if it did."""
    outcomes = workers.outcomes()
    judged = verdict.judge(world, outcomes, stalled=workers.ended is End.STALLED)
    return WorldReport(
        world=world,
        outcomes=outcomes,
        verdict=judged if received is None else _INTERRUPTED,
        seconds=time.monotonic() - workers.began,
        start_method=method.name,
        start_reason=method.reason,
        interrupted_by=received,
    )
