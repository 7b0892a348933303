"""Worlds that several processes start: a coordinator and its participants.

A *node* is one process that an engine or a user started, with the ranks that it starts. Node 0 has
rank 0 and is the coordinator: it starts each world, receives the values and outcomes of the other
nodes' ranks, judges the world, and ends it. The other nodes are participants::

    participant               coordinator
                          <-  StartWorld: does its digest match this node's work?
    Hello                 ->
    Sent ..., RankEnded   ->  judges when all have ended, or a node is lost
                          <-  StopWorld: the ranks must end
                          <-  StartWorld (the next world), or Exit (the exit code)

All nodes run the same command, so they know the target and arguments of the first world. A later
world has the same target: the coordinator sends the arguments that differ, and a participant
decodes them into the types in the target's annotations.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_type_hints

from distdemo.encoding import decode, encode
from distdemo.errors import DistdemoError, JoinedWorldError
from distdemo.joined import interfaces
from distdemo.joined.control import Control
from distdemo.joined.messages import (
    Exit,
    Gone,
    Hello,
    Message,
    NodeLost,
    RankEnded,
    Refused,
    Sent,
    StartWorld,
    StopWorld,
    unreadable,
)
from distdemo.joined.mpi import (
    MpiAddress,
    MpiRendezvous,
    check_mpi4py,
    mpi_offers,
    shared_segments,
)
from distdemo.joined.placement import Placement
from distdemo.launcher import verdict
from distdemo.launcher.local import Relay, World
from distdemo.launcher.records import Died, Lost, Outcome, Raised, Returned, Stopped, WorldReport
from distdemo.launcher.rendezvous import LocalRanks, Rendezvous, StoreRendezvous
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.worker import OnMessage, OnOutput, Poll
from distdemo.launcher.workers import StopReason, Workers
from distdemo.signals import Interrupts

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec

JOIN_TIMEOUT_S = 1800.0  # for all nodes to join, at most; torch's own limit
SILENCE_TIMEOUT_S = 4.0, 8.0  # without a message until a node is lost: minimum and maximum
RANKS_EXIT_TIMEOUT_S = 5.0  # for ranks to exit, on several hosts and over MPI
REPORT_TIMEOUT_S = 3.0  # for participants to report their outcomes after StopWorld
SETTLE_TIMEOUT_S = 0.7  # for reports that were sent before the coordinator stops the world
EXIT_TIMEOUT_S = 2.0  # for participants to exit
VERDICT_TIMEOUT_S = 20.0  # beyond a world's deadline, for the coordinator to judge it
ALL_FAILED_TIMEOUT_S = 2.0  # for the coordinator to find and report a fault of all ranks
POLL_S = 0.05  # between checks of a condition that no message announces

TEXT_LENGTH = 1000  # characters of another node's text that are shown

_STOP_REASONS = {
    "ended": StopReason.ENDED_EARLY,
    "timed out": StopReason.TIMED_OUT,
    "interrupted": StopReason.INTERRUPTED,
}


class EarlyFailureError(JoinedWorldError):
    """A rank of this node failed before the coordinator's address was known.

    Only the engine can end the other ranks: see `mpi.abort_mpi`.
    """


class ParticipationEnded(Exception):  # noqa: N818 - it isn't an error
    """The coordinator has ended the command; ``code`` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def join(placement: Placement, command: str) -> JoinedWorld:
    """Return this process's part of a joined world.

    Args:
        placement: Placement of this process in the world.
        command: Command line, the same on every node except for the options of one node.
    """
    return Participant(placement, command) if placement.node else Coordinator(placement, command)


