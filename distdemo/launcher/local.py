"""Run a function on every rank of a world.

Whatever happens (a result, an exception, a killed rank, Ctrl-C, a timeout), ``World.run`` reports
how every rank ended and leaves no process or file behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any, TypeVar

from distdemo.launcher import verdict
from distdemo.launcher.limits import check_loopback, open_files
from distdemo.launcher.pmi import PmiServer
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.launcher.rendezvous import LocalRanks, file_rendezvous
from distdemo.launcher.start_method import StartMethod, choose
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.workers import Callbacks, Listener, Peers, StopReason, Workers
from distdemo.signals import Interrupts

Function = TypeVar("Function", bound=Callable[..., Any])


def sends(
    kind: Any, is_valid: Callable[..., bool] = lambda *_: True
) -> Callable[[Function], Function]:
    """Declare the type of what a target sends with ``Rank.send``; it may always send None.

    A rank's process may be on another host. What comes from there is decoded into this type, and
    what the target returns into the type in its annotation.

    Args:
        kind: Type of the values.
        is_valid: Called with a value and the target's arguments; False if the target can't have
            sent it, such as an index out of range.
    """

    def declare(target: Function) -> Function:
        vars(target).update(sends=kind, is_valid=is_valid)
        return target

    return declare


class World:
    """World whose ranks all run on this machine.

    Args:
        listener: Another source of events, such as a host's connection to its client.

    A subclass for a world that is started by several processes overrides ``_begin``, ``_watch`` and
    ``_stop``.

    Attributes:
        engine: Name of the engine that started the processes.
    """

    engine = "local"

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self._peers = Peers()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each rank; empty if all are on this host, or unknown."""
        return ()

    def run(
        self,
        spec: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        *,
        modules: Sequence[str] = (),
        **callbacks: Any,
    ) -> WorldReport:
        """Run ``target(rank, *args)`` on every rank of a new world and report how each ended.

        Args:
            spec: World to start.
            target: Function that receives a :class:`distdemo.launcher.rank.Rank` first. Under
                forkserver and spawn it and ``args`` must be importable and picklable.
            args: Further arguments, the same for every rank.
            modules: Modules that the target needs, imported once for all ranks if they are forked.
            callbacks: Attributes of :class:`distdemo.launcher.workers.Callbacks`.

        Raises:
            UsageError: The ranks can't be started this way.
            KeyboardInterrupt: Ctrl-C, once all ranks have exited. Other signals then go to their
                own handlers; if those return, so does this function, with ``interrupted_by`` set.
                If the signal is the consequence of a failure in another process, that failure is
                reported instead. The exception carries the report: see ``verdict.report_of``.
            Exception: A callback raised it; all ranks have exited.
        """
        load_torch()
        method = choose(spec.start_method, spec.device)
        interrupts = Interrupts()
        self._peers = Peers()
        report = None
        try:
            with ExitStack() as stack:
                stack.enter_context(interrupts)
                local_ranks, descriptors = self._begin(spec, stack)
                stack.enter_context(open_files(spec))
                pmi = None
                if spec.mpi_environment is not None:
                    server = PmiServer(spec.mpi_environment, spec.world_size)
                    pmi = stack.enter_context(closing(server))
                workers = Workers(
                    spec,
                    local_ranks,
                    method,
                    interrupts,
                    self._peers,
                    descriptors=descriptors,
                    pmi=pmi,
                )
                try:
                    workers.start(target, args, modules)
                    self._watch(workers, Callbacks(**callbacks))
                finally:
                    self._stop()
                    workers.end()
                report = self._report(workers, method)
        finally:
            interrupts.redeliver(report)
        return report

    def _begin(self, spec: WorldSpec, stack: ExitStack) -> tuple[LocalRanks, Sequence[int]]:
        """Return the ranks to start, and descriptors of this process that they must close."""
        check_loopback()
        ranks = range(spec.world_size)
        rendezvous = stack.enter_context(file_rendezvous())
        return LocalRanks(ranks, rendezvous, local_size=len(ranks)), ()

    def _watch(self, workers: Workers, callbacks: Callbacks) -> None:
        """Watch the ranks until they have ended or must be stopped."""
        workers.watch(callbacks, self._listener)

    def _stop(self) -> None:
        """Make other processes of the world stop their ranks."""

    def _report(self, workers: Workers, method: StartMethod) -> WorldReport:
        """Return the report, once the ranks of this process have exited."""
        outcomes = workers.outcomes()
        interrupts = workers.interrupts
        peers = self._peers
        stalled = peers.stalled or workers.stop_reason is StopReason.STALLED
        judged = verdict.judge(workers.world, outcomes, stalled=stalled)
        if peers.failed and verdict.names_cause(judged, outcomes):
            interrupts.received = None  # the engine's signal is a consequence of the failure
        elif interrupts.received is not None or peers.interrupted:
            judged = verdict.interrupted(outcomes)
        return WorldReport(
            world=workers.world,
            outcomes=tuple(outcomes),
            verdict=judged,
            seconds=time.monotonic() - workers.started_at,
            start_method=method.name,
            start_reason=method.reason,
            interrupted_by=interrupts.received,
            engine=self.engine,
            hosts=self.hosts,
        )


def run_world(
    spec: WorldSpec, target: Callable[..., Any], args: tuple[Any, ...] = (), **options: Any
) -> WorldReport:
    """Run ``target(rank, *args)`` on every rank of a new world on this machine.

    Arguments, errors and report are those of ``World.run``.
    """
    return World().run(spec, target, args, **options)
