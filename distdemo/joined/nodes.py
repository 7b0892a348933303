"""The nodes of a joined world: a coordinator and its participants.

A *node* is one process that an engine or a user started, with the ranks that it starts. Node 0 has
rank 0 and is the coordinator: it starts each world, receives the values and outcomes of the other
nodes' ranks, judges the world, and ends it. The other nodes are participants::

    participant               coordinator
                          <-  StartWorld: does its digest match this node's request?
    Hello                 ->
    Sent ..., RankEnded   ->  judges when all have ended, or a node is lost
                          <-  StopWorld: the ranks must end
                          <-  StartWorld (the next world), or Exit (the exit code)
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal

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
from distdemo.joined.placement import Placement, Request
from distdemo.launcher import verdict
from distdemo.launcher.interrupts import Interrupts
from distdemo.launcher.local import run_world
from distdemo.launcher.records import Died, Lost, Outcome, Raised, Returned, Stopped, WorldReport
from distdemo.launcher.rendezvous import LocalRanks, StoreRendezvous
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.worker import OnMessage, Poll
from distdemo.launcher.workers import OTHERS_TIMEOUT_S, StopReason, Workers
from distdemo.launcher.workers import POLL_S as WATCH_S

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec

SILENCE_TIMEOUT_S = 4.0, 8.0  # without a message until a node is lost: minimum and maximum
RANKS_EXIT_TIMEOUT_S = 5.0  # for ranks to exit, on several hosts and over MPI
REPORT_TIMEOUT_S = 3.0  # for participants to report their outcomes after StopWorld
SETTLE_TIMEOUT_S = 0.7  # for reports that were sent before the coordinator stops the world
EXIT_TIMEOUT_S = 2.0  # for participants to exit
VERDICT_TIMEOUT_S = 20.0  # beyond a world's deadline, for the coordinator to judge it
ALL_FAILED_TIMEOUT_S = 2.0  # for the coordinator to find and report a fault of all ranks
POLL_S = 0.05  # between checks of a condition that no message announces

TEXT_LENGTH = 1000  # characters of another node's text that are shown

Reason = Literal["ended", "timed out", "interrupted"]
_ENDS = {
    "ended": StopReason.ENDED_EARLY,
    "timed out": StopReason.TIMED_OUT,
    "interrupted": StopReason.INTERRUPTED,
}
Resume = Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...]]]
"""Converts the order for a later world into the function to run and its arguments."""
Relay = Callable[[], Iterable[tuple[int, Any]]]
"""Returns values for the coordinator, each with its rank. Called periodically."""


class CoordinatorLostError(JoinedWorldError):
    """The coordinator has exited or can't be reached, so this world gets no verdict."""


class EarlyFailureError(JoinedWorldError):
    """A rank of this node failed before the coordinator's address was known.

    Only the engine can end the other ranks: see `mpi.abort_mpi`.
    """


