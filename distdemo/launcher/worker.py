"""The launcher's view of one rank: its process, messages, output and outcome."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from distdemo.launcher import stacks
from distdemo.launcher.messages import Completed, Message, PhaseReached, Receiver, ValueSent
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

EXIT_TIMEOUT_S = 0.5  # for a process to exit once its pipe is closed
MAX_LAST_READS = 32  # of a rank's output after its exit: more than fits into a pipe
MAX_OUTPUT_BYTES = 1 << 16  # kept of a rank's captured output, from the end

OnMessage = Callable[[int, Any], bool | None]
"""Called with a rank's number and a value that it sent; True ends the world."""
Poll = Callable[[Sequence[Outcome | None]], bool]
"""Called periodically with each rank's outcome, None while it runs; True ends the world."""
OnOutput = Callable[[int, bytes], object]
"""Called with a rank's number and a piece of its output."""


@dataclass(slots=True, eq=False)
class Worker:
    """The launcher's view of one rank.

    Attributes:
        rank: Number of the rank.
        began: Start of the world, on the monotonic clock.
        process: Process of the rank.
        reader: Launcher's end of the result pipe.
        receiver: Decoder of the messages from ``reader``.
        output: Launcher's end of the rank's stdout and stderr, if they are captured.
        own_group: True if the rank runs a program that may exit with ``os._exit(0)``.
        captured: Last bytes of the output.
        phase: Last phase that the rank reached.
        outcome: Outcome, or None while the rank runs.
        where: Position of the rank when it was asked for its stack.
        on_message: Called with the rank and each value that it sends, or None.
        on_output: Called with the rank and each piece of its output, or None.
    """

    rank: int
    began: float
    process: BaseProcess
    reader: Connection
    receiver: Receiver
    output: Connection | None = None
    own_group: bool = False
    captured: bytearray = field(default_factory=bytearray)
    phase: Phase = NOT_STARTED
    outcome: Outcome | None = None
    where: Position | None = None
    on_message: OnMessage | None = None
    on_output: OnOutput | None = None

    def receive(self) -> bool:
        """Handle the messages that have arrived; False at end of file."""
        for message in self.receiver.receive():
            self._handle(message)
        if self.receiver.closed and self.outcome is None:
            self.process.join(EXIT_TIMEOUT_S)
            self._record_exit()
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
        if self.on_output is not None and data:
            self.on_output(self.rank, data)
        return data

    def check_exit(self) -> bool:
        """Return True if the rank has exited although its pipe, held by a child, is still open.

        Return False if its end was known before.
        """
        if self.outcome is not None or self.process.exitcode is None:
            return False
        self.receive()
        self._record_exit()
        return True

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
            kind, now = TimedOut if late else Stopped, time.monotonic() - self.began
            outcome = kind(rank=self.rank, phase=self.phase, at=now, where=self.where)
        return replace(outcome, output=self.captured.decode(errors="replace"))

    def close(self) -> None:
        """Reap the process, which has exited, and close its descriptors."""
        self.process.join()
        for _ in range(MAX_LAST_READS):  # a daemon of the rank may write forever
            if not self.read():
                break
        self.process.close()
        self.reader.close()
        if self.output is not None:
            self.output.close()

    def _handle(self, message: Message) -> None:
        if self.outcome is not None:  # a value of it could not be unpickled here
            return
        if isinstance(message, PhaseReached):
            self.phase = Phase(message.step, message.name, message.at - self.began)
        elif isinstance(message, ValueSent):
            if self.on_message is not None:
                value = self._unpickled(message.payload, "sent", time.monotonic())
                if isinstance(value, Raised):
                    self.outcome = value
                else:
                    self.on_message(self.rank, value)
        elif isinstance(message, Completed):
            value = self._unpickled(message.payload, "returned", message.at)
            at = message.at - self.began
            done = Returned(rank=self.rank, phase=self.phase, at=at, value=value)
            self.outcome = value if isinstance(value, Raised) else done
        else:
            failed = message.outcome
            self.outcome = replace(failed, phase=self.phase, at=failed.at - self.began)

    def _unpickled(self, payload: bytes, verb: str, at: float) -> Any:
        """Unpickle a value; return a `Raised` for the rank if that fails."""
        try:
            return pickle.loads(payload)  # noqa: S301 - a private pipe of our own child
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - unpickling a user's object may raise anything
            return Raised(
                rank=self.rank,
                phase=self.phase,
                at=at - self.began,
                type=type(error).__qualname__,
                message=f"the value that it {verb} can't be unpickled: {error}",
                traceback="",
            )

    def _record_exit(self) -> None:
        """Record the end of a process that exited without a final message."""
        code = self.process.exitcode
        if self.outcome is not None or code is None:
            return
        at = time.monotonic() - self.began
        if code == 0 and self.own_group:
            self.outcome = Returned(rank=self.rank, phase=self.phase, at=at, left=True)
            return
        self.outcome = Died(
            rank=self.rank,
            phase=self.phase,
            at=at,
            where=stacks.locate(self.receiver.rest),
            signal=-code if code < 0 else None,
            exit_code=code if code >= 0 else None,
        )
