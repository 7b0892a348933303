"""A timeline of all ranks' calls in Chrome's trace format, for Perfetto and chrome://tracing.

Source of the format: "Trace Event Format" (Google, 2016), its JSON array with X, b, e, i and M
events.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from distdemo import dtypes
from distdemo.errors import DistdemoError, UsageError
from distdemo.sanitizer.notes import Came, Ended, Made, Note, Waits
from distdemo.sanitizer.records import Call


class Timeline:
    """Each rank a row; each call a slice, from where it is made to where the rank goes on.

    A call that doesn't block is an arrow of its own above the row, from where it is made to where
    it has been waited for. One that torch makes in C++ is a point: nobody sees its end.

    A file that can't be written must not cost the verdict: it is an error of the result.

    Args:
        path: the file to write, until ``close``.

    Raises:
        UsageError: it can't be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._error: DistdemoError | None = None
        try:
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            what = f"--record {path}: it can't be written."
            raise UsageError(what, f"{error.strerror}.", "Try another file.") from error
        self._write("[")
        self._comma = ""  # before the next event
        self._first = 0  # the time of the first note, µs
        self._made: dict[int, int] = {}  # calls by rank
        self._open: dict[tuple[int, int], tuple[int, Made | None, int]] = {}  # slices by row
        self._pending: dict[tuple[int, int], Made] = {}  # calls that don't block, by number

    def close(self) -> None:
        """End the file."""
        self._write("\n]\n")
        try:
            self._file.close()
        except OSError as error:
            self._fail(error)

    @property
    def unwritten(self) -> tuple[tuple[str, Path, Callable[[], str]], ...]:
        """The file if it could not be written, as `Result.files` has it: it raises the error."""
        return () if self._error is None else (("--record", self._path, self._raise),)

    def _raise(self) -> NoReturn:
        assert self._error is not None  # noqa: S101 - as `unwritten` found
        raise self._error

    def _write(self, text: str) -> None:
        """Write to the file, unless that failed before."""
        if self._error is None:
            try:
                self._file.write(text)
                self._file.flush()
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        what = f"--record {self._path}: it could not be written."
        self._error = DistdemoError(what, f"{error.strerror}.", "Try another file.")
        with suppress(OSError):
            self._file.close()
        if self._path.is_file():  # no device, and no half of a timeline
            self._path.unlink()

    def take(self, rank: int, at: int, note: Note) -> None:
        """A note of a rank.

        Args:
            rank: of the world.
            at: µs since 1970; 0: unknown, and so nothing is drawn.
            note: those of one rank in their order.
        """
        if not at:
            return
        if rank not in self._made:
            self._first = self._first or at
            self._made[rank] = 0
            self._add("M", rank, 0, 0, "process_name", {"name": f"rank {rank}"})
        thread = getattr(note, "thread", 0)
        row = (rank, thread)
        if isinstance(note, Made):
            number = self._made[rank]
            self._made[rank] += 1
            if note.call.sync:
                self._open[row] = (at, note, -1)
            elif note.call.place.via:
                self._add("i", rank, at, thread, note.call.op, _told(note), s="t")
            else:
                self._pending[rank, number] = note
                self._add("b", rank, at, thread, note.call.op, _told(note), id=number, cat="async")
        elif isinstance(note, Waits):
            self._open[row] = (at, self._pending.pop((rank, note.number), None), note.number)
        elif isinstance(note, Came) and row in self._open:
            began, made, number = self._open.pop(row)
            if made is None:
                return
            name = made.call.op if number < 0 else f"wait for {made.call.op}"
            self._add("X", rank, began, thread, name, _told(made), dur=at - began)
            if number >= 0:
                self._add("e", rank, at, thread, made.call.op, {}, id=number, cat="async")
        elif isinstance(note, Ended):
            for other, (began, made, _) in list(self._open.items()):
                if other[0] == rank and made is not None:
                    told = {**_told(made), "unfinished": True}
                    self._add("X", rank, began, other[1], made.call.op, told, dur=at - began)
                    del self._open[other]

    def _add(  # noqa: PLR0913, PLR0917 - an event's fields
        self,
        phase: str,
        rank: int,
        at: int,
        thread: int,
        name: str,
        told: dict[str, Any],
        **more: Any,  # noqa: ANN401 - of some events
    ) -> None:
        event = {"name": name, "ph": phase, "pid": rank, "tid": thread, "args": told, **more}
        if phase != "M":
            event["ts"] = at - self._first
        if phase in ("b", "e"):
            event["id"] = f"{rank}.{more['id']}"
        self._write(f"{self._comma}\n{json.dumps(event)}")
        self._comma = ","


def _told(made: Made) -> dict[str, Any]:
    """What is said of a call when it is clicked on."""
    call: Call = made.call
    told: dict[str, Any] = {"call": str(call), "line": str(call.place)}
    if call.place.caller:
        told["called from"] = call.place.caller
    told["group"] = f"{list(made.group[0])} over {made.group[1]}"
    known = dtypes.DTYPES.get(call.dtype)
    if known is not None:
        told["bytes"] = call.count * known.itemsize
    return told
