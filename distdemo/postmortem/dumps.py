"""Read dumps of torch's flight recorder: pickles and JSON, versions 2.0 and later.

A pickle may come from anyone. The unpickler refuses every class, and the type of a value is checked
before the value is hashed, compared or formatted: tuples in tuples can take forever to hash.

Format: torch/csrc/distributed/c10d/FlightRecorder.hpp. Dumps have neither ReduceOp nor root.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Mapping
from math import prod
from pickle import UnpicklingError
from typing import Any, NoReturn, TypeVar

from distdemo.calls.records import Call, SourceLine
from distdemo.postmortem.evidence import (
    COMPLETED,
    ENDED,
    SCHEDULED,
    STARTED,
    Dump,
    GroupKey,
    Pair,
    Track,
    source_line,
)
from distdemo.postmortem.parts import MAX_TEXT, name, whole

MAX_ENTRIES = 100_000  # calls per dump; torch keeps 2,000 unless told otherwise
MAX_PARTS = 10_000_000  # frames and tensors per dump
MAX_GROUPS = 10_000  # groups per dump
MAX_FRAMES = 200  # frames per call that are read
MAX_TENSORS = 10_000  # tensors per call
MAX_DIMS = 64
MAX_MEMBERS = 1 << 20  # members of all groups of a rank
MAX_RANKS_TEXT = 8 * MAX_MEMBERS  # characters
Sizes = tuple[tuple[int, ...], ...]
T = TypeVar("T")
_DIGITS = re.compile(r"\d{1,7}")
_PAIR = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")
_STATES = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}
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
_FROM_OUTPUT = {"scatter"}  # ops whose input only the root has


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
    data = _typed(data, dict)
    version = name(data["version"])
    if not version.startswith("2."):
        raise ValueError(f"version {version!r} instead of 2")
    entries = _typed(data["entries"], list)
    if len(entries) > MAX_ENTRIES:
        raise ValueError(f"it has more than {MAX_ENTRIES:,} calls")
    library = name(data.get("comm_lib_version") or data.get("nccl_version") or "")
    dump = Dump(library=library, is_complete=True)
    single = len(_typed(data.get("pg_status") or {}, dict)) == 1
    groups = _Groups(_typed(data.get("pg_config") or {}, dict), dump, single=single)
    _Entries(dump, groups).read(entries)
    if not dump.backend.startswith("nccl"):
        _without_states(dump)
    return dump


def _typed(value: Any, kind: type[T]) -> T:
    """Return a value from outside if it is a dictionary or list, as expected."""
    if type(value) is not kind:
        raise TypeError(f"a {type(value).__name__} instead of a {kind.__name__}")
    return value


class _Groups:
    """Groups of a dump, by the names that its entries use.

    Args:
        config: Groups as the dump has them. gloo leaves out their names.
        dump: Dump that gets them.
        single: True if the rank has made calls on one group only.
    """

    def __init__(self, config: Mapping[str, Any], dump: Dump, *, single: bool) -> None:
        self._members: dict[str, tuple[int, ...]] = {}
        self._of_all: tuple[int, ...] = ()
        self._keys: dict[tuple[str, str], GroupKey] = {}
        member_count = 0
        for each in config.values():
            group, desc = name(_typed(each, dict)["name"]), name(each["desc"])
            ranks = each["ranks"]
            if type(ranks) is not str or len(ranks) > MAX_RANKS_TEXT:
                raise ValueError("a group has no members")
            members = tuple(map(int, _DIGITS.findall(ranks)))
            member_count += len(members)
            if member_count > MAX_MEMBERS:
                raise ValueError("its groups have too many members")
            self._members[group] = members
            if single and not group:
                self._of_all = members
            if members and group:
                dump.groups.append(self.key(group, desc))

    def key(self, group: str, desc: str) -> GroupKey:
        """Return the key of the group with this name and description.

        Raises:
            ValueError: There are too many groups.
        """
        known = self._keys.get((group, desc))
        if known is None:
            if len(self._keys) >= MAX_GROUPS:
                raise ValueError("it has too many groups")
            members = self._members.get(group, self._of_all)
            known = self._keys[group, desc] = (group, desc, members)
        return known


class _Entries:
    """Reader of the calls of one dump."""

    def __init__(self, dump: Dump, groups: _Groups) -> None:
        self._dump = dump
        self._groups = groups
        self._known: dict[tuple[object, ...], tuple[int, GroupKey]] = {}
        self._lines: dict[tuple[int, ...], SourceLine] = {}
        self._index: dict[object, int] = {}
        self._left = MAX_PARTS

    def read(self, entries: list[Any]) -> None:
        """Add all calls to the dump."""
        dump, tracks = self._dump, self._dump.tracks
        for order, entry in enumerate(entries):
            full_name = name(_typed(entry, dict)["profiling_name"])
            call, group_key = self._call_and_group(entry, full_name)
            state = _STATES[name(entry["state"])]
            if (
                state != COMPLETED
                and entry.get("retired") is True
                and not dump.backend.startswith("nccl")
            ):
                state = ENDED  # on nccl, it has timed out
            pair = _PAIR.search(full_name)
            if pair or entry.get("is_p2p") is True:
                if pair and state != COMPLETED:
                    sends, peer = pair[1] == "send", int(pair[3])
                    dump.pairs.append(Pair(group_key, call, sends, peer, order))
                continue
            number = whole(entry.get("collective_seq_id", entry.get("seq_id")))
            track = tracks.get(group_key)
            if track is None or number > track.reached + 1:  # the recorder has lost calls
                track = tracks[group_key] = Track(number)
            if number == track.reached + 1:
                track.add(call, state, order, whole(entry.get("time_created_ns", 0)))
            elif number == track.reached:  # another part of a coalesced call
                track.calls[-1] = self._merged(track.calls[-1], call)
                track.states[-1] = min(track.states[-1], state)
            if not dump.limit_s:
                dump.limit_s = whole(entry.get("timeout_ms", 0)) / 1000

    def _call_and_group(self, entry: dict[str, Any], full_name: str) -> tuple[int, GroupKey]:
        """Return the number of a call and its group."""
        frames = _typed(entry.get("frames") or [], list)[:MAX_FRAMES]
        group = entry.get("process_group") or (entry.get("pg_id"), "")
        if type(group) not in (list, tuple):
            raise TypeError("a group has no name")
        group_name, desc = group
        group_name = str(whole(group_name)) if type(group_name) is int else name(group_name)
        inputs = self._sizes(entry["input_sizes"])
        outputs = self._sizes(entry["output_sizes"])
        dtypes = tuple(map(name, _typed(entry.get("input_dtypes") or [], list)[:1]))
        self._left -= len(frames) + len(inputs) + len(outputs)
        if self._left < 0:
            raise ValueError("its calls have too many frames and tensors")
        key = (full_name, group_name, name(desc), inputs, outputs, dtypes, *map(id, frames))
        known = self._known.get(key)
        if known is None:
            group_key = self._groups.key(group_name, name(desc))
            number = self._call(full_name, inputs, outputs, entry, frames)
            known = self._known[key] = number, group_key
        return known

    def _sizes(self, value: Any) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of tensors."""
        if len(_typed(value, list)) > MAX_TENSORS:
            raise ValueError("a call has too many tensors")
        shapes = []
        for shape in value:
            if len(_typed(shape, list)) > MAX_DIMS:
                raise ValueError("a tensor has too many dimensions")
            shapes.append(tuple(map(whole, shape)))
        return tuple(shapes)

    def _call(
        self,
        full_name: str,
        inputs: Sizes,
        outputs: Sizes,
        entry: dict[str, Any],
        frames: list[Any],
    ) -> int:
        """Return the number of a call."""
        backend, _, op_name = full_name.rpartition(":")
        self._dump.backend = self._dump.backend or backend
        op = OPS.get(op_name.lower(), _PAIR.sub(r"\1", op_name))
        side = "output" if op in _FROM_OUTPUT or not inputs else "input"
        sizes = outputs if side == "output" else inputs
        dtypes = _typed(entry.get(f"{side}_dtypes") or entry.get("input_dtypes") or [""], list)
        stack = tuple(map(id, frames))
        line = self._lines.get(stack)
        if line is None:
            line, _ = source_line(
                (name(_typed(each, dict)["filename"]), whole(each["line"]), name(each["name"]))
                for each in frames
            )
            self._lines[stack] = line
        dtype = name(dtypes[0])
        return self._number(
            Call(
                op,
                line,
                dtype=_DTYPES.get(dtype, dtype.lower()) if sizes else "",
                shape=sizes[0] if sizes else (),
                count=sum(map(prod, sizes)),
            )
        )

    def _merged(self, first: int, second: int) -> int:
        """Return the number of a coalesced call with one more part."""
        one, other = self._dump.calls[first], self._dump.calls[second]
        if not other.count:
            return first
        return self._number(
            Call(
                other.op,
                other.source_line,
                dtype=one.dtype,
                shape=(one.count + other.count,),
                count=one.count + other.count,
            )
        )

    def _number(self, call: Call) -> int:
        number = self._index.setdefault((call, call.source_line.stack), len(self._index))
        if number == len(self._dump.calls):
            self._dump.calls.append(call)
        return number


def _without_states(dump: Dump) -> None:
    """Mark calls of a backend that records no states, so that nothing is concluded from them."""
    tracks = dump.tracks.values()
    if not any(state in (STARTED, COMPLETED) for track in tracks for state in set(track.states)):
        for track in tracks:
            track.states = track.states.replace(bytes([SCHEDULED]), bytes([STARTED]))
