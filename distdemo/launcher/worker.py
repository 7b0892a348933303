"""The launcher's view of one rank: its process, what it has said, and how it ended."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from distdemo.launcher.messages import Completed, Message, Reached, Receiver, Told
from distdemo.launcher.records import (
    NOT_STARTED,
    Died,
    Outcome,
    Phase,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    Where,
)

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

REAP = 0.5  # seconds that a process gets to end once its pipe is closed
LAST_PIECES = 32  # of its output that are read when it has ended: more than a pipe holds
KEPT_OUTPUT = 1 << 16  # bytes of a rank's captured output that are kept: the last ones

Hear = Callable[[int, Any], bool | None]
"""Called with a rank's number and a value that it told; True ends the world."""
Look = Callable[[Sequence[Outcome | None]], bool]
"""Called now and then with how each rank ended, None for one that runs; True ends the world."""
Wrote = Callable[[int, bytes], object]
"""Called with a rank's number and a piece of what it writes."""


@dataclass(slots=True, eq=False)
class Worker:
    """The launcher's view of one rank: its process, what it has said, and how it ended.

    Attributes:
        rank: its number.
        began: when the world began, on the monotonic clock.
        process: its process.
        reader: the launcher's end of its way back.
        receiver: takes messages from ``reader``.
        output: the launcher's end of its stdout and stderr, if they are captured.
        own_group: it runs a program that may leave by ``os._exit(0)`` when it is done.
        said: the last bytes that it wrote.
        phase: the last one that it reached.
        outcome: how it ended, None while it has not.
        where: where it stood when it was asked.
        told: called with its number and each value that it tells; None: nobody listens.
        wrote: called with its number and each piece of what it writes; None: nobody listens.
    """

    rank: int
    began: float
    process: BaseProcess
    reader: Connection
    receiver: Receiver
    output: Connection | None = None
    own_group: bool = False
    said: bytearray = field(default_factory=bytearray)
    phase: Phase = NOT_STARTED
    outcome: Outcome | None = None
    where: Where | None = None
    told: Hear | None = None
    wrote: Wrote | None = None

    def hear(self) -> bool:
        """Take the messages that came; False when there will be no more."""
        for message in self.receiver.receive():
            self._note(message)
        if self.receiver.closed and self.outcome is None:
            self.process.join(REAP)
            self._note_death()
        return not self.receiver.closed

    def read(self) -> bytes | None:
        """The next piece of what it wrote, None if there is none yet; empty: no more will come."""
        if self.output is None:
            return b""
        try:
            data = os.read(self.output.fileno(), KEPT_OUTPUT)
        except BlockingIOError:
            return None
        self.said += data
        del self.said[:-KEPT_OUTPUT]
        if self.wrote is not None and data:
            self.wrote(self.rank, data)
        return data

    def look(self) -> bool:
        """See whether it is gone although its pipe is not closed, as a child may hold it: is it?

        False for a rank whose end was known before.
        """
        if self.outcome is not None or self.process.exitcode is None:
            return False
        self.hear()
        self._note_death()
        return True

    def signal(self, number: int) -> None:
        """Send the process a signal, if it still exists."""
        if self.process.pid is not None:
            with suppress(ProcessLookupError):  # it ended in this moment
                os.kill(self.process.pid, number)

    def final(self, *, late: bool) -> Outcome:
        """How it ended, with what it wrote.

        Args:
            late: whether a rank without an outcome ran out of time; else it was stopped.
        """
        outcome, now = self.outcome, time.monotonic() - self.began
        if outcome is None and (late or self.where is not None):
            outcome = TimedOut(rank=self.rank, phase=self.phase, at=now, where=self.where)
        elif outcome is None:
            outcome = Stopped(rank=self.rank, phase=self.phase, at=now)
        return replace(outcome, output=self.said.decode(errors="replace"))

    def close(self) -> None:
        """Wait for the process, which has ended, and close every descriptor of it."""
        self.process.join()
        for _ in range(LAST_PIECES):  # a daemon of the rank's may still write, and never end
            if not self.read():
                break
        self.process.close()
        self.reader.close()
        if self.output is not None:
            self.output.close()

    def _note(self, message: Message) -> None:
        if self.outcome is not None:  # it has failed here, though it does not know
            return
        if isinstance(message, Reached):
            self.phase = Phase(message.step, message.name, message.at - self.began)
        elif isinstance(message, Told):
            if self.told is not None:
                value = self._unpickled(message.payload, "told", time.monotonic())
                if isinstance(value, Raised):
                    self.outcome = value
                else:
                    self.told(self.rank, value)
        elif isinstance(message, Completed):
            value = self._unpickled(message.payload, "returned", message.at)
            at = message.at - self.began
            done = Returned(rank=self.rank, phase=self.phase, at=at, value=value)
            self.outcome = value if isinstance(value, Raised) else done
        else:
            failed = message.outcome
            self.outcome = replace(failed, phase=self.phase, at=failed.at - self.began)

    def _unpickled(self, payload: bytes, verb: str, at: float) -> Any:  # noqa: ANN401 - the user's value
        """A value that came; one that can't be read is the rank's error."""
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
                message=f"the value that it {verb} can't be read back here: {error}",
                traceback="",
            )

    def _note_death(self) -> None:
        """If the process ended without a word, note how."""
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
            signal=-code if code < 0 else None,
            exit_code=code if code >= 0 else None,
        )