class JoinedWorld(World):
    """This process's part of a joined world; base class of both kinds of nodes.

    Attributes:
        outcomes: Outcomes of other nodes' ranks so far.
        failed_at: Time of the first failure among them, on the monotonic clock, or None.
        failed: True if one of them failed before this node stopped the world.
        stalled: True if the ranks of another node made no progress for too long.
        interrupted: True if a signal to another node ended its ranks.
    """

    def __init__(self, placement: Placement, command: str) -> None:
        super().__init__()
        self.engine = placement.engine
        self.outcomes: dict[int, Outcome] = {}
        self.failed_at: float | None = None
        self.failed = self.stalled = self.interrupted = False
        self._peers = self
        self._placement = placement
        self._command = command
        self._number = -1  # of the current or last world
        self._first_args: tuple[Any, ...] | None = None
        self._digest = ""
        self._timeout_s = 0.0
        self._control: Control | None = None
        self._selector = selectors.DefaultSelector()  # the control process may start later
        self._offers: list[socket.socket] = []  # ports that rank 0 chooses from, over MPI
        self._segments: set[str] = set()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each rank; empty if all are on this host, or unknown."""
        return ()

    @property
    def running(self) -> bool:
        """True if this node must wait for ranks of other nodes."""
        return False

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason for which another node stops the world, or None."""
        return None

    def _join(self, spec: WorldSpec, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Connect to the other nodes before the first world.

        Raises:
            UsageError: The address of the store is not this machine's, or the port is taken.
        """
        if self._first_args is not None:
            return
        load_torch()
        self._first_args = args
        # A default repr contains an address, which differs between processes.
        work = re.sub(r" at 0x[0-9a-f]+", "", repr((target.__qualname__, args)))
        meaning = f"{target.__module__} {work} {spec.world_size} {spec.backend} {spec.device}"
        self._digest = hashlib.sha256(meaning.encode()).hexdigest()[:16]
        self._timeout_s = min(spec.deadline, spec.stall or spec.deadline, JOIN_TIMEOUT_S)
        place = self._placement
        if not place.master:  # the ranks will agree on the store's address
            check_mpi4py()
            self._offers = mpi_offers() if place.node == 0 else []
            return
        host, listening = place.master, None
        if not place.one_host:
            host = interfaces.name_for_others(host)
        elif place.hosted:
            host = "127.0.0.1"
        if place.node == 0 and not place.hosted:
            listening = interfaces.listening_socket(host, place.port, place.nnodes)
            host = listening.getsockname()[0]
        self._open(host, place.port, listening)

    def refuse(self, error: DistdemoError) -> None:
        """Report to the coordinator that this node can't join the world."""

    def end(self, code: int) -> None:
        """End the command on this node, and on all nodes if this is the coordinator."""
        if self._control is not None:
            self._control.close()
        for offer in self._offers:
            offer.close()
        self._selector.close()
        for path in self._segments:  # of killed MPI ranks
            with suppress(OSError):  # the ranks have removed it
                os.unlink(path)  # noqa: PTH108 - a path is all it is

    # ---------------------------------------------------------------------------- local ranks

    def _begin(self, spec: WorldSpec, stack: ExitStack) -> tuple[LocalRanks, Sequence[int]]:
        """Begin a world; return the ranks that this node starts."""
        place, control = self._placement, self._control
        rendezvous: Rendezvous
        interface = None
        if control is None:
            offers = tuple(offer.getsockname()[:2] for offer in self._offers)
            rendezvous = MpiRendezvous(offers, place.one_host)
        else:
            own = interfaces.address_towards(control.host, control.port)
            interface = "" if interfaces.is_loopback(own) else interfaces.interface_of(own) or ""
            prefix = f"{control.prefix}/world/{self._number}"
            rendezvous = StoreRendezvous(control.host, control.port, prefix)
        local_ranks = LocalRanks(
            place.ranks_of(place.node),
            rendezvous,
            place.local_rank,
            place.ranks_here,
            interface,
            RANKS_EXIT_TIMEOUT_S,
        )
        descriptors = [self.fileno(), *(offer.fileno() for offer in self._offers)]
        return local_ranks, [*descriptors, *(() if control is None else control.descriptors)]

    def _open_at_address(self, workers: Workers, rank: int, address: MpiAddress) -> None:
        """Open the store at the address that a local rank sent."""
        self._segments |= shared_segments(workers.pid(rank))
        if self._control is None:
            chosen = None
            for offer in self._offers:
                if offer.getsockname()[1] == address.port:
                    offer.listen(interfaces.BACKLOG)
                    chosen = offer
                else:
                    offer.close()
            self._offers = []
            self._open(address.host, address.port, chosen)

    # ------------------------------------------------------------------------------- messages

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a message has arrived."""
        return self._selector.fileno()  # epoll and kqueue have one

    def on_message(self) -> bool:
        """Handle the messages that have arrived, without waiting."""
        for node, message in () if self._control is None else self._control.receive():
            try:
                self._on_message(node, message)
            except ValueError as error:
                self._on_message(node, unreadable(node, error))
        return True

    def _open(self, host: str, port: int, listening: socket.socket | None) -> None:
        """Connect to the store, or serve it."""
        place = self._placement
        least, most = SILENCE_TIMEOUT_S
        self._control = Control(
            host=host,
            port=port,
            prefix=f"distdemo/{place.job}",
            node=place.node,
            peers=[0] if place.node else range(1, place.nodes),
            timeout_s=self._timeout_s,
            silence_s=max(least, min(most, self._timeout_s / 2)),
            listening=listening,
        )
        self._selector.register(self._control, selectors.EVENT_READ)
        if place.node:
            self._send(Hello(socket.gethostname()))

    def _on_message(self, node: int, message: Message | NodeLost) -> None:
        """Handle a message.

        Raises:
            ValueError: The node can't have sent this message.
        """
        raise NotImplementedError

    def _send(self, message: Message) -> None:
        if self._control is not None:
            try:
                self._control.send(message)
            except ValueError as error:
                what = f"its message {message.kind!r} is too large: {error}"
                self._control.send(Refused(what))

    def _wait(
        self, interrupts: Interrupts | None, until: Callable[[], object], seconds: float
    ) -> None:
        """Handle messages until a condition holds, a signal arrives or the time is over.

        Args:
            interrupts: Signals that end the wait.
            until: Condition, checked after each message and at least every `POLL_S`.
            seconds: Maximum wait.
        """
        deadline = time.monotonic() + seconds
        ready = select.poll()
        ready.register(self.fileno(), select.POLLIN)
        if interrupts is not None:
            ready.register(interrupts.fileno(), select.POLLIN)
        self.on_message()
        while not until() and (left := deadline - time.monotonic()) > 0:
            if interrupts is not None and interrupts.received is not None:
                return
            ready.poll(1000 * min(left, POLL_S))
            self.on_message()


def _annotation(target: Any, name: str) -> Any:
    """Return the type in the annotation of a target's parameter, or of its return value."""
    only = SimpleNamespace(__annotations__={name: target.__annotations__[name]})
    return get_type_hints(only, target.__globals__)[name]


# ------------------------------------------------------------------------------- the coordinator


class Coordinator(JoinedWorld):
    """The node of rank 0."""

    def __init__(self, placement: Placement, command: str) -> None:
        super().__init__(placement, command)
        self._ranks = {node: placement.ranks_of(node) for node in range(1, placement.nodes)}
        self._hosts: dict[int, str] = {}  # by node, after its Hello
        self._lost_nodes: dict[int, NodeLost] = {}  # they can't send anything more, in any world

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
        self.outcomes = {}
        self.failed_at = None
        self.failed = self.stalled = self.interrupted = False
        for node, lost in self._lost_nodes.items():
            self._record_lost(node, lost)
        self._send(StartWorld(self._number, self._digest, self._command, self._changes))
        return super()._begin(spec, stack)

    def _watch(
        self,
        workers: Workers,
        interrupts: Interrupts,
        on_message: OnMessage | None,
        on_output: OnOutput | None,
        poll: Poll | None,
        relay: Relay | None,
    ) -> None:
        """Watch the ranks of all nodes until they have ended or must be stopped."""
        self._workers = workers
        workers.watch(partial(self._on_value, on_message), on_output, poll)
        out_of_time = workers.stop_reason in (StopReason.TIMED_OUT, StopReason.STALLED)
        reason: Literal["ended", "timed out", "interrupted"]
        reason = "timed out" if out_of_time else "ended"
        if interrupts.received is not None or self.interrupted:
            reason = "interrupted"
        if reason != "timed out" and workers.stop_reason is not StopReason.ENDED_EARLY:
            # The cause may arrive shortly.
            self._wait(None, lambda: not self.running, SETTLE_TIMEOUT_S)
        self.failed = self.failed_at is not None
        if self.running:
            self._send(StopWorld(self._number, reason))
            signalled = interrupts.received is not None
            timeout_s = 2 * SETTLE_TIMEOUT_S if signalled else REPORT_TIMEOUT_S
            self._wait(None, lambda: self._have_ended(self._hosts), timeout_s)
        for node, ranks in self._ranks.items():
            if node in self._hosts:
                why, hint = "its process did not report in time", "Its ranks may still hang there."
                self._record_lost(node, NodeLost(why, hint))
            elif reason == "timed out":
                why = "never joined: nothing was received from its process"
                hint = "Check that it was started, and that it reaches the address of node 0."
                self._record_lost(node, NodeLost(why, hint))
            else:  # it is not at fault
                self.outcomes |= {r: Stopped(rank=r) for r in ranks if r not in self.outcomes}

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
    def running(self) -> bool:
        """True if ranks of other nodes are running."""
        return len(self.outcomes) < sum(map(len, self._ranks.values()))

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason for which another node stops the world, or None."""
        return StopReason.INTERRUPTED if self.interrupted else None

    def _have_ended(self, nodes: Iterable[int]) -> bool:
        return all(rank in self.outcomes for node in nodes for rank in self._ranks[node])

    def _on_value(self, on_message: OnMessage | None, rank: int, value: Any) -> bool | None:
        if isinstance(value, MpiAddress):
            self._open_at_address(self._workers, rank, value)
            return None
        return None if on_message is None else on_message(rank, value)

    def _on_message(self, node: int, message: Message | NodeLost) -> None:
        if node == 0 and isinstance(message, NodeLost):  # the store itself
            for other in self._ranks:
                self._record_node_lost(other, message)
        elif node in self._lost_nodes:
            pass
        elif isinstance(message, NodeLost):
            self._record_node_lost(node, message)
        elif isinstance(message, Hello):
            self._hosts[node] = message.host[:TEXT_LENGTH]
        elif isinstance(message, Gone):
            self._record_node_lost(
                node, NodeLost("its process exited without a report", "Check what ended it.")
            )
        elif isinstance(message, Refused):
            why = f"{message.what} {message.why}"[:TEXT_LENGTH].rstrip(". ")
            self.failed_at = self.failed_at or time.monotonic()
            for rank in self._ranks[node]:  # their other failures are consequences
                self.outcomes[rank] = Lost(rank=rank, why=why, hint=message.hint)
            self._lost_nodes[node] = NodeLost(why, message.hint)
        elif isinstance(message, Sent) and message.world == self._number:
            self._check_rank(node, message.rank)
            kind = getattr(self._target, "sends", None)
            self._deliver(message.rank, decode(kind | None if kind else type(None), message.value))
        elif isinstance(message, RankEnded) and message.world == self._number:
            self._record_end(node, message)

    def _record_end(self, node: int, message: RankEnded) -> None:
        rank = message.outcome.rank
        self._check_rank(node, rank)
        at = message.outcome.at + message.started_s - self._began[0]
        outcome: Outcome = replace(message.outcome, at=at)
        if isinstance(outcome, Returned):
            value = decode(_annotation(self._target, "return"), message.value)
            if getattr(value, "rank", rank) != rank:
                raise ValueError(f"rank {rank} returned the result of another rank")
            outcome = replace(outcome, value=value)
        elif self.failed_at is None:
            self.failed_at = time.monotonic()
        self.outcomes[rank] = outcome
        self.stalled |= message.stalled
        self.interrupted |= message.interrupted

    def _check_rank(self, node: int, rank: int) -> None:
        if rank not in self._ranks[node] or rank in self.outcomes:
            raise ValueError(f"rank {rank} is not a running rank of node {node}")

    def _deliver(self, rank: int, value: Any) -> None:
        try:
            self._workers.deliver(rank, value)
        except (ArithmeticError, LookupError, TypeError) as error:  # such as an index out of range
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def _record_node_lost(self, node: int, lost: NodeLost) -> None:
        if node in self._hosts:
            lost = replace(lost, why=f"{lost.why} (host {self._hosts[node]})")
        self._lost_nodes.setdefault(node, lost)
        self._record_lost(node, lost)

    def _record_lost(self, node: int, lost: NodeLost) -> None:
        at = time.monotonic() - self._began[1]
        for rank in self._ranks[node]:
            if rank not in self.outcomes:
                self.outcomes[rank] = Lost(rank=rank, at=at, why=lost.why, hint=lost.hint)
                self.failed_at = self.failed_at or time.monotonic()


# ------------------------------------------------------------------------------- the participants


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

    def refuse(self, error: DistdemoError) -> None:
        """Report to the coordinator that this node can't join the world."""
        what = f"can't take part on {socket.gethostname()}: {error.what}"
        self._send(Refused(what, error.why, error.hint))

    def _begin(self, spec: WorldSpec, stack: ExitStack) -> tuple[LocalRanks, Sequence[int]]:
        """Begin a world; the outcomes of other nodes' ranks remain unknown."""
        local_ranks, descriptors = super()._begin(spec, stack)
        others = set(range(spec.world_size)) - set(local_ranks.ranks)
        self.outcomes = {rank: Stopped(rank=rank) for rank in others}
        return local_ranks, descriptors

    def _watch(
        self,
        workers: Workers,
        interrupts: Interrupts,
        on_message: OnMessage | None,
        on_output: OnOutput | None,
        poll: Poll | None,
        relay: Relay | None,
    ) -> None:
        """Watch this node's ranks, report their outcomes, and wait until the world is stopped.

        Raises:
            EarlyFailureError: A rank failed before the coordinator's address was known.
        """

        def on_poll(_: object) -> bool:
            if relay is not None and self._control is not None:
                for rank, value in relay():
                    self._send(Sent(self._number, rank, encode(value, decodable=True)))
            return False

        workers.watch(partial(self._on_value, workers), poll=on_poll)
        on_poll(None)
        outcomes = [o for o in workers.outcomes() if o.rank not in self.outcomes]
        started_s = time.time() - (time.monotonic() - workers.started_at)
        stopped_by = workers.stop_reason
        for outcome in outcomes:
            self._send(
                RankEnded(
                    self._number,
                    started_s,
                    outcome,  # type: ignore[arg-type]  # every class of outcomes
                    encode(getattr(outcome, "value", None), decodable=True),
                    stalled=stopped_by is StopReason.STALLED,
                    interrupted=stopped_by is StopReason.INTERRUPTED
                    and interrupts.received is not None,
                )
            )
        if self._control is None and not workers.succeeded and self.stop_reason is None:
            # If all ranks failed, the coordinator reports it and ends them. Otherwise the engine
            # ends the ranks that wait, once this process has failed.
            self._wait(interrupts, lambda: False, ALL_FAILED_TIMEOUT_S)
            judged = verdict.judge(workers.world, workers.outcomes())
            failed = any(isinstance(outcome, Died | Raised) for outcome in outcomes)
            if failed and judged is not None and interrupts.received is None:
                raise EarlyFailureError(judged.what, judged.why, judged.hint)
        left_s = workers.started_at + workers.world.deadline - time.monotonic()
        self._wait(interrupts, lambda: self.stop_reason, left_s)

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason to stop the ranks of this world, or None."""
        if self._stopped is not None and self._stopped.world >= self._number:
            return _STOP_REASONS[self._stopped.reason]
        return StopReason.ENDED_EARLY if self._queue or self._lost else None

    def _on_value(self, workers: Workers, rank: int, value: Any) -> None:
        if isinstance(value, MpiAddress):
            self._open_at_address(workers, rank, value)
        else:
            self._send(Sent(self._number, rank, encode(value, decodable=True)))

    def _on_message(self, _: int, message: Message | NodeLost) -> None:
        if isinstance(message, NodeLost):
            self._lost = self._lost or message.why
        elif isinstance(message, StopWorld):
            self._stopped = message
        elif isinstance(message, Exit):
            self._queue.append(message)
        elif isinstance(message, StartWorld) and message.digest != self._digest:
            what = f"was started with a different command: distdemo {self._command}"
            self._send(Refused(what, "", "Give every process the same command."))
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
        changed[index] = decode(_annotation(target, names[index]), data)
    return tuple(changed)


def _lost_error(why: str) -> JoinedWorldError:
    return JoinedWorldError(
        "Node 0 gave no verdict.",
        f"{why[:1].upper()}{why[1:]}.",
        "Check what rank 0 printed, and that all processes were given the same command.",
    )
