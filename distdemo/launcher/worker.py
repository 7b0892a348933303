"""The launcher's view of one rank: its process, what it has said, and how it ended."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from distdemo.launcher import verdict
from distdemo.launcher.channel import Receiver
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

LOOK = 0.2  # seconds between looks at processes whose pipe is silent
REAP = 0.5  # seconds that a process gets to end once its pipe is closed
LAST_PIECES = 32  # of its output that are read when it has ended: more than a pipe holds
KEPT_OUTPUT = 1 << 16  # bytes of a rank's captured output that are kept: the last ones


@dataclass(slots=True)
class Worker:
    """One rank, from its start to its end.

    Attributes:
        rank: its number.
        began: when the world began, on the monotonic clock.
        process: its process.
        reader: the launcher's end of its way back.
        receiver: takes messages from ``reader``.
        output: the launcher's end of its stdout and stderr, if they are captured.
        said: the last bytes that it wrote there.
        phase: the last one that it reached.
        outcome: how it ended, None while it has not.
        where: where it stood at the deadline.
        told: called with its number and each value that it tells; None: nobody listens.
        wrote: called with its number and each piece of what it writes; None: nobody listens.
        own_group: it runs a program that may leave by ``os._exit(0)`` when it is done.
    """

    rank: int
    began: float
    process: BaseProcess
    reader: Connection
    receiver: Receiver
    output: Connection | None = None
    said: bytearray = field(default_factory=bytearray)
    phase: Phase = NOT_STARTED
    outcome: Outcome | None = None
    where: Where | None = None
    told: Callable[[int, Any], object] | None = None
    wrote: Callable[[int, bytes], object] | None = None
    own_group: bool = False

    def hear(self) -> bool:
        """Take the messages that came; False when there will be no more."""
        for message in self.receiver.receive():
            self._note(message)
        if self.receiver.closed and self.outcome is None:
            self.process.join(REAP)
            self._note_death()
        return not self.receiver.closed

    def listen(self) -> bool:
        """Take what it wrote to stdout and stderr; False when there will be no more."""
        piece = self._piece()
        return piece is None or bool(piece)

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
        try:
            if self.process.pid is not None:
                os.kill(self.process.pid, number)
        except ProcessLookupError:
            pass  # it ended in this moment

    def final(self, *, late: bool) -> Outcome:
        """How it ended, with what it wrote.

        Args:
            late: whether a rank without an outcome ran out of time; else it was stopped.
        """
        outcome = self.outcome
        if outcome is None:
            at = time.monotonic() - self.began
            if late:
                outcome = TimedOut(rank=self.rank, phase=self.phase, at=at, where=self.where)
            else:
                outcome = Stopped(rank=self.rank, phase=self.phase, at=at)
        return replace(outcome, output=self.said.decode(errors="replace"))

    def close(self) -> None:
        """Wait for the process, which has ended, and close every descriptor of it."""
        self.process.join()
        for _ in range(LAST_PIECES):  # a daemon of the rank's may still write, and never end
            if not self._piece():
                break
        self.process.close()
        self.reader.close()
        if self.output is not None:
            self.output.close()

    def _piece(self) -> bytes | None:
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

    def _note(self, message: tuple[Any, ...]) -> None:
        if self.outcome is not None:  # it has failed here, though it does not know
            return
        kind, *rest = message
        if kind == "phase":
            step, name, at = rest
            self.phase = Phase(step, name, at - self.began)
            return
        common: dict[str, Any] = {
            "rank": self.rank,
            "phase": self.phase,
            "at": rest[0] - self.began,
        }
        if kind == "told":
            self._pass_on(rest[1], common)
        elif kind == "returned":
            self.outcome = _unpack(rest[1], "returned", common)
        elif kind == "exited":
            self.outcome = Died(exit_code=rest[1], message=rest[2], **common)
        else:
            name, text, trace, backends, missing, excerpt = rest[1:]
            self.outcome = Raised(
                type=name,
                message=text,
                traceback=trace,
                consequence=bool(missing) or (backends and verdict.lost_peer(text)),
                missing=missing,
                excerpt=excerpt,
                **common,
            )

    def _pass_on(self, payload: bytes, common: dict[str, Any]) -> None:
        """Give a told value to whoever listens; one that can't be read is the rank's error."""
        if self.told is None:
            return
        read = _unpack(payload, "told", common)
        if isinstance(read, Returned):
            self.told(self.rank, read.value)
        else:
            self.outcome = read

    def _note_death(self) -> None:
        """If the process ended without a word, note how."""
        code = self.process.exitcode
        if self.outcome is not None or code is None:
            return
        common: dict[str, Any] = {
            "rank": self.rank,
            "phase": self.phase,
            "at": time.monotonic() - self.began,
        }
        if code == 0 and self.own_group:
            self.outcome = Returned(left=True, **common)
        else:
            self.outcome = Died(
                **common,
                signal=-code if code < 0 else None,
                exit_code=code if code >= 0 else None,
            )


def gone(workers: Iterable[Worker], seconds: float) -> bool:
    """Whether all their processes end within so many seconds."""
    until = time.monotonic() + seconds
    alive = [worker.process for worker in workers]
    while alive := [process for process in alive if process.exitcode is None]:
        left = until - time.monotonic()
        if left <= 0:
            return False
        # A process that a rank left behind may hold its sentinel open, so look again soon.
        wait([process.sentinel for process in alive], min(left, LOOK))
    return True


def _unpack(payload: bytes, verb: str, common: dict[str, Any]) -> Returned | Raised:
    try:
        return Returned(value=pickle.loads(payload), **common)  # noqa: S301 - a private pipe of our own child
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - unpickling a user's object may raise anything
        text = f"the value that it {verb} can't be read back here: {error}"
        return Raised(type=type(error).__qualname__, message=text, traceback="", **common)
