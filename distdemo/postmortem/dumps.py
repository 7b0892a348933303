"""Read dumps of torch's flight recorder: pickles and JSON, versions 2.0 and later.

A pickle may come from anyone. The unpickler refuses every class, and the type of a value is checked
before the value is hashed, compared or formatted: tuples in tuples can take forever to hash.

Format: torch/csrc/distributed/c10d/FlightRecorder.hpp. Dumps have neither ReduceOp nor root.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterable
from math import prod
from pickle import UnpicklingError
from typing import Any, NoReturn, TypeVar

from distdemo.calls.records import PartialCall, SourceLine
from distdemo.dtypes import NAMES
from distdemo.encoding import loads
from distdemo.files import MAX_BYTES
from distdemo.postmortem.records import CallState, GroupId, PastCall, RankCalls

MAX_CALLS = 100_000  # per dump; torch keeps 2,000 unless told otherwise
MAX_FRAMES = 200  # frames per call that are read
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
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "all_reduce_barrier": "barrier",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "_allgather_base": "all_gather_single",
}
"""Public names of ops, by the names in dumps and in the watchdog's messages, in lower case."""


class _Unpickler(pickle.Unpickler):
    """Unpickler for dictionaries, lists, tuples, strings and numbers."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuse every class and function."""
        raise UnpicklingError(f"contains {module}.{name}, which isn't data"[:MAX_TEXT])

    def persistent_load(self, pid: object, /) -> NoReturn:
        """Refuse references to other objects."""
        raise UnpicklingError("refers to another object")


def is_pickle(head: bytes) -> bool:
    """Return True if a file with these first bytes is a pickle with a protocol number."""
    return head[:1] == b"\x80" and 2 <= head[1] <= pickle.HIGHEST_PROTOCOL


def read_dump(data: bytes | str) -> RankCalls:
    """Return the calls in a dump: a pickle, or JSON as text.

    Raises:
        Exception: It isn't a dump.
    """
    try:
        if isinstance(data, bytes):
            return _Reader(_Unpickler(io.BytesIO(data)).load()).dump
        return _Reader(loads(data, max_bytes=MAX_BYTES)).dump
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = f"not a flight recorder's dump ({type(error).__name__}: {error})"
        raise ValueError(why[:MAX_TEXT]) from None
    except (EOFError, UnpicklingError) as error:
        is_short = isinstance(error, EOFError) or "truncated" in str(error)
        raise UnpicklingError("truncated" if is_short else str(error)) from None


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
        self._latest: dict[GroupId, int] = {}  # number of the last call
        self._known: dict[tuple[object, ...], tuple[PartialCall, GroupId]] = {}
        for group in typed(data.get("pg_config") or {}, dict).values():
            name = text_of(typed(group, dict)["name"])
            self._members[name] = tuple(map(int, _DIGITS.findall(typed(group["ranks"], str))))
            if name and self._members[name]:
                self.dump.groups.append(GroupId(name, text_of(group["desc"]), self._members[name]))
        is_only = len(typed(data.get("pg_status") or {}, dict)) == 1
        self._unnamed = self._members.get("", ()) if is_only else ()  # gloo leaves out the names
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
        if place > self._latest.get(group, 0):
            self._latest[group] = place
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
        sizes = tuple(tuple(map(number, typed(shape, list))) for shape in shapes)
        dtype = text_of((dtypes or sides[0][1] or [""])[0]).lower() if sizes else ""
        key = (name, group_name, desc, sizes, dtype, *map(id, frames))
        if key not in self._known:
            backend, _, op = name.rpartition(":")
            self.dump.backend = self.dump.backend or backend
            pair = _PAIR.search(op)
            call = PartialCall(
                pair[1] if pair else OPS.get(op.lower(), op),
                source_line(map(_frame, frames)),
                dtype=NAMES.get(dtype, dtype),
                shape=sizes[0] if sizes else (),
                count=sum(map(prod, sizes)),
                peer=int(pair[3]) if pair else None,
            )
            members = self._members.get(group_name, self._unnamed)
            self._known[key] = call, GroupId(group_name, desc, members)
        return self._known[key]


def _frame(value: Any) -> SourceLine:
    frame = typed(value, dict)
    return SourceLine(text_of(frame["filename"]), number(frame["line"]), text_of(frame["name"]))


def source_line(frames: Iterable[SourceLine]) -> SourceLine:
    """Return the user's line of a stack, innermost frame first, with the lines that called it.

    Without a user's line, it is that of an installed package.
    """
    users: list[SourceLine] = []
    packages: list[SourceLine] = []
    for frame in frames:
        if _PACKAGE.search(frame.file):
            packages += [] if _TORCH.search(frame.file) else [frame]
        elif not (_TORCH.search(frame.file) or _LIBRARY.search(frame.file)):
            users.append(frame)
    line, *callers = users or packages[:1] or [SourceLine()]
    return SourceLine(
        line.file, line.line, line.function, callers=tuple(map(str, callers[:MAX_CALLERS]))
    )
