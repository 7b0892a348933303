"""Read dumps of torch's flight recorder: pickles and JSON, versions 2.0 and later.

A pickle may come from anyone. The unpickler refuses every class; worker processes with limited
memory read the files, so that a pickle that crashes the interpreter only costs its own worker.

Format: torch/csrc/distributed/c10d/FlightRecorder.hpp. Dumps have neither ReduceOp nor root.
"""

from __future__ import annotations

import gc
import io
import os
import pickle  # noqa: S403 - see `_Unpickler`
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from math import prod
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NoReturn

from distdemo.encoding import loads
from distdemo.files import MAX_BYTES, MEMORY_BYTES, limit_memory, read_file
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
from distdemo.sanitizer.records import Call

MAX_ENTRIES = 1_000_000  # calls per dump; torch keeps 2,000 unless told otherwise
MAX_FRAMES = 200  # frames per call that are read
MAX_TENSORS = 10_000  # tensors per call
MAX_DIMS = 64
MAX_MEMBERS = 1 << 20  # members of all groups of a rank
MAX_TEXT = 500  # characters of a name
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
_ERRORS = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


class _Unpickler(pickle.Unpickler):
    """Unpickler for dictionaries, lists, tuples, strings and numbers."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuse every class and function."""
        raise pickle.UnpicklingError(f"contains {module}.{name}, which isn't data"[:MAX_TEXT])

    def persistent_load(self, pid: object, /) -> NoReturn:
        """Refuse references to other objects."""
        raise pickle.UnpicklingError("refers to another object")


def is_pickle(head: bytes) -> bool:
    """Return True if a file with these first bytes is a pickle with a protocol number."""
    return head[:1] == b"\x80" and 2 <= head[1] <= pickle.HIGHEST_PROTOCOL


def read_dumps(paths: Sequence[Path]) -> dict[Path, Dump | str]:
    """Return the dump in each file, or why it can't be read."""
    return dict(_in_workers(paths))


def _in_workers(paths: Sequence[Path]) -> Iterator[tuple[Path, Dump | str]]:
    """Yield each file's dump. Files that a crashed worker had are read again, one per worker."""
    found: dict[Path, Dump | str] = {}
    left = _results(paths, os.cpu_count() or 1, found)
    yield from found.items()
    for path in left:
        alone: dict[Path, Dump | str] = {}
        crashed = _results([path], 1, alone)
        yield path, "crashes the interpreter" if crashed else alone[path]


def _results(paths: Sequence[Path], workers: int, found: dict[Path, Dump | str]) -> list[Path]:
    """Read files in worker processes; return those without a result because a worker crashed."""
    initializer = partial(_limit, MEMORY_BYTES)
    crashed = []
    with ProcessPoolExecutor(min(workers, len(paths)), get_context("fork"), initializer) as pool:
        futures: dict[Path, Future[Dump | str]] = {p: pool.submit(_read, p) for p in paths}
        for path in paths:
            try:
                found[path] = futures.pop(path).result()
            except BrokenProcessPool:
                crashed.append(path)
            except BaseException:  # Ctrl-C, or SIGTERM
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return crashed


def _limit(memory: int) -> None:
    limit_memory(memory)
    gc.disable()  # a dump has no cycles, and collecting takes a third of the time


def _read(path: Path) -> Dump | str:
    """Return the dump in a file, or why it can't be read."""
    try:
        data = read_file(path)
        if is_pickle(data[:2]):
            return parse(_Unpickler(io.BytesIO(data)).load())
        return parse(loads(data, max_bytes=MAX_BYTES))
    except MemoryError:
        return f"needs more than {MEMORY_BYTES >> 20} MiB of memory"
    except (EOFError, pickle.UnpicklingError) as error:
        cut = isinstance(error, EOFError) or "truncated" in str(error)
        return "truncated" if cut else str(error)[:MAX_TEXT] or "not a pickle"
    except _ERRORS as error:
        return f"not a flight recorder's dump ({type(error).__name__}: {error})"[:MAX_TEXT]


