"""The launcher's view of one rank: its process, messages, output and outcome."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from distdemo.launcher import stacks
from distdemo.launcher.messages import Completed, Failed, PhaseReached, Receiver, ValueSent
from distdemo.launcher.records import (
    NOT_STARTED,
    Died,
    Outcome,
    Phase,
    Position,
    Raised,
    Returned,
    Stopped,
    TimedOut,
)

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

MAX_OUTPUT_BYTES = 1 << 16  # kept of a rank's captured output, from the end

OnMessage = Callable[[int, Any], bool | None]
"""Called with a rank's number and a value that it sent; True ends the world."""
Poll = Callable[[Sequence[Outcome | None]], bool]
"""Called periodically with each rank's outcome, None while it runs; True ends the world."""
OnOutput = Callable[[int, bytes], object]
"""Called with a rank's number and a piece of its output."""
Relay = Callable[[], Iterable[tuple[int, Any]]]
"""Returns values for the process of rank 0, each with its rank. Called periodically."""


@dataclass(slots=True, eq=False)
class Worker:
    """The launcher's view of one rank.

    Attributes:
        rank: Number of the rank.
        began: Start of the world, on the monotonic clock.
        process: Process of the rank.
        reader: Launcher's end of the result pipe.
        receiver: Decoder of the messages from ``reader``.
        exit_fd: Descriptor that becomes readable when the process has exited.
        output: Launcher's end of the rank's stdout and stderr, if they are captured.
        own_group: True if the rank runs a program that may exit with ``os._exit(0)``.
        captured: Last bytes of the output.
        phase: Last phase that the rank reached.
        outcome: Outcome, or None while the rank runs.
        where: Position of the rank when it was asked for its stack.
    """

    rank: int
    began: float
    process: BaseProcess
    reader: Connection
    receiver: Receiver
    exit_fd: int
    output: Connection | None = None
    own_group: bool = False
    captured: bytearray = field(default_factory=bytearray)
    phase: Phase = NOT_STARTED
    outcome: Outcome | None = None
    where: Position | None = None

    def receive(self, on_message: OnMessage | None) -> bool:
        """Handle the messages that have arrived; False at end of file.

        Args:
            on_message: Called for each value that the rank sent.
        """
        for message in self.receiver.receive():
            if self.outcome is not None:  # a value of it could not be unpickled here
                break
            if isinstance(message, PhaseReached):
                self.phase = Phase(message.step, message.name, message.at - self.began)
            elif isinstance(message, Failed):
                self._end(message.outcome, message.outcome.at)
            elif isinstance(message, Completed):
                value = self._unpickled(message.payload, "returned")
                if self.outcome is None:
                    self._end(Returned(rank=self.rank, value=value), message.at)
            elif isinstance(message, ValueSent) and on_message is not None:
                value = self._unpickled(message.payload, "sent")
                if self.outcome is None:
                    on_message(self.rank, value)
        return not self.receiver.closed

    def read(self) -> bytes | None:
        """Return the next piece of output: None if there is none yet, empty at end of file."""
        if self.output is None:
            return b""
        try:
            data = os.read(self.output.fileno(), MAX_OUTPUT_BYTES)
        except BlockingIOError:
            return None
        self.captured += data
        del self.captured[:-MAX_OUTPUT_BYTES]
        return data

    def on_exit(self, on_message: OnMessage | None) -> None:
        """Handle the last messages of the process, which has exited.

        Its pipe may still be open, held by a child.
        """
        self.process.join()
        self.receive(on_message)
        if self.outcome is None:
            self._record_exit()

    def signal(self, number: int) -> None:
        """Send the process a signal, if it still exists."""
        if self.process.pid is not None:
            with suppress(ProcessLookupError):  # it has just exited
                os.kill(self.process.pid, number)

    def final(self, *, late: bool) -> Outcome:
        """Return the outcome, with the output.

        Args:
            late: True if a rank without an outcome timed out; False if it was stopped.
        """
        outcome = self.outcome
        if outcome is None:
            kind = TimedOut if late else Stopped
            now = time.monotonic() - self.began
            outcome = kind(rank=self.rank, phase=self.phase, at=now, where=self.where)
        return replace(outcome, output=self.captured.decode(errors="replace"))

    def close(self) -> None:
        """Close the descriptors of the process, which has exited."""
        if self.exit_fd != self.process.sentinel:
            os.close(self.exit_fd)
        self.process.close()
        self.reader.close()
        if self.output is not None:
            self.output.close()

    def _end(self, outcome: Outcome, at: float) -> None:
        """Record the outcome with its time, on the monotonic clock, and the last phase."""
        self.outcome = replace(outcome, phase=self.phase, at=at - self.began)

    def _unpickled(self, payload: bytes, verb: str) -> Any:
        """Unpickle a value; if that fails, the rank's outcome is `Raised`."""
        try:
            return pickle.loads(payload)  # noqa: S301 - a private pipe of our own child
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # unpickling a user's object may raise anything
            message = f"the value that it {verb} can't be unpickled: {error}"
            kind = type(error).__qualname__
            failed = Raised(rank=self.rank, type=kind, message=message, traceback="")
            self._end(failed, time.monotonic())
            return None

    def _record_exit(self) -> None:
        """Record the end of a process that exited without a final message."""
        code = self.process.exitcode or 0
        outcome: Outcome = Died(
            rank=self.rank,
            where=stacks.locate(self.receiver.rest),
            signal=-code if code < 0 else None,
            exit_code=code if code >= 0 else None,
        )
        if code == 0 and self.own_group:
            outcome = Returned(rank=self.rank, left=True)
        self._end(outcome, time.monotonic())
