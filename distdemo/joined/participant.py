"""A node without rank 0: it runs its ranks and reports their outcomes to the coordinator."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, NoReturn

from distdemo.encoding import decode, encode
from distdemo.errors import DistdemoError, JoinedWorldError
from distdemo.joined.messages import (
    Exit,
    Message,
    NodeLost,
    RankEnded,
    Refused,
    Sent,
    StartWorld,
    StopWorld,
)
from distdemo.joined.placement import Placement
from distdemo.joined.world import JoinedWorld, annotation_of
from distdemo.launcher import verdict
from distdemo.launcher.records import Died, Raised, Stopped
from distdemo.launcher.worker import Relay
from distdemo.launcher.workers import Callbacks, StopReason, Workers
from distdemo.signals import Interrupts

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldSpec

VERDICT_TIMEOUT_S = 20.0  # beyond a world's deadline, for the coordinator to judge it
ALL_FAILED_TIMEOUT_S = 2.0  # for the coordinator to find and report a fault of all ranks

_STOP_REASONS = {
    "ended": StopReason.ENDED_EARLY,
    "timed out": StopReason.TIMED_OUT,
    "interrupted": StopReason.INTERRUPTED,
}


class EarlyFailureError(JoinedWorldError):
    """A rank of this node failed before the coordinator's address was known.

    Only the engine can end the other ranks: see `mpi.abort_mpi`.
    """


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
        own = self._placement.ranks_of(self._placement.node)
        others = [rank for rank in range(spec.world_size) if rank not in own]
        self.outcomes = {rank: Stopped(rank=rank) for rank in others}  # the coordinator knows them
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

    def _watch(self, workers: Workers, callbacks: Callbacks) -> None:
        """Watch this node's ranks, report their outcomes, and wait until the world is stopped.

        Raises:
            EarlyFailureError: A rank failed before the coordinator's address was known.
        """
        interrupts = workers.interrupts

        def on_poll(_: object) -> bool:
            if callbacks.relay is not None and self._control is not None:
                for rank, value in callbacks.relay():
                    self._send_value(rank, value)
            return False

        workers.watch(self._with_address(workers, Callbacks(self._send_value, poll=on_poll)))
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

    def _send_value(self, rank: int, value: Any) -> None:
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
        changed[index] = decode(annotation_of(target, names[index]), data)
    return tuple(changed)


def _lost_error(why: str) -> JoinedWorldError:
    return JoinedWorldError(
        "Node 0 gave no verdict.",
        f"{why[:1].upper()}{why[1:]}.",
        "Check what rank 0 printed, and that all processes were given the same command.",
    )
