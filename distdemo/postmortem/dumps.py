"""Read dumps of torch's flight recorder: pickles and JSON, versions 2.0 and later.

A pickle may come from anyone. The unpickler refuses every class, and the type of a value is checked
before the value is hashed, compared or formatted: tuples in tuples can take forever to hash.

Format: torch/csrc/distributed/c10d/FlightRecorder.hpp. Dumps have neither ReduceOp nor root.
"""

from __future__ import annotations

import io
import pickle
import re
from math import prod
from pickle import UnpicklingError
from typing import Any, NoReturn, TypeVar

from distdemo.calls.records import PartialCall, SourceLine
from distdemo.postmortem.content import MAX_TEXT, CallState, Dump, GroupName, name, whole
from distdemo.postmortem.stacks import source_line

MAX_ENTRIES = 100_000  # calls per dump; torch keeps 2,000 unless told otherwise
MAX_FRAMES = 200  # frames per call that are read
Shapes = tuple[tuple[int, ...], ...]
T = TypeVar("T")
_DIGITS = re.compile(r"\d{1,7}")
_PAIR = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")
_STATES: dict[str, CallState] = {
    "scheduled": CallState.SCHEDULED,
    "started": CallState.STARTED,
    "completed": CallState.COMPLETED,
}
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
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


def unpickled(data: bytes) -> object:
    """Return the plain data in a pickle.

    Raises:
        UnpicklingError: It is truncated, or has something other than plain data.
        Exception: It is no pickle.
    """
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except EOFError:
        raise UnpicklingError("truncated") from None
    except UnpicklingError as error:
        if "truncated" in str(error):
            raise UnpicklingError("truncated") from None
        raise


def parse(data: Any) -> Dump:
    """Return the dump in plain data. Every value is checked before it is used.

    Raises:
        LookupError, TypeError, ValueError: It isn't a dump of a known version.
    """
    version = name(_typed(data, dict)["version"])
    if not version.startswith("2."):
        raise ValueError(f"version {version!r} instead of 2")
    entries = _typed(data["entries"], list)
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"it has more than {MAX_ENTRIES:,} calls")
    reader = _Reader(data)
    for entry in entries:
        reader.add(_typed(entry, dict))
    dump = reader.dump
    states = dump.columns[3]
    has_states = CallState.STARTED in states or CallState.COMPLETED in states
    if not (has_states or dump.backend.startswith("nccl")):  # conclude nothing from them
        for place, state in enumerate(states):
            states[place] = CallState.STARTED if state == CallState.SCHEDULED else state
    return dump


def _typed(value: Any, kind: type[T]) -> T:
    """Return a value from outside if it is a dictionary or list, as expected."""
    if type(value) is not kind:
        raise TypeError(f"a {type(value).__name__} instead of a {kind.__name__}")
    return value


def _shapes(value: Any) -> Shapes:
    """Return the shapes of tensors."""
    return tuple(tuple(map(whole, _typed(shape, list))) for shape in _typed(value, list))