class Node:
    """This process's part of a joined world.

    Args:
        placement: Placement of this process in the world.
        request: Request to this process; it must be the same on every node.
        timeout_s: Seconds that the other nodes get to join.

    Attributes:
        engine: Name of the engine that started the processes.
        stalled: True if the ranks of another node made no progress for too long.
        interrupted: True if a signal to another node ended its ranks.
        failed: True if another node had failed before this one sent StopWorld.

    Raises:
        UsageError: The address of the store is not this machine's, or the port is taken.
    """

    def __init__(self, placement: Placement, request: Request, timeout_s: float) -> None:
        load_torch()
        self.engine = placement.engine
        self.stalled = self.interrupted = self.failed = False
        self._placement = placement
        self._request = request
        self._timeout_s = timeout_s
        self._control: Control | None = None
        self._selector = selectors.DefaultSelector()  # the control process may start later
        self._offers: list[socket.socket] = []  # ports that rank 0 chooses from, over MPI
        self._segments: set[str] = set()
        self._world = -1  # number of the current or last world
        if not placement.master:  # the ranks will agree on the store's address
            check_mpi4py()
            self._offers = mpi_offers() if placement.node == 0 else []
            return
        host, port, listening = placement.master, placement.port, None
        if not placement.one_host:
            host = interfaces.name_for_others(host)
        elif placement.hosted:
            host = "127.0.0.1"
        if placement.node == 0 and not placement.hosted:
            listening = interfaces.listening_socket(host, port, placement.nnodes)
            host = listening.getsockname()[0]
        self._open(host, port, listening)

    # ---------------------------------------------------------------------------- local ranks

    @property
    def descriptors(self) -> list[int]:
        """Descriptors that a forked rank must close."""
        control = () if self._control is None else self._control.descriptors
        return [self.fileno(), *control, *(offer.fileno() for offer in self._offers)]

    def begin(self, _: WorldSpec) -> LocalRanks:
        """Begin a world; return the ranks that this node starts."""
        place, control = self._placement, self._control
        ranks = partial(
            LocalRanks,
            place.ranks_of(place.node),
            local_rank=place.local_rank,
            local_size=place.ranks_here,
            exit_timeout_s=RANKS_EXIT_TIMEOUT_S,
        )
        if control is None:
            offers = tuple(offer.getsockname()[:2] for offer in self._offers)
            return ranks(MpiRendezvous(offers, place.one_host), interface=None)
        own = interfaces.address_towards(control.host, control.port)
        interface = "" if interfaces.is_loopback(own) else interfaces.interface_of(own) or ""
        prefix = f"{control.prefix}/world/{self._world}"
        return ranks(StoreRendezvous(control.host, control.port, prefix), interface=interface)

    def _open_at_address(self, workers: Workers, rank: int, value: MpiAddress) -> None:
        """Open the store at the address that a local rank sent."""
        self._segments |= shared_segments(workers.pid(rank))
        if self._control is None:
            chosen = None
            for offer in self._offers:
                if offer.getsockname()[1] == value.port:
                    offer.listen(interfaces.BACKLOG)
                    chosen = offer
                else:
                    offer.close()
            self._offers = []
            self._open(value.host, value.port, chosen)

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
                self._on_message(node, unreadable(node, message.name, error))
        return True

    def close(self) -> None:
        """End the control process, and remove the shared memory of killed MPI ranks."""
        if self._control is not None:
            self._control.close()
        for offer in self._offers:
            offer.close()
        self._selector.close()
        for path in self._segments:
            with suppress(OSError):  # the ranks have removed it
                os.unlink(path)  # noqa: PTH108 - a path is all it is

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
                what = f"its message {message.name!r} is too large: {error}"
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


# ------------------------------------------------------------------------------- the coordinator


