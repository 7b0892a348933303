"""Read the entries of torch's flight recorder, one per call.

A dump may come from anyone. The type of a value is checked before the value is hashed, compared or
formatted, and what many calls share is read once: the time is linear in the number of entries.

Format: torch/csrc/distributed/c10d/FlightRecorder.hpp. Dumps have neither ReduceOp nor root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from math import prod
from typing import Any, NamedTuple, TypeVar

from distdemo.calls.records import PartialCall, SourceLine
from distdemo.dtypes import NAMES

MAX_FRAMES = 200  # frames per call that are read
MAX_DIMS = 64  # of a tensor; torch's own limit for most operations
MAX_CALLERS = 3  # lines that are kept around a source line
MAX_TEXT = 500  # characters of a name
T = TypeVar("T")
_PAIR = re.compile(r"(send|recv) (\d{1,5})(?:->|<-)(\d{1,5})")
_TORCH = re.compile(r"(?:^|(?:site|dist)-packages/|/pytorch/)(?:torch|torchcomms)/")
_PACKAGE = re.compile(r"(?:site|dist)-packages/")
_LIBRARY = re.compile(
    r"^<(?!cell )|/lib(?:64)?/python3[^/]*/|^(?:threading|runpy|selectors)\.py$|(?:^|/)distdemo/"
)
OPS = {
    "_all_gather_base": "all_gather_single",
    "_reduce_scatter_base": "reduce_scatter_single",
    "all_reduce_barrier": "barrier",
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "_allgather_base": "all_gather_single",
}
"""Public names of ops, by the names in dumps and in the watchdog's messages, in lower case."""


def typed(value: Any, kind: type[T]) -> T:
    """Return a value from outside if it has exactly this type."""
    if type(value) is not kind:
        raise TypeError(f"a {type(value).__name__} instead of a {kind.__name__}")
    return value


def text_of(value: object) -> str:
    """Return a name from outside."""
    return typed(value, str)[:MAX_TEXT]


def number(value: object) -> int:
    """Return a whole number from outside if it is from 0 to 2**63 - 1."""
    if not 0 <= typed(value, int) < 1 << 63:
        raise ValueError("a number is out of range")
    return typed(value, int)


class CallState(Enum):
    """State of a call. ENDED: it has completed or failed, and the backend doesn't say which."""

    STARTED = 1
    COMPLETED = 2
    ENDED = 3


class FlightEntry(NamedTuple):
    """Entry of the flight recorder.

    Attributes:
        backend: ``nccl``, ``gloo``.
        group: Name and description of the group, which only this rank may use for it.
        place: Number of the collective in the group, from 1. The parts of a coalesced call share
            one; gloo also counts sends and receives.
        call: What is known of the call.
        state: State of the call.
        is_message: True for a send or receive.
        created: Time in ns since 1970; 0 if unknown.
    """

    backend: str
    group: tuple[str, str]
    place: int
    call: PartialCall
    state: CallState
    is_message: bool
    created: int


