"""Write a timeline of all ranks' calls in Chrome's trace format, for Perfetto and chrome://tracing.

Format: "Trace Event Format" (Google, 2016), a JSON array with X, b, e, i and M events.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from distdemo import dtypes
from distdemo.calls.notes import CallNote, EndNote, Note, ReturnNote, WaitNote
from distdemo.calls.records import RankCall


class Timeline:
    """Timeline with one row per rank and one slice per call.

    A slice ends when the rank continues. A non-blocking call is a separate arrow above the row,
    from the call to the end of its wait. A call that torch makes in C++ is a point, because its end
    is invisible.

    The events are kept in a temporary file. If it can't be written, the comparison of calls ends.

    Args:
        path: File to write with the result.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = TemporaryFile()  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._file.close)
        self._first = 0  # time of the first note, µs
        self._call_counts: dict[int, int] = {}  # number of calls by rank
        self._open: dict[tuple[int, int], tuple[int, str, CallNote, int]] = {}
        """Slice that each thread of a rank is in: its begin, name, call and the call's number."""
        self._pending: dict[tuple[int, int], CallNote] = {}  # non-blocking calls by number

    @property
    def files(self) -> tuple[tuple[str, Path, Callable[[], BinaryIO]], ...]:
        """The file for `Result.files`."""
        return (("--record", self._path, self._content),)

    def _content(self) -> BinaryIO:
        """Return the temporary file at its beginning, with the end of the timeline."""
        self._write("\n]\n" if self._call_counts else "[\n]\n")
        self._file.seek(0)
        return self._file

    def _write(self, text: str) -> None:
        self._file.write(text.encode())

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
            self._add_event("M", "process_name", (rank, 0), args={"name": f"rank {rank}"})
            self._call_counts[rank] = 0
        row = (rank, getattr(note, "thread", 0))
        if isinstance(note, CallNote):
            self._begin(row, at, note)
        elif isinstance(note, WaitNote):
            self._open.pop(row, None)
            if call := self._pending.pop((rank, note.number), None):
                self._open[row] = at, f"wait for {call.call.op}", call, note.number
        elif isinstance(note, ReturnNote):
            self._end(row, at)
        elif isinstance(note, EndNote):
            for other in [other for other in self._open if other[0] == rank]:
                self._end(other, at, unfinished=True)

    def _begin(self, row: tuple[int, int], at: int, note: CallNote) -> None:
        """Draw a call, or the begin of its slice."""
        rank, _ = row
        op = note.call.op
        number = self._call_counts[rank]
        self._call_counts[rank] += 1
        if note.call.sync:
            self._open[row] = at, op, note, -1
        elif note.call.source_line.cpp:
            self._add_event("i", op, row, at, _event_args(note), s="t")
        else:
            self._pending[rank, number] = note
            self._add_event("b", op, row, at, _event_args(note), id=f"{rank}.{number}", cat="async")

    def _end(self, row: tuple[int, int], at: int, **more: Any) -> None:
        """Draw the slice that a thread is in."""
        if row not in self._open:
            return
        began, name, note, number = self._open.pop(row)
        self._add_event("X", name, row, began, {**_event_args(note), **more}, dur=at - began)
        if number >= 0 and not more:
            self._add_event("e", note.call.op, row, at, {}, id=f"{row[0]}.{number}", cat="async")

    def _add_event(
        self,
        phase: str,
        name: str,
        row: tuple[int, int],
        at: int | None = None,
        args: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        rank, thread = row
        event = {"name": name, "ph": phase, "pid": rank, "tid": thread, "args": args, **more}
        if at is not None:
            event["ts"] = at - self._first
        self._write(f"{',' if self._call_counts else '['}\n{json.dumps(event)}")


def _event_args(note: CallNote) -> dict[str, Any]:
    """Return the details shown when a call is clicked."""
    call: RankCall = note.call
    args: dict[str, Any] = {"call": str(call), "line": str(call.source_line.alone)}
    if call.source_line.callers:
        args["called from"] = str(call.source_line.callers[0])
    group = note.group
    args["group"] = f"{list(group.members)} over {group.backend}"
    if group.device:
        args["group"] += f" for {group.device}"
    known = dtypes.DTYPES.get(call.dtype)
    if known is not None:
        args["bytes"] = call.count * known.itemsize
    return args