class Coordinator(Node):
    """The node of rank 0; its arguments are those of `Node`."""

    def __init__(self, placement: Placement, request: Request, timeout_s: float) -> None:
        super().__init__(placement, request, timeout_s)
        self._ranks = {node: placement.ranks_of(node) for node in range(1, placement.nodes)}
        self._hosts: dict[int, str] = {}  # by node, after its Hello
        self._lost_nodes: dict[
            int, NodeLost
        ] = {}  # nodes that can't send anything more, in any world
        self._outcomes: dict[int, Outcome] = {}  # by rank, in this world

    def run(
        self,
        world: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        *,
        returns: Any = NoneType,
        sends: Any = NoneType,
        order: Any = None,
        on_message: OnMessage | None = None,
        poll: Poll | None = None,
        after_start: Callable[[], object] | None = None,
    ) -> WorldReport:
        """Run ``target(rank, *args)`` on this node's ranks, and judge the whole world.

        Args:
            world: The whole world.
            target: As for `run_world`.
            args: As for `run_world`.
            returns: Type of the ranks' return values.
            sends: Type of the values that ranks send.
            order: Work of the other nodes, unless this is the first world.
            on_message: As for `run_world`; also called for the other nodes' ranks.
            poll: As for `run_world`.
            after_start: As for `run_world`.

        Raises:
            KeyboardInterrupt: As `run_world` does.
        """
        self._order, self._returns, self._sends = order, returns, sends
        return run_world(
            world,
            target,
            args,
            after_start=after_start,
            on_message=on_message,
            poll=poll,
            node=self,
        )

    def end(self, code: int) -> None:
        """Make every node exit with this exit code."""
        self._send(Exit(code))
        self._wait(None, lambda: self._hosts.keys() <= self._lost_nodes.keys(), EXIT_TIMEOUT_S)
        self.close()

    def begin(self, world: WorldSpec) -> LocalRanks:
        """Begin a world on every node; return the ranks that this node starts."""
        self._world += 1
        self._spec = world
        self._failed_at: float | None = None
        self._began = time.time(), time.monotonic()
        self._last_message_at = time.monotonic()
        self._outcomes = {}
        self._done = self.failed = self.stalled = self.interrupted = False
        for node, lost in self._lost_nodes.items():
            self._record_lost(node, lost)
        order = self._order if self._world else None
        self._send(StartWorld(self._world, self._request.digest, self._request.command, order))
        return super().begin(world)

    def watch(
        self,
        workers: Workers,
        interrupts: Interrupts,
        on_message: OnMessage | None,
        poll: Poll | None,
    ) -> None:
        """Watch the ranks of all nodes until they have ended or must be stopped."""
        self._on_value, self._poll = on_message, poll
        workers.watch(partial(self._on_local_value, workers), [self], poll=self._check)
        if workers.stop_reason is StopReason.DONE and workers.succeeded:
            next_check = 0.0

            def over() -> bool:
                nonlocal next_check
                if time.monotonic() >= next_check:
                    self._check(workers.outcomes())
                    next_check = time.monotonic() + WATCH_S
                return self._all_ended() or self.stop_reason is not None or self._is_late()

            self._wait(interrupts, over, self._spec.deadline + REPORT_TIMEOUT_S)
        signalled = interrupts.received is not None
        timed_out = (
            workers.stop_reason in (StopReason.TIMED_OUT, StopReason.STALLED) or self._is_late()
        )
        reason: Reason = "timed out" if timed_out else "ended"
        if signalled or self.interrupted:
            reason = "interrupted"
        if reason != "timed out" and not self._done:  # the cause may arrive shortly
            self._wait(None, self._all_ended, SETTLE_TIMEOUT_S)
        self.failed = self._failed_at is not None
        if not self._all_ended():
            self._send(StopWorld(self._world, reason))
            timeout_s = 2 * SETTLE_TIMEOUT_S if signalled else REPORT_TIMEOUT_S
            self._wait(None, lambda: self._all_ended(self._hosts), timeout_s)
        for node, ranks in self._ranks.items():
            if node in self._hosts:
                why, hint = "its process did not report in time", "Its ranks may still hang there."
                self._record_lost(node, NodeLost(why, hint))
            elif reason == "timed out":
                why = "never joined: nothing was received from its process"
                hint = "Check that it was started, and that it reaches the address of node 0."
                self._record_lost(node, NodeLost(why, hint))
            else:  # it is not at fault
                self._outcomes |= {r: Stopped(rank=r) for r in ranks if r not in self._outcomes}

    def stop(self) -> None:
        """Make all nodes stop their ranks."""
        self._send(StopWorld(self._world))

    def outcomes(self, workers: Workers) -> list[Outcome]:
        """Return the outcome of each rank of the world, in order."""
        every = (*workers.outcomes(), *self._outcomes.values())
        return sorted(every, key=lambda outcome: outcome.rank)

    def hosts(self) -> tuple[str, ...]:
        """Return the host of each rank; empty if all are on this host."""
        here = socket.gethostname()
        hosts = [here] * len(self._placement.ranks_of(0))
        for node, ranks in self._ranks.items():
            hosts += [self._hosts.get(node, "?")] * len(ranks)
        return tuple(hosts) if set(hosts) - {here, "?"} else ()

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason to stop this node's ranks, or None."""
        if self.interrupted:
            return StopReason.INTERRUPTED
        failed = (
            self._failed_at is not None and time.monotonic() >= self._failed_at + OTHERS_TIMEOUT_S
        )
        return StopReason.ENDED_EARLY if self._done or failed else None

    def _all_ended(self, nodes: Iterable[int] | None = None) -> bool:
        every = self._ranks if nodes is None else nodes
        return all(rank in self._outcomes for node in every for rank in self._ranks[node])

    def _is_late(self) -> bool:
        now, stall = time.monotonic(), self._spec.stall
        stalled = stall is not None and now > self._last_message_at + stall + REPORT_TIMEOUT_S
        return stalled or now >= self._began[1] + self._spec.deadline

    def _on_local_value(self, workers: Workers, rank: int, value: Any) -> bool:
        if isinstance(value, MpiAddress):
            self._open_at_address(workers, rank, value)
        elif self._on_value is not None:
            self._done = self._done or self._on_value(rank, value) is True
        return self._done

    def _check(self, outcomes: Sequence[Outcome | None]) -> bool:
        if self._poll is not None and not self._done:
            others = (self._outcomes.get(rank) for ranks in self._ranks.values() for rank in ranks)
            self._done = self._poll([*outcomes, *others])
        return self._done

    def _on_message(self, node: int, message: Message | NodeLost) -> None:
        self._last_message_at = time.monotonic()
        if node == 0 and isinstance(message, NodeLost):  # the store itself
            for each in self._ranks:
                self._record_node_lost(each, message)
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
            self._failed_at = self._failed_at or time.monotonic()
            for rank in self._ranks[node]:  # their other failures are consequences
                self._outcomes[rank] = Lost(rank=rank, why=why, hint=message.hint)
            self._lost_nodes[node] = NodeLost(why, message.hint)
        elif isinstance(message, Sent) and message.world == self._world:
            self._check_rank(node, message.rank)
            self._on_remote_value(message.rank, decode(self._sends, message.value))
        elif isinstance(message, RankEnded) and message.world == self._world:
            rank = message.outcome.rank
            self._check_rank(node, rank)
            at = message.outcome.at + message.started_s - self._began[0]
            outcome: Outcome = replace(message.outcome, at=at)
            if isinstance(outcome, Returned):
                value = decode(self._returns, message.value)
                if getattr(value, "rank", rank) != rank:
                    raise ValueError(f"rank {rank} returned the result of another rank")
                outcome = replace(outcome, value=value)
            elif self._failed_at is None:
                self._failed_at = time.monotonic()
            self._outcomes[rank] = outcome
            self.stalled |= message.stalled
            self.interrupted |= message.interrupted

    def _check_rank(self, node: int, rank: int) -> None:
        if rank not in self._ranks[node] or rank in self._outcomes:
            raise ValueError(f"rank {rank} is not a running rank of node {node}")

    def _on_remote_value(self, rank: int, value: Any) -> None:
        if self._on_value is None or self._done:
            return
        try:
            self._done = self._on_value(rank, value) is True
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
            if rank not in self._outcomes:
                self._outcomes[rank] = Lost(rank=rank, at=at, why=lost.why, hint=lost.hint)
                self._failed_at = self._failed_at or time.monotonic()