class EntryReader:
    """Reader of entries as plain data, which must outlive it. Equal calls share one object.

    Every value is checked before it is used.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], PartialCall] = {}
        self._known_sizes: dict[int, _Sizes] = {}  # by the list's identity
        self._equal: dict[tuple[tuple[int, ...], ...], _Sizes] = {}  # by the shapes
        self._lines: dict[tuple[int, ...], SourceLine] = {}  # by the frames' identities

    def read(self, value: object) -> FlightEntry:
        """Return an entry.

        Raises:
            ArithmeticError, LookupError, TypeError, ValueError: It isn't one.
        """
        entry: dict[str, Any] = typed(value, dict)
        name = text_of(entry["profiling_name"])
        backend, _, op = name.rpartition(":")
        group = entry.get("process_group") or (str(number(entry.get("pg_id"))), "")
        if type(group) not in (list, tuple):
            raise TypeError("a group has no name")
        group_name, desc = map(text_of, group)
        call = self._call(entry, name, op)
        state = CallState.STARTED
        if text_of(entry["state"]) == "completed":
            state = CallState.COMPLETED
        elif entry.get("retired") is True and not backend.startswith("nccl"):
            state = CallState.ENDED  # on nccl, it has timed out
        is_message = call.peer is not None or entry.get("is_p2p") is True
        place = 0 if is_message else number(entry.get("collective_seq_id", entry.get("seq_id")))
        created = number(entry.get("time_created_ns", 0))
        return FlightEntry(backend, (group_name, desc), place, call, state, is_message, created)

    def _call(self, entry: dict[str, Any], name: str, op: str) -> PartialCall:
        frames = typed(entry.get("frames") or [], list)[:MAX_FRAMES]
        sides = [
            (typed(entry[f"{side}_sizes"], list), typed(entry.get(f"{side}_dtypes") or [], list))
            for side in ("input", "output")
        ]
        shapes, dtypes = sides[name.endswith(":scatter") or not sides[0][0]]  # only root has inputs
        sizes = self._sizes(shapes)
        line = self._line(frames)
        dtype = text_of((dtypes or sides[0][1] or [""])[0]).lower() if shapes else ""
        key = (name, id(sizes), dtype, id(line))
        if key not in self._known:
            pair = _PAIR.search(op)
            self._known[key] = PartialCall(
                pair[1] if pair else OPS.get(op.lower(), op),
                line,
                dtype=NAMES.get(dtype, dtype),
                shape=sizes.first,
                count=sizes.elements,
                peer=int(pair[3]) if pair else None,
            )
        return self._known[key]

    def _sizes(self, shapes: list[Any]) -> _Sizes:
        """Return the sizes of a call's tensors. Equal lists share one object."""
        if id(shapes) not in self._known_sizes:
            sizes = tuple(_shape(shape) for shape in shapes)
            if sizes not in self._equal:
                self._equal[sizes] = _Sizes(sizes[0] if sizes else (), sum(map(prod, sizes)))
            self._known_sizes[id(shapes)] = self._equal[sizes]
        return self._known_sizes[id(shapes)]

    def _line(self, frames: list[Any]) -> SourceLine:
        """Return the source line of a stack. Stacks of the same frames share one object."""
        key = tuple(map(id, frames))
        if key not in self._lines:
            self._lines[key] = source_line(map(_frame, frames))
        return self._lines[key]


class _Sizes(NamedTuple):
    """Sizes of a call's tensors.

    Attributes:
        first: Shape of the first one; empty if there is none.
        elements: Number of elements of all tensors.
    """

    first: tuple[int, ...]
    elements: int


def _shape(value: Any) -> tuple[int, ...]:
    if len(typed(value, list)) > MAX_DIMS:
        raise ValueError(f"a tensor has more than {MAX_DIMS} dimensions")
    return tuple(map(number, value))


def _frame(value: Any) -> SourceLine:
    frame = typed(value, dict)
    return SourceLine(text_of(frame["filename"]), number(frame["line"]), text_of(frame["name"]))


def is_torch(file: str) -> bool:
    """Return True if a file belongs to torch."""
    return _TORCH.search(file) is not None


def is_user(file: str) -> bool:
    """Return True if a file belongs neither to an installed package nor to Python."""
    return not any(place.search(file) for place in (_TORCH, _PACKAGE, _LIBRARY))


def source_line(frames: Iterable[SourceLine]) -> SourceLine:
    """Return the user's line of a stack, innermost frame first, with the lines that called it.

    Without a user's line, it is that of an installed package.
    """
    users: list[SourceLine] = []
    packages: list[SourceLine] = []
    for frame in frames:
        if is_user(frame.file):
            users.append(frame)
        elif _PACKAGE.search(frame.file) and not is_torch(frame.file):
            packages.append(frame)
    line, *callers = users or packages[:1] or [SourceLine()]
    return replace(line, callers=tuple(callers[:MAX_CALLERS]))