def parse(data: Any) -> Dump:  # noqa: ANN401 - plain data of any kind
    """Return the dump in plain data.

    Raises:
        LookupError, OverflowError, TypeError, ValueError: It isn't a dump of a known version.
    """
    entries = data["entries"]
    version = str(data["version"])[:MAX_TEXT]
    if not version.startswith("2."):
        raise ValueError(f"version {version!r} instead of 2")
    if not isinstance(entries, list) or len(entries) > MAX_ENTRIES:
        raise ValueError("its entries are no list, or too many")
    library = str(data.get("comm_lib_version") or data.get("nccl_version") or "")[:MAX_TEXT]
    dump = Dump(library=library, is_complete=True)
    single = len(data.get("pg_status") or ()) == 1
    groups = _Groups(data.get("pg_config") or {}, dump, single=single)
    _Entries(dump, groups).read(entries)
    if not dump.backend.startswith("nccl"):
        _without_states(dump)
    return dump


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
        self._keys: dict[tuple[object, ...], GroupKey] = {}
        for each in config.values():
            members = tuple(int(n) for n in re.findall(r"\d{1,9}", str(each["ranks"])))
            if sum(map(len, self._members.values())) + len(members) > MAX_MEMBERS:
                raise ValueError("its groups have too many members")
            self._members[str(each["name"])] = members
            if single and not each["name"]:
                self._of_all = members
            if members and each["name"]:
                dump.groups.append(self.key((each["name"], each["desc"])))

    def key(self, named: Sequence[object]) -> GroupKey:
        """Return the key of the group with this name and description."""
        known = self._keys.get(tuple(named))
        if known is None:
            name, desc = (str(each)[:MAX_TEXT] for each in named)
            members = self._members.get(name, self._of_all)
            known = self._keys[tuple(named)] = (name, desc, members)
        return known


class _Entries:
    """Reader of the calls of one dump."""

    def __init__(self, dump: Dump, groups: _Groups) -> None:
        self._dump = dump
        self._groups = groups
        self._known: dict[tuple[object, ...], tuple[int, GroupKey]] = {}
        self._index: dict[object, int] = {}

    def read(self, entries: list[dict[str, Any]]) -> None:
        """Add all calls to the dump."""
        dump, known, tracks = self._dump, self._known, self._dump.tracks
        for order, entry in enumerate(entries):
            frames = entry.get("frames") or ()
            group = entry.get("process_group") or (entry.get("pg_id"), "")
            name = entry["profiling_name"]
            key = (
                name,
                *group,
                repr(entry["input_sizes"]),
                repr(entry["output_sizes"]),
                repr(entry.get("input_dtypes")),
                *map(id, frames),
            )
            found = known.get(key)
            if found is None:
                found = known[key] = self._call(entry, frames), self._groups.key(group)
            call, group_key = found
            state = _STATES[entry["state"]]
            if state != COMPLETED and entry.get("retired") and not dump.backend.startswith("nccl"):
                state = ENDED  # on nccl, it has timed out
            pair = _PAIR.search(name)
            if pair or entry.get("is_p2p"):
                if pair and state != COMPLETED:
                    sends, peer = pair[1] == "send", int(pair[3])
                    dump.pairs.append(Pair(group_key, call, sends, peer, order))
                continue
            number = int(entry.get("collective_seq_id", entry.get("seq_id", -1)))
            if not 0 <= number < 1 << 63:
                raise ValueError("a call has no possible number")
            track = tracks.get(group_key)
            if track is None or number > track.reached + 1:  # the recorder has lost calls
                track = tracks[group_key] = Track(number)
            if number == track.reached + 1:
                track.add(call, state, order, entry.get("time_created_ns", 0))
            elif number == track.reached:  # another part of a coalesced call
                track.calls[-1] = self._merged(track.calls[-1], call)
                track.states[-1] = min(track.states[-1], state)
            if not dump.limit_s:
                dump.limit_s = float(entry.get("timeout_ms", 0)) / 1000

    def _call(self, entry: dict[str, Any], frames: Sequence[dict[str, Any]]) -> int:
        backend, _, name = str(entry["profiling_name"])[:MAX_TEXT].rpartition(":")
        self._dump.backend = self._dump.backend or backend
        op = OPS.get(name.lower(), _PAIR.sub(r"\1", name))
        side = "output" if op in _FROM_OUTPUT or not entry["input_sizes"] else "input"
        sizes = entry[f"{side}_sizes"]
        if len(sizes) > MAX_TENSORS:
            raise ValueError("a call has too many tensors")
        dtypes = entry.get(f"{side}_dtypes") or entry.get("input_dtypes") or ("",)
        line, _ = source_line(
            (str(each["filename"])[:MAX_TEXT], int(each["line"]), str(each["name"])[:MAX_TEXT])
            for each in frames[:MAX_FRAMES]
        )
        dtype = str(dtypes[0])[:MAX_TEXT]
        return self._number(
            Call(
                op,
                line,
                dtype=_DTYPES.get(dtype, dtype.lower()) if sizes else "",
                shape=_shape(sizes[0]) if sizes else (),
                count=sum(prod(_shape(size)) for size in sizes),
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


def _shape(sizes: Sequence[int]) -> tuple[int, ...]:
    if len(sizes) > MAX_DIMS or not all(0 <= int(size) < 1 << 63 for size in sizes):
        raise ValueError("a tensor has no possible shape")
    return tuple(map(int, sizes))


def _without_states(dump: Dump) -> None:
    """Mark calls of a backend that records no states, so that nothing is concluded from them."""
    tracks = dump.tracks.values()
    if not any(state in (STARTED, COMPLETED) for track in tracks for state in set(track.states)):
        for track in tracks:
            track.states = track.states.replace(bytes([SCHEDULED]), bytes([STARTED]))
