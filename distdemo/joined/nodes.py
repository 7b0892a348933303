"""Both kinds of nodes of a joined world: the coordinator and its participants."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, NoReturn

from distdemo.encoding import decode, encode
from distdemo.errors import DistdemoError, JoinedWorldError
from distdemo.joined.engines import Placement
from distdemo.joined.messages import (
    Exit,
    Gone,
    Hello,
    Message,
    RankEnded,
    Sent,
    StartWorld,
    StopWorld,
)
from distdemo.joined.mpi import MpiAddress
from distdemo.joined.world import JoinedWorld, annotation_of
from distdemo.launcher import verdict
from distdemo.launcher.records import Lost, Returned, Stopped, WorldReport
from distdemo.launcher.worker import Relay
from distdemo.launcher.workers import Callbacks, StopReason, Workers
from distdemo.signals import Interrupts

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec
    from distdemo.launcher.rendezvous import LocalRanks

REPORT_TIMEOUT_S = 3.0  # for participants to report their outcomes, or their silence to be noticed
SETTLE_TIMEOUT_S = 0.7  # for reports that were sent before the coordinator stops the world
EXIT_TIMEOUT_S = 2.0  # for participants to exit
VERDICT_TIMEOUT_S = 20.0  # beyond a world's deadline, for the coordinator to judge it
TEXT_LENGTH = 1000  # characters of another node's text that are shown


def join(placement: Placement, command: str) -> JoinedWorld:
    """Return this process's part of a joined world.

    Args:
        placement: Placement of this process in the world.
        command: Command line, the same on every node except for the options of one node.
    """
    return Participant(placement, command) if placement.node else Coordinator(placement, command)


# -------------------------------------------------------------------------------- the coordinator


class Coordinator(JoinedWorld):
    """The node of rank 0."""

    def __init__(self, placement: Placement, command: str) -> None:
        super().__init__(placement, command)
        self._ranks = {node: placement.ranks_of(node) for node in range(1, placement.nodes)}
        self._hosts: dict[int, str] = {}  # by node, after its Hello
        self._lost_nodes: dict[int, Gone] = {}  # they can't send anything more, in any world

    def run(
        self,
        spec: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        **callbacks: Any,
    ) -> WorldReport:
        """Run ``target(rank, *args)`` on every rank of the world; see `World.run`."""
        self._join(spec, target, args)
        self._target = target
        self._args = args
        self._changes = {
            index: encode(arg, decodable=True)
            for index, (arg, first) in enumerate(zip(args, self._first_args or (), strict=True))
            if arg is not first and arg != first
        }
        return super().run(spec, target, args, **callbacks)

    def end(self, code: int) -> None:
        """Make every node exit with this exit code."""
        self._send(Exit(code))
        self._wait(None, lambda: self._hosts.keys() <= self._lost_nodes.keys(), EXIT_TIMEOUT_S)
        super().end(code)

    def _begin(self, spec: WorldSpec, stack: ExitStack) -> tuple[LocalRanks, Sequence[int]]:
        """Begin a world on every node; return the ranks that this node starts."""
        self._number += 1
        self._began = time.time(), time.monotonic()
        self._peers.awaited = sum(map(len, self._ranks.values()))
        for node, lost in self._lost_nodes.items():
            self._record_lost(node, lost)
        self._send(StartWorld(self._number, self._digest, self._command, self._changes))
        return super()._begin(spec, stack)

    def _watch(self, workers: Workers, callbacks: Callbacks) -> None:
        """Watch the ranks of all nodes until they have ended or must be stopped."""
        self._workers = workers
        on_message = callbacks.on_message

        def receive(rank: int, value: Any) -> bool | None:
            if isinstance(value, MpiAddress) or on_message is None:
                return None
            return on_message(rank, value)

        workers.watch(replace(callbacks, on_message=receive), self)
        out_of_time = workers.stop_reason in (StopReason.TIMED_OUT, StopReason.STALLED)
        reason = StopReason.TIMED_OUT if out_of_time else StopReason.ENDED_EARLY
        peers = self._peers
        if workers.interrupts.received is not None or peers.interrupted:
            reason = StopReason.INTERRUPTED
        if reason is not StopReason.TIMED_OUT and workers.stop_reason is not StopReason.ENDED_EARLY:
            # The cause may arrive shortly.
            self._wait(None, lambda: not peers.running, SETTLE_TIMEOUT_S)
        peers.failed = peers.failed_at is not None
        if peers.running:
            self._send(StopWorld(self._number, reason))
            signalled = workers.interrupts.received is not None
            timeout_s = 2 * SETTLE_TIMEOUT_S
            if not signalled:
                silence_s = 0.0 if self._control is None else self._control.silence_s
                timeout_s = REPORT_TIMEOUT_S + silence_s
            self._wait(None, lambda: self._have_ended(self._hosts), timeout_s)
        for node, ranks in self._ranks.items():
            if node in self._hosts:
                why = "its process did not report in time"
                hint = "Its ranks may still hang there."
                self._record_lost(node, self._with_host(node, Gone(why, hint)))
            elif reason is StopReason.TIMED_OUT:
                why = "never joined: nothing was received from its process"
                hint = "Check that it was started, and that it reaches the address of node 0."
                self._record_lost(node, Gone(why, hint))
            else:  # it is not at fault
                stopped = {rank: Stopped(rank=rank) for rank in ranks}
                peers.outcomes = {**stopped, **peers.outcomes}

    def _stop(self) -> None:
        """Make all nodes stop their ranks."""
        self._send(StopWorld(self._number))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each rank; empty if all are on this host."""
        here = socket.gethostname()
        hosts = [here] * len(self._placement.ranks_of(0))
        for node, ranks in self._ranks.items():
            hosts += [self._hosts.get(node, "?")] * len(ranks)
        return tuple(hosts) if set(hosts) - {here, "?"} else ()

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason for which another node stops the world, or None."""
        return StopReason.INTERRUPTED if self._peers.interrupted else None

    def _have_ended(self, nodes: Iterable[int]) -> bool:
        return all(rank in self._peers.outcomes for node in nodes for rank in self._ranks[node])

    def _read(self, node: int, data: bytes) -> Message:
        """Decode a message, also what a rank sent or returned; see `JoinedWorld._read`."""
        message = super()._read(node, data)
        if not isinstance(message, Sent | RankEnded) or message.world != self._number:
            return message
        rank = message.rank if isinstance(message, Sent) else message.outcome.rank
        if rank not in self._ranks[node] or rank in self._peers.outcomes:
            raise ValueError(f"rank {rank} is not a running rank of node {node}")
        if isinstance(message, Sent):
            kind = getattr(self._target, "sends", None)
            value = decode(kind | None if kind else type(None), message.value)
            if value is not None and not vars(self._target)["is_valid"](value, *self._args):
                raise ValueError(f"rank {rank} can't have sent this")
            return replace(message, value=value)
        if not isinstance(message.outcome, Returned):
            return message
        value = decode(annotation_of(self._target, "return"), message.outcome.value)
        if getattr(value, "rank", rank) != rank:
            raise ValueError(f"rank {rank} returned the result of another rank")
        return replace(message, outcome=replace(message.outcome, value=value))

    def _on_message(self, node: int, message: Message) -> None:
        if node in self._lost_nodes:
            return
        if isinstance(message, Gone):
            for other in [node] if node else self._ranks:  # without the store, all nodes are lost
                self._record_node_lost(other, message)
        elif isinstance(message, Hello):
            self._hosts[node] = message.host[:TEXT_LENGTH]
        elif isinstance(message, Sent) and message.world == self._number:
            self._workers.deliver(message.rank, message.value)
        elif isinstance(message, RankEnded) and message.world == self._number:
            peers = self._peers
            at = message.outcome.at + message.started_s - self._began[0]
            peers.outcomes[message.outcome.rank] = replace(message.outcome, at=at)
            if not isinstance(message.outcome, Returned) and peers.failed_at is None:
                peers.failed_at = time.monotonic()
            peers.stalled |= message.stalled
            peers.interrupted |= message.interrupted

    def _record_node_lost(self, node: int, lost: Gone) -> None:
        lost = self._with_host(node, lost)
        self._lost_nodes.setdefault(node, lost)
        self._record_lost(node, lost)

    def _with_host(self, node: int, lost: Gone) -> Gone:
        """Return the reason with the node's host, if it is known."""
        host = f" (host {self._hosts[node]})" if node in self._hosts else ""
        return Gone(f"{lost.why[:TEXT_LENGTH]}{host}", lost.hint)

    def _record_lost(self, node: int, lost: Gone) -> None:
        at = time.monotonic() - self._began[1]
        peers = self._peers
        for rank in self._ranks[node]:
            if rank not in peers.outcomes:
                peers.outcomes[rank] = Lost(rank=rank, at=at, why=lost.why, hint=lost.hint)
                peers.failed_at = peers.failed_at or time.monotonic()


