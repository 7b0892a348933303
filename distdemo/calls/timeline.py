"""Write a timeline of all ranks' calls in Chrome's trace format, for Perfetto and chrome://tracing.

Format: "Trace Event Format" (Google, 2016), a JSON array with X, b, e, i and M events.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Any, BinaryIO

from distdemo import dtypes
from distdemo.calls.notes import CallNote, EndNote, Note, ReturnNote, WaitNote
from distdemo.calls.records import RankCall
from distdemo.errors import DistdemoError


class Timeline:
    """Timeline with one row per rank and one slice per call.

    A slice ends when the rank continues. A non-blocking call is a separate arrow above the row,
    from the call to the end of its wait. A call that torch makes in C++ is a point, because its end
    is invisible.

    The events are kept in a temporary file. A failure to write it is reported with the result, so
    that the verdict isn't lost.

    Args:
        path: File to write with the result.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = TemporaryFile()  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._file.close)
        self._error: OSError | None = None
        self._comma = "["  # written before the next event
        self._first = 0  # time of the first note, µs
        self._call_counts: dict[int, int] = {}  # number of calls by rank
        self._open: dict[tuple[int, int], tuple[int, CallNote | None, int]] = {}  # slices by row
        self._pending: dict[tuple[int, int], CallNote] = {}  # non-blocking calls by number

    @property
    def files(self) -> tuple[tuple[str, Path, Callable[[], BinaryIO]], ...]:
        """The file for `Result.files`."""
        return (("--record", self._path, self._content),)

    def _content(self) -> BinaryIO:
        """Return the temporary file at its beginning, with the end of the timeline.

        Raises:
            DistdemoError: The temporary file could not be written.
        """
        self._write("\n]\n" if self._comma == "," else "[\n]\n")
        self._try(lambda: self._file.seek(0))  # writes what is buffered
        if self._error is not None:
            raise DistdemoError(
                f"--record {self._path}: it could not be written.",
                f"Its temporary file in {gettempdir()}: {self._error.strerror}.",
                "Set TMPDIR to a folder with more space.",
            )
        return self._file

    def _write(self, text: str) -> None:
        self._try(lambda: self._file.write(text.encode()))

    def _try(self, use: Callable[[], object]) -> None:
        """Use the temporary file, unless that has failed before."""
        if self._error is None:
            try:
                use()
            except OSError as error:
                self._error = error

    def add(self, rank: int, at: int, note: Note) -> None:
        """Add a note. Notes of one rank must arrive in order.

        Args:
            rank: Rank in the world.
            at: Time in µs since 1970, or 0 if unknown, which draws nothing.
            note: Note of this rank.
        """
        if not at:
            return
        if rank not in self._call_counts:
            self._first = self._first or at
            self._call_counts[rank] = 0
            self._add_event("M", rank, 0, 0, "process_name", {"name": f"rank {rank}"})
        thread = getattr(note, "thread", 0)
        row = (rank, thread)
        if isinstance(note, CallNote):
            number = self._call_counts[rank]
            self._call_counts[rank] += 1
            if note.call.sync:
                self._open[row] = (at, note, -1)
            elif note.call.source_line.via:
                self._add_event("i", rank, at, thread, note.call.op, _event_args(note), s="t")
            else:
                self._pending[rank, number] = note
                self._add_event(
                    "b", rank, at, thread, note.call.op, _event_args(note), id=number, cat="async"
                )
        elif isinstance(note, WaitNote):
            self._open[row] = (at, self._pending.pop((rank, note.number), None), note.number)
        elif isinstance(note, ReturnNote) and row in self._open:
            began, call_note, number = self._open.pop(row)
            if call_note is None:
                return
            name = call_note.call.op if number < 0 else f"wait for {call_note.call.op}"
            self._add_event("X", rank, began, thread, name, _event_args(call_note), dur=at - began)
            if number >= 0:
                self._add_event(
                    "e", rank, at, thread, call_note.call.op, {}, id=number, cat="async"
                )
        elif isinstance(note, EndNote):
            for other, (began, call_note, _) in list(self._open.items()):
                if other[0] == rank and call_note is not None:
                    args = {**_event_args(call_note), "unfinished": True}
                    self._add_event(
                        "X", rank, began, other[1], call_note.call.op, args, dur=at - began
                    )
                    del self._open[other]

    def _add_event(
        self,
        phase: str,
        rank: int,
        at: int,
        thread: int,
        name: str,
        args: dict[str, Any],
        **more: Any,
    ) -> None:
        event = {"name": name, "ph": phase, "pid": rank, "tid": thread, "args": args, **more}
        if phase != "M":
            event["ts"] = at - self._first
        if phase in ("b", "e"):
            event["id"] = f"{rank}.{more['id']}"
        self._write(f"{self._comma}\n{json.dumps(event)}")
        self._comma = ","


def _event_args(note: CallNote) -> dict[str, Any]:
    """Return the details shown when a call is clicked."""
    call: RankCall = note.call
    args: dict[str, Any] = {"call": str(call), "line": str(call.source_line)}
    if call.source_line.callers:
        args["called from"] = call.source_line.callers[0]
    args["group"] = f"{list(note.group[0])} over {note.group[1]}"
    known = dtypes.DTYPES.get(call.dtype)
    if known is not None:
        args["bytes"] = call.count * known.itemsize
    return args