class _Reader:
    """Reader of the calls of one dump."""

    def __init__(self, data: dict[str, Any]) -> None:
        library = name(data.get("comm_lib_version") or data.get("nccl_version") or "")
        self.dump = Dump(library=library, is_complete=True)
        self._latest: dict[GroupName, int] = {}  # place of the last call
        self._members: dict[str, tuple[int, ...]] = {}
        self._calls: dict[tuple[object, ...], tuple[int, GroupName]] = {}
        self._lines: dict[tuple[int, ...], SourceLine] = {}
        for group in _typed(data.get("pg_config") or {}, dict).values():
            group_name = name(_typed(group, dict)["name"])
            if type(group["ranks"]) is not str:
                raise ValueError("a group has no members")
            members = tuple(map(int, _DIGITS.findall(group["ranks"])))
            self._members[group_name] = members
            if members and group_name:
                self.dump.span((group_name, name(group["desc"]), members))
        is_only = len(_typed(data.get("pg_status") or {}, dict)) == 1
        self._unnamed = self._members.get("", ()) if is_only else ()  # gloo leaves out the names

    def add(self, entry: dict[str, Any]) -> None:
        """Add a call to the dump."""
        dump = self.dump
        full_name = name(entry["profiling_name"])
        call, group = self._call_and_group(entry, full_name)
        state = _STATES[name(entry["state"])]
        has_ended = state != CallState.COMPLETED and entry.get("retired") is True
        if has_ended and not dump.backend.startswith("nccl"):  # on nccl, it has timed out
            state = CallState.ENDED
        is_pair = _PAIR.search(full_name) is not None
        if is_pair or entry.get("is_p2p") is True:
            if is_pair and state != CallState.COMPLETED:
                dump.add(group, 0, call, CallState.STARTED)
            return
        number = whole(entry.get("collective_seq_id", entry.get("seq_id")))
        reached = dump.span(group).reached
        if number > reached:
            self._latest[group] = len(dump.times)
            dump.add(group, number, call, state, whole(entry.get("time_created_ns", 0)))
        elif number == reached > 0:  # another part of a coalesced call
            _, _, calls, states, _ = dump.columns
            latest = self._latest[group]
            calls[latest] = self._merged(calls[latest], call)
            states[latest] = min(states[latest], state)
        dump.limit_s = dump.limit_s or whole(entry.get("timeout_ms", 0)) / 1000

    def _call_and_group(self, entry: dict[str, Any], full_name: str) -> tuple[int, GroupName]:
        """Return the number of a call and its group."""
        group = entry.get("process_group") or (entry.get("pg_id"), "")
        if type(group) not in (list, tuple):
            raise TypeError("a group has no name")
        group_name, desc = group
        group_name = str(whole(group_name)) if type(group_name) is int else name(group_name)
        frames = _typed(entry.get("frames") or [], list)[:MAX_FRAMES]
        inputs = _shapes(entry["input_sizes"])
        outputs = _shapes(entry["output_sizes"])
        dtypes = tuple(map(name, _typed(entry.get("input_dtypes") or [], list)[:1]))
        key = (full_name, group_name, name(desc), inputs, outputs, dtypes, *map(id, frames))
        known = self._calls.get(key)
        if known is None:
            call = self._call(full_name, inputs, outputs, entry, frames)
            members = self._members.get(group_name, self._unnamed)
            known = self.dump.number(call), (group_name, name(desc), members)
            self._calls[key] = known
        return known

    def _call(
        self,
        full_name: str,
        inputs: Shapes,
        outputs: Shapes,
        entry: dict[str, Any],
        frames: list[Any],
    ) -> PartialCall:
        """Return a call."""
        backend, _, op = full_name.rpartition(":")
        self.dump.backend = self.dump.backend or backend
        op = OPS.get(op.lower(), op)
        pair = _PAIR.search(op)
        side = "output" if op == "scatter" or not inputs else "input"  # only its root has inputs
        shapes = outputs if side == "output" else inputs
        dtypes = _typed(entry.get(f"{side}_dtypes") or entry.get("input_dtypes") or [""], list)
        dtype = name(dtypes[0])
        stack = tuple(map(id, frames))
        line = self._lines.get(stack)
        if line is None:
            line, _ = source_line(
                (name(_typed(frame, dict)["filename"]), whole(frame["line"]), name(frame["name"]))
                for frame in frames
            )
            self._lines[stack] = line
        return PartialCall(
            pair[1] if pair else op,
            line,
            dtype=_DTYPES.get(dtype, dtype.lower()) if shapes else "",
            shape=shapes[0] if shapes else (),
            count=sum(map(prod, shapes)),
            peer=int(pair[3]) if pair else None,
        )

    def _merged(self, first: int, second: int) -> int:
        """Return the number of a coalesced call with one more part."""
        calls = [call for call, _ in self.dump.table]
        one = calls[first]
        other = calls[second]
        if not other.count:
            return first
        count = one.count + other.count
        call = PartialCall(other.op, other.source_line, one.dtype, (count,), count)
        return self.dump.number(call)