# ------------------------------------------------------------------------------- the participants


class Participant(Node):
    """A node without rank 0; its arguments are those of `Node`."""

    def __init__(self, placement: Placement, request: Request, timeout_s: float) -> None:
        super().__init__(placement, request, timeout_s)
        self._queue: list[StartWorld | Exit] = []
        self._stopped: StopWorld | None = None
        self._lost = ""  # reason the coordinator can't be reached
        self._relay: Relay | None = None

    def serve(
        self,
        world: WorldSpec,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        resume: Resume | None = None,
        relay: Relay | None = None,
    ) -> int:
        """Run this node's ranks, one world after another, until the coordinator ends it.

        No rank starts before the coordinator has confirmed the request; except under mpiexec, where
        the ranks must start to agree on the store's address.

        Args:
            world: The whole world.
            target: Function of the first world, as for `run_world`.
            args: As for `run_world`.
            resume: Converts the coordinator's order for a later world.
            relay: Returns further values for the coordinator.

        Returns:
            The exit code that the coordinator sent.

        Raises:
            CoordinatorLostError: The coordinator is lost, or this process doesn't belong to its
                world.
            KeyboardInterrupt: After Ctrl-C; other signals go to their own handlers.
        """
        self._relay = relay
        # The coordinator enforces the deadline. This later one applies if it doesn't.
        world = replace(world, deadline=world.deadline + VERDICT_TIMEOUT_S)
        order: StartWorld | Exit = StartWorld(0, "", "")
        if self._control is not None:
            order = self._next_order(self._timeout_s + self._control.silence_s)
        while isinstance(order, StartWorld):
            if order.order is not None and resume is not None:
                try:
                    target, args = resume(order.order)
                except (LookupError, TypeError, ValueError) as error:
                    raise _lost_error(f"it sent an order that can't be read: {error}") from error
            self._world = order.world
            run_world(world, target, args, node=self)
            order = self._next_order(self._timeout_s + world.deadline)
        return order.code

    def refuse(self, error: DistdemoError) -> None:
        """Report to the coordinator that this node can't join the world."""
        what = f"can't take part on {socket.gethostname()}: {error.what}"
        self._send(Refused(what, error.why, error.hint))

    def watch(
        self,
        workers: Workers,
        interrupts: Interrupts,
        _on_message: OnMessage | None,
        _poll: Poll | None,
    ) -> None:
        """Watch this node's ranks, report their outcomes, and wait until the world is stopped.

        Raises:
            EarlyFailureError: A rank failed before the coordinator's address was known.
        """
        workers.watch(partial(self._on_local_value, workers), [self], poll=self._check)
        outcomes = workers.outcomes()
        self._check(outcomes)
        started_s = time.time() - (time.monotonic() - workers.started_at)
        for outcome in outcomes:
            self._send(
                RankEnded(
                    self._world,
                    started_s,
                    outcome,  # type: ignore[arg-type]  # every class of outcomes
                    encode(getattr(outcome, "value", None), decodable=True),
                    stalled=workers.stop_reason is StopReason.STALLED,
                    interrupted=workers.stop_reason is StopReason.INTERRUPTED
                    and interrupts.received is not None,
                )
            )
        if self._control is None and not workers.succeeded and self.stop_reason is None:
            # If all ranks failed, the coordinator reports it and ends them. Otherwise the engine
            # ends the ranks that wait, once this process has failed.
            self._wait(interrupts, lambda: False, ALL_FAILED_TIMEOUT_S)
            judged = verdict.judge(workers.world, self.outcomes(workers))
            failed = any(isinstance(each, Died | Raised) for each in outcomes)
            if failed and judged is not None and interrupts.received is None:
                raise EarlyFailureError(judged.what, judged.why, judged.hint)
        left_s = workers.started_at + workers.world.deadline - time.monotonic()
        self._wait(interrupts, lambda: self.stop_reason, left_s)

    def stop(self) -> None:
        """Do nothing: only the coordinator stops a world."""

    def outcomes(self, workers: Workers) -> list[Outcome]:
        """Return the outcome of each rank, in order; `Stopped` for those of other nodes."""
        own = {outcome.rank: outcome for outcome in workers.outcomes()}
        return [own.get(r, Stopped(rank=r)) for r in range(self._placement.world_size)]

    def hosts(self) -> tuple[str, ...]:
        """Return nothing: the coordinator knows the hosts."""
        return ()

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason to stop the ranks of this world, or None."""
        if self._stopped is not None and self._stopped.world >= self._world:
            return _ENDS[self._stopped.reason]
        return StopReason.ENDED_EARLY if self._queue or self._lost else None

    def _on_local_value(self, workers: Workers, rank: int, value: Any) -> None:
        if isinstance(value, MpiAddress):
            self._open_at_address(workers, rank, value)
        else:
            self._send(Sent(self._world, rank, encode(value, decodable=True)))

    def _check(self, _: Sequence[Outcome | None]) -> bool:
        if self._relay is not None and self._control is not None:
            for rank, value in self._relay():
                self._send(Sent(self._world, rank, encode(value, decodable=True)))
        return False

    def _on_message(self, _: int, message: Message | NodeLost) -> None:
        if isinstance(message, NodeLost):
            self._lost = self._lost or message.why
        elif isinstance(message, StopWorld):
            self._stopped = message
        elif isinstance(message, Exit):
            self._queue.append(message)
        elif isinstance(message, StartWorld) and message.digest != self._request.digest:
            what = f"was started with a different command: distdemo {self._request.command}"
            self._send(Refused(what, "", "Give every process the same command."))
            self._lost = f"rank 0 was started with a different command: distdemo {message.command}"
        elif isinstance(message, StartWorld) and message.world > self._world:
            self._queue.append(message)

    def _next_order(self, seconds: float) -> StartWorld | Exit:
        with Interrupts() as interrupts:
            self._wait(interrupts, lambda: self._queue or self._lost, seconds)
        interrupts.redeliver()
        if not self._queue:
            raise _lost_error(self._lost or "it gave no order in time")
        return self._queue.pop(0)


def _lost_error(why: str) -> CoordinatorLostError:
    return CoordinatorLostError(
        "Node 0 gave no verdict.",
        f"{why[:1].upper()}{why[1:]}.",
        "Check what rank 0 printed, and that all processes were given the same command.",
    )