# ------------------------------------------------------------------------------- a participant


class ParticipationEnded(Exception):  # it isn't an error
    """The coordinator has ended the command; ``code`` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Participant(JoinedWorld):
    """A node without rank 0."""

    def __init__(self, placement: Placement, command: str) -> None:
        super().__init__(placement, command)
        self._queue: list[StartWorld | Exit] = []
        self._stopped: StopWorld | None = None
        self._lost = ""  # reason the coordinator can't be reached

    def run(
        self,
        spec: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        *,
        relay: Relay | None = None,
        **_: Any,
    ) -> NoReturn:
        """Run this node's ranks, one world after another, until the coordinator ends it.

        No rank starts before the coordinator has confirmed the digest; except under mpiexec, where
        the ranks must start to agree on the store's address.

        Args:
            spec: The whole world.
            target: As for `World.run`; the same in all worlds.
            args: Arguments in the first world.
            relay: As for `World.run`.

        Raises:
            ParticipationEnded: The coordinator has ended the command.
            JoinedWorldError: The coordinator is lost, or this process doesn't belong to its world.
            KeyboardInterrupt: After Ctrl-C; other signals go to their own handlers.
        """
        self._join(spec, target, args)
        # The coordinator enforces the deadline. This later one applies if it doesn't.
        spec = replace(spec, deadline=spec.deadline + VERDICT_TIMEOUT_S)
        order: StartWorld | Exit = StartWorld(0, "", "")
        if self._control is not None:
            order = self._next_order(self._timeout_s + self._control.silence_s)
        while isinstance(order, StartWorld):
            try:
                changed = _with_changes(target, args, order.changes)
            except (LookupError, TypeError, ValueError) as error:
                raise _lost_error(f"it sent arguments that can't be read: {error}") from error
            self._number = order.world
            super().run(spec, target, changed, relay=relay)
            order = self._next_order(self._timeout_s + spec.deadline)
        raise ParticipationEnded(order.code)

    def _begin(self, spec: WorldSpec, stack: ExitStack) -> tuple[LocalRanks, Sequence[int]]:
        """Begin a world; return the ranks that this node starts."""
        local_ranks, descriptors = super()._begin(spec, stack)
        others = set(range(spec.world_size)).difference(local_ranks.ranks)
        self._peers.outcomes = {rank: Stopped(rank=rank) for rank in others}  # node 0 knows them
        return local_ranks, descriptors

    def refuse(self, error: DistdemoError) -> None:
        """Report to the coordinator that this node can't join the world."""
        why = f"can't take part: {error.what} {error.why}".rstrip(". ")
        self._send(Gone(why, error.hint))

    def _watch(self, workers: Workers, callbacks: Callbacks) -> None:
        """Watch this node's ranks, report their outcomes, and wait until the world is stopped."""

        def on_message(rank: int, value: Any) -> None:
            if isinstance(value, MpiAddress):
                if self._control is None:
                    self._open(value.host, value.port, None)
            else:
                self._send(Sent(self._number, rank, encode(value, decodable=True)))

        def on_poll(_: object) -> bool:
            if callbacks.relay is not None and self._control is not None:
                for rank, value in callbacks.relay():
                    on_message(rank, value)
            return False

        workers.watch(Callbacks(on_message=on_message, poll=on_poll), self)
        on_poll(None)
        started_s = time.time() - (time.monotonic() - workers.started_at)
        stopped_by = workers.stop_reason
        signalled = workers.interrupts.received is not None
        for outcome in workers.outcomes():
            if outcome.rank in self._peers.outcomes:
                continue
            self._send(
                RankEnded(
                    self._number,
                    started_s,
                    outcome,  # type: ignore[arg-type]  # every class of outcomes
                    stalled=stopped_by is StopReason.STALLED,
                    interrupted=stopped_by is StopReason.INTERRUPTED and signalled,
                )
            )
        if self._control is None and not signalled:
            judged = verdict.judge(workers.world, workers.outcomes())
            if judged is not None:
                raise JoinedWorldError(judged.what, judged.why, judged.hint)
        left_s = workers.started_at + workers.world.deadline - time.monotonic()
        self._wait(workers.interrupts, lambda: self.stop_reason, left_s)

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason to stop the ranks of this world, or None."""
        if self._stopped is not None and self._stopped.world >= self._number:
            return self._stopped.reason
        return StopReason.ENDED_EARLY if self._queue or self._lost else None

    def _on_message(self, _: int, message: Message) -> None:
        if isinstance(message, Gone):
            self._lost = self._lost or message.why
        elif isinstance(message, StopWorld):
            self._stopped = message
        elif isinstance(message, Exit):
            self._queue.append(message)
        elif isinstance(message, StartWorld) and message.digest != self._digest:
            why = f"was started with a different command: distdemo {self._command}"
            self._send(Gone(why, "Give every process the same command."))
            self._lost = f"rank 0 was started with a different command: distdemo {message.command}"
        elif isinstance(message, StartWorld) and message.world > self._number:
            self._queue.append(message)

    def _next_order(self, seconds: float) -> StartWorld | Exit:
        with Interrupts() as interrupts:
            self._wait(interrupts, lambda: self._queue or self._lost, seconds)
        interrupts.redeliver()
        if not self._queue:
            raise _lost_error(self._lost or "it gave no order in time")
        return self._queue.pop(0)


def _with_changes(
    target: Callable[..., Any], args: tuple[Any, ...], changes: dict[int, Any]
) -> tuple[Any, ...]:
    """Return the arguments of a later world: those of the first one, with the coordinator's.

    Raises:
        ValueError: There is no such argument, or it isn't of the target's type.
    """
    names = list(signature(target).parameters)[1 : 1 + len(args)]  # without the rank
    changed = list(args)
    for index, data in changes.items():
        changed[index] = decode(annotation_of(target, names[index]), data)
    return tuple(changed)


def _lost_error(why: str) -> JoinedWorldError:
    return JoinedWorldError(
        "Node 0 gave no verdict.",
        f"{why[:1].upper()}{why[1:]}.",
        "Check what rank 0 printed, and that all processes were given the same command.",
    )
