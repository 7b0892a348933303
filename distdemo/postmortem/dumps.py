"""Read dumps of torch's flight recorder: pickles and JSON, versions 2.0 and later.

A dump may come from anyone. The type of a value is checked before the value is hashed, compared or
formatted, and what many calls share is read once: the time is linear in the size of the file.

Format: torch/csrc/distributed/c10d/FlightRecorder.hpp. Dumps have neither ReduceOp nor root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from math import prod
from typing import Any, NamedTuple, TypeVar

from distdemo.calls.records import PartialCall, SourceLine
from distdemo.dtypes import NAMES
from distdemo.encoding import loads
from distdemo.files import MAX_BYTES
from distdemo.postmortem.pickles import load_plain
from distdemo.postmortem.records import CallState, GroupId, PastCall, RankCalls

MAX_CALLS = 100_000  # per dump; torch keeps 2,000 unless told otherwise
MAX_FRAMES = 200  # frames per call that are read
MAX_DIMS = 64  # of a tensor; torch's own limit for most operations
MAX_MEMBERS = 2_000_000  # of all groups together
MAX_CALLERS = 3  # lines that are kept around a source line
MAX_TEXT = 500  # characters of a name
T = TypeVar("T")
_DIGITS = re.compile(r"\d{1,5}")
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


def read_dump(data: bytes | str) -> RankCalls:
    """Return the calls in a dump: a pickle, or JSON as text.

    Raises:
        UnpicklingError: It is a pickle of something else, or truncated.
        ValueError: It isn't a dump.
    """
    try:
        plain = load_plain(data) if isinstance(data, bytes) else loads(data, max_bytes=MAX_BYTES)
        return _Reader(plain).dump
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = f"not a flight recorder's dump ({type(error).__name__}: {error})"
        raise ValueError(why[:MAX_TEXT]) from None


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


class _Reader:
    """Reader of the calls in plain data. Equal calls share one object.

    Every value is checked before it is used.
    """

    def __init__(self, data: Any) -> None:
        version = text_of(typed(data, dict)["version"])
        if not version.startswith("2."):
            raise ValueError(f"version {version!r} instead of 2")
        library = text_of(data.get("comm_lib_version") or data.get("nccl_version") or "")
        self.dump = RankCalls(library=library, is_dump=True)
        self._members: dict[str, tuple[int, ...]] = {}
        self._groups: dict[tuple[str, str], GroupId] = {}  # by name and description
        self._latest: dict[tuple[str, str], int] = {}  # number of the last call of a group
        self._known: dict[tuple[object, ...], tuple[PartialCall, GroupId]] = {}
        self._ranks: dict[str, tuple[int, ...]] = {}  # by the text that lists them
        self._known_sizes: dict[int, _Sizes] = {}  # by the list's identity
        self._equal: dict[tuple[tuple[int, ...], ...], _Sizes] = {}  # by the shapes
        self._lines: dict[tuple[int, ...], SourceLine] = {}  # by the frames' identities
        members = 0
        for group in typed(data.get("pg_config") or {}, dict).values():
            name = text_of(typed(group, dict)["name"])
            self._members[name] = self._ranks_in(typed(group["ranks"], str))
            members += len(self._members[name])
            if members > MAX_MEMBERS:
                raise ValueError(f"its groups have more than {MAX_MEMBERS:,} members")
            if name and self._members[name]:
                self.dump.groups.append(GroupId(name, text_of(group["desc"]), self._members[name]))
        is_only = len(typed(data.get("pg_status") or {}, dict)) == 1
        self._unnamed = self._members.get("", ()) if is_only else ()  # gloo leaves out the names
        if "pg_status" in data:
            data.setdefault("entries", [])  # JSON without calls leaves them out
        entries = typed(data["entries"], list)
        if len(entries) > MAX_CALLS:
            raise ValueError(f"it has more than {MAX_CALLS:,} calls")
        for entry in entries:
            self._add(typed(entry, dict))

    def _add(self, entry: dict[str, Any]) -> None:
        """Add a call to the dump. Of a coalesced call, the first part counts."""
        dump = self.dump
        name = text_of(entry["profiling_name"])
        call, group = self._call_and_group(entry, name)
        state = CallState.STARTED
        if text_of(entry["state"]) == "completed":
            state = CallState.COMPLETED
        elif entry.get("retired") is True and not dump.backend.startswith("nccl"):
            state = CallState.ENDED  # on nccl, it has timed out
        if call.peer is not None or entry.get("is_p2p") is True:
            if call.peer is not None and state != CallState.COMPLETED:
                dump.calls.append(PastCall(group, 0, call, CallState.STARTED))
            return
        place = number(entry.get("collective_seq_id", entry.get("seq_id")))
        created = number(entry.get("time_created_ns", 0))
        key = group.name, group.desc  # these decide the members
        if place > self._latest.get(key, 0):
            self._latest[key] = place
            dump.calls.append(PastCall(group, place, call, state))
            dump.times = dump.times[0] or created, created

    def _call_and_group(self, entry: dict[str, Any], name: str) -> tuple[PartialCall, GroupId]:
        group = entry.get("process_group") or (str(number(entry.get("pg_id"))), "")
        if type(group) not in (list, tuple):
            raise TypeError("a group has no name")
        group_name, desc = map(text_of, group)
        frames = typed(entry.get("frames") or [], list)[:MAX_FRAMES]
        sides = [
            (typed(entry[f"{side}_sizes"], list), typed(entry.get(f"{side}_dtypes") or [], list))
            for side in ("input", "output")
        ]
        shapes, dtypes = sides[name.endswith(":scatter") or not sides[0][0]]  # only root has inputs
        sizes = self._sizes(shapes)
        line = self._line(frames)
        dtype = text_of((dtypes or sides[0][1] or [""])[0]).lower() if shapes else ""
        key = (name, group_name, desc, id(sizes), dtype, id(line))
        if key not in self._known:
            backend, _, op = name.rpartition(":")
            self.dump.backend = self.dump.backend or backend
            pair = _PAIR.search(op)
            call = PartialCall(
                pair[1] if pair else OPS.get(op.lower(), op),
                line,
                dtype=NAMES.get(dtype, dtype),
                shape=sizes.first,
                count=sizes.elements,
                peer=int(pair[3]) if pair else None,
            )
            members = self._members.get(group_name, self._unnamed)
            own = GroupId(group_name, desc, members)
            self._known[key] = call, self._groups.setdefault((group_name, desc), own)
        return self._known[key]

    def _ranks_in(self, text: str) -> tuple[int, ...]:
        """Return the ranks in a text. Several groups may have the same."""
        if text not in self._ranks:
            digits = islice(_DIGITS.finditer(text), MAX_MEMBERS + 1)
            self._ranks[text] = tuple(int(found[0]) for found in digits)
        return self._ranks[text]

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
