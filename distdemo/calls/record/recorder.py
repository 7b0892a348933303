"""Write the notes of a rank: each call, its outcome, new groups and the end of the program.

``hooks`` and ``kernels`` call this when the program calls torch.distributed. An error here ends the
recording with a reason, and the program continues.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import CodeType, FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed import c10d_logger
from torch.distributed import distributed_c10d as c10d

from distdemo.calls.notes import (
    MAX_KNOWN,
    Checksums,
    EndNote,
    MisuseNote,
    Writer,
    call_line,
    checksums_line,
    destroy_line,
    end_line,
    misuse_line,
    stop_line,
)
from distdemo.calls.record.buffers import Buffers
from distdemo.calls.record.calls import Fields, described
from distdemo.calls.record.checksums import Replicas
from distdemo.calls.record.steps import Steps, in_backward
from distdemo.calls.records import Call, SourceLine
from distdemo.launcher.failures import text_of
from distdemo.launcher.records import headline
from distdemo.launcher.stacks import (
    CELL_FILES,
    is_installed,
    is_library,
    is_ours,
    original_name,
)
from distdemo.view.foreign import write_message

TORCH = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120 - compared with file names of code
MAX_ERROR_CHARS = 400  # characters of an exception's text
MAX_FRAMES = 12  # frames outside the innermost one of the user or a package
API = {c10d.__file__, c10d_logger.__file__}  # its calls are those of its caller
GRAPH = "<eval_with_key>"  # begins the names of the files of graphs
COMPILED = f"{os.sep}torchinductor_"  # in the names of files that torch's compiler writes


def opaque(hook: Callable[..., Any]) -> Any:
    """Keep torch's compiler out of a hook and of everything that it calls.

    It is ``torch.compiler.disable`` without a wrapper and without the time to import the compiler.
    In a release of torch without these functions, compiled programs get more graph breaks.
    """
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    with suppress(AttributeError, RuntimeError, TypeError):
        frames: Any = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(hook.__code__, frames._FrameExecStrategy(skip, skip))
    return hook


class Tracked(NamedTuple):
    """Call that a handle belongs to.

    Attributes:
        number: Number of the call on this rank.
        sync: True if torch waits in the call itself.
        from_any: True for a receive from any rank.
        cpp: True for a call from C++.
    """

    number: int
    sync: bool
    from_any: bool
    cpp: bool = False


class PendingGroup:
    """Placeholder for a group that is being created."""


class Recorder:
    """Records the calls of this rank.

    Args:
        writer: Writer of the notes.
        world: This rank and the world size for the reader of the notes; by default the program's.
        buffers: True to watch the tensors of calls, too.
        replicas: Number of steps between checks of DDP's parameters; 0 for no checks.

    Attributes:
        delays: Seconds to sleep before each of the next calls.
    """

    def __init__(
        self,
        writer: Writer,
        world: tuple[int, int] | None = None,
        *,
        buffers: bool = False,
        replicas: int = 0,
    ) -> None:
        self._writer = writer
        self._world = world
        self._lock = threading.RLock()  # a signal handler may call, too
        self.local = threading.local()
        self.delays: Iterator[float] = iter(())
        self._calls: dict[Any, int] = {}
        self._defined = 0  # calls with a number
        self._code_refs: list[CodeType] = []  # keeps their ids from being reused
        self._groups: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()
        self._group_lines: list[str] = []
        self._pending_groups: dict[tuple[str, tuple[int, ...]], PendingGroup] = {}
        self._same_members: Counter[tuple[tuple[int, ...], str]] = Counter()
        self._numbers = itertools.count()
        self._lone_groups = 0
        self._spare_threads = threading.active_count() - 1  # not of the program
        self._owners: dict[str, str] = {}
        self._works: dict[int, Tracked] = {}
        self._futures: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        guard = partial(safely, self)
        self.buffers = Buffers(guard, self.record_misuse, self.source_line) if buffers else None
        self.replicas = Replicas(replicas, self.record_checksums, self.source_line)
        self.steps = Steps(partial(safely, self), self.replicas)
        self.off = False
        self._renumbered = False  # True in a new world with different rank numbers
        os.register_at_fork(after_in_child=self._stop)

    def _stop(self) -> None:
        self.off = True

    def record_call(self, group: Any, fields: Fields, *, cpp: bool = False) -> int:
        """Record a call and return its number on this rank.

        Args:
            group: Group of the call.
            fields: Result of a function in ``calls.METHODS``.
            cpp: True for a call from C++.
        """
        delay = next(self.delays, 0.0)
        if delay:
            time.sleep(delay)
        self.steps.count_compiled()
        step = self.steps.of_call(group, fields.op) if in_backward() else -1
        if step >= 0:
            self.replicas.reduced.add(group)
        return self._record(fields, group, partial(described, fields), cpp=cpp, step=step)

    @property
    def calls(self) -> int:
        """Number of recorded calls."""
        return self._writer.calls

    @property
    def size(self) -> int:
        """World size for the reader of the notes, or 0 if unknown."""
        return self._world[1] if self._world is not None else 0

    def record_new_group(self, members: tuple[int, ...], how: str = "") -> None:
        """Record a call that creates a group.

        Groups of one rank may differ between ranks: no rank waits in them. But torch numbers
        groups, so all ranks must have created the same number before the next group.

        Args:
            members: Global ranks of the members.
            how: ``init`` for the default group; ``local`` if only the members call it, so it is a
                call on a group of these; empty if the whole world calls it.
        """
        group: Any = dist.group.WORLD
        lone_groups = 0
        if not how:
            lone_groups = self._lone_groups
            if len(members) == 1:
                self._lone_groups += 1
                how, lone_groups = "local", 0
        if how:
            with self._lock:
                group = self._pending_groups.setdefault((how, members), PendingGroup())
                if group not in self._groups:
                    number = next(self._numbers)
                    self._groups[group] = {"": number}
                    self._write_group(f"G {number} 0 {how} {list(members)}")
        op = "init_process_group" if how == "init" else "new_group"
        make = partial(Call, op, members=members, lone_groups=lone_groups)
        self._record((op, members, lone_groups), group, make)

    def record_non_member(self, op: str) -> None:
        """Record a collective on a group that this rank isn't in, where torch does nothing."""
        if op == "monitored_barrier":  # torch's warning is enough: it moves no data
            return
        if self.is_registered(dist.group.WORLD):
            self._record(("outside", op), dist.group.WORLD, partial(Call, f"outside {op}"))

    def _record(
        self,
        what: Any,
        group: Any,
        make: Callable[..., Call],
        *,
        cpp: bool = False,
        step: int = -1,
    ) -> int:
        stack, frames = self._stack(4)
        key = (what, stack, id(group), cpp)
        with self._lock:
            number = self._calls.get(key)
            if number is None:
                call = make(source_line=self._place(frames, cpp=cpp))
                number = self._describe(key, group, call)
                self._code_refs += (frame.f_code for frame in frames)
            line = str(number) if step < 0 else f"{number} {step}"
            index = self._writer.write(line, is_call=True)
            self.local.unaccepted = not cpp
            return index

    def record_accept(self) -> None:
        """Record that torch has accepted this thread's latest call, once."""
        if getattr(self.local, "unaccepted", False):
            self.local.unaccepted = False
            self._write(f"a{self._other_threads()}")

    def _other_threads(self) -> str:
        """Return a mark if there are threads that haven't called, and so may still do so."""
        return " +" if threading.active_count() > self._writer.threads + self._spare_threads else ""

    def record_wait(self, work: Any) -> Tracked | None:
        """Record that a call is waited for, and return it, or None if it isn't a recorded call."""
        waited = self._works.pop(id(work), None)
        if waited is not None and not waited.sync:
            self._write(f"w {waited.number}{self._other_threads()}")
        return waited

    def record_wait_after_backward(self, number: int) -> None:
        """Record that this thread waits for a call when the gradients are computed.

        The engine calls functions in the order in which they were queued: ours before DDP's, which
        waits for all calls. The last call can only be over if its group made the ones before.
        """
        task = torch._C._current_graph_task_id()
        queued = getattr(self.local, "queued", -1) == task
        self.local.queued, self.local.last_in_backward = task, number
        if not queued:
            torch.autograd.Variable._execution_engine.queue_callback(self._wait_after_backward)

    @opaque
    def _wait_after_backward(self) -> None:
        number = self.local.last_in_backward
        safely(self, self._write, f"w {number}{self._other_threads()}")

    def track_future(self, future: Any, work: Any) -> None:
        """Remember the call whose result a future will have."""
        tracked = self._works.get(id(work))
        if tracked is not None and not tracked.sync:
            self._futures[future] = tracked

    def record_no_wait(self, work: Any, *, done: bool) -> None:
        """Record that a call needn't be waited for. If it is done, record no more polls of it."""
        tracked = self._works.get(id(work))
        if tracked is not None and not (tracked.sync or tracked.cpp):
            self._write(f"n {tracked.number}")
            if done and not tracked.from_any:  # only a wait tells the sender
                self.track(work, tracked._replace(sync=True))

    def derive_future(self, future: Any, *origins: Any) -> None:
        """Remember the futures that a future waits for."""
        known = tuple(each for each in origins if each in self._futures)
        if known:
            self._futures[future] = known

    def record_future_wait(self, future: Any) -> Tracked | None:
        """Record that the call of a future is waited for, and return it."""
        known = self._futures.pop(future, None)
        for origin in () if known is None or isinstance(known, Tracked) else known:
            with suppress(Exception):  # the future itself raises it, too
                origin.wait()
        if not isinstance(known, Tracked):
            return None
        self._write(f"w {known.number}{self._other_threads()}")
        return known._replace(from_any=False)  # only a handle knows the sender

    def record_return(self, source: int = -1) -> None:
        """Record that the call or wait has returned.

        Args:
            source: Group rank of the sender for a receive from any rank, or −1.
        """
        self._write("r" if source < 0 else f"r {source}")

    def record_failure(self, *, accepted: bool) -> None:
        """Record that the call or wait raised.

        Args:
            accepted: True if torch had accepted the call.
        """
        self._write("f" if accepted else "u")

    def _write(self, line: str) -> None:
        with self._lock:
            self._writer.write(line)

    def _write_group(self, line: str) -> None:
        self._group_lines.append(line)
        self._writer.write(line)

    def _forget_calls(self) -> None:
        """Define each call again when it is made next."""
        self._calls.clear()
        self._defined = 0
        self._code_refs.clear()

    def start_copy(self) -> bytearray:
        """Return a buffer that gets every note from now on, and the definitions that they need."""
        with self._lock:
            self._forget_calls()
            copy = bytearray("".join(f"{line}\n" for line in self._group_lines), "ascii")
            self._writer.copies.append(copy)
        return copy

    def stop_copy(self, copy: bytearray) -> None:
        """Write no more notes to this buffer."""
        with self._lock:
            self._writer.copies = [each for each in self._writer.copies if each is not copy]

    @contextmanager
    def record_meeting(self, name: str) -> Iterator[None]:
        """Record that this rank waits within the block until every rank of the world does."""
        self._record((name,), dist.group.WORLD, partial(Call, name))
        self.record_accept()
        yield
        self.record_return()

    def record_misuse(self, misuse: MisuseNote) -> None:
        """Record a misuse of a call's memory."""
        self._write(misuse_line(misuse))

    def check_replicas(self, group: Any, replicas: Any) -> None:
        """Record checksums of tensors that the program names."""
        group = group or dist.group.WORLD
        if self.is_registered(group):
            safely(self, self.replicas.check, group, replicas)

    def record_checksums(self, group: Any, number: str, checksums: Checksums) -> None:
        """Record checksums of tensors that must be equal on all ranks of a group."""
        numbers = self._groups[group]
        self._write(checksums_line(numbers[min(numbers)], number, checksums))

    def source_line(self) -> SourceLine:
        """Return the user's line that this is called from."""
        return self._place(self._stack(2)[1])

    def record_end(
        self, error: BaseException | None, source_line: SourceLine | None = None
    ) -> None:
        """Record the end of the program; ``source_line`` is for an error without a traceback."""
        if self.buffers is not None and error is None:
            for misuse in self.buffers.unwaited():
                self.record_misuse(misuse)
        ended = EndNote("returned") if error is None else _exception_note(error)
        self._write(end_line(replace(ended, source_line=source_line) if source_line else ended))

    def track(self, work: Any, waited: Tracked) -> None:
        """Remember the call that a handle belongs to."""
        if len(self._works) > MAX_KNOWN:
            self._works.clear()
        self._works[id(work)] = waited

    def register(self, group: Any) -> None:
        """Record a new group. Groups with the same members are distinguished by their order.

        If devices have different backends, each backend has its own sequence of calls.
        """
        world = dist.group.WORLD
        here = None if world is None else (world.rank(), world.size())
        if self._world is not None and group is world:
            self._renumbered = here != self._world
            alike = here is not None and here[1] == self._world[1]  # other ranks may keep theirs
            if self._renumbered and (alike or not self._same_members):
                self.stop("the program numbers its ranks differently from the launcher")
        if group in self._groups or self.off or self._renumbered:
            return
        members = tuple(int(rank) for rank in c10d._world.pg_group_ranks[group])
        pairs = [part.partition(":")[::2] for part in _backends(group).split(",")]
        several = len({backend for _, backend in pairs}) > 1
        with self._lock:
            self._forget_calls()  # their keys contain group addresses, which may be reused
            numbers = self._groups[group] = {}
            for device, backend in pairs if several else [("", pairs[0][1])]:
                name = f"{backend}/{device}" if several else backend
                nth, number = self._same_members[members, name], next(self._numbers)
                self._same_members[members, name] += 1
                self._write_group(f"G {number} {nth} {name} {list(members)}")
                numbers[device] = number

    def record_destroy(self, group: Any) -> None:
        """Record that the program destroys a group, unless Python does so at exit."""
        source_line = self.source_line()
        if self._owners.get(source_line.file) != "user":
            return
        all_of_them = group is None or group is dist.group.WORLD
        error = sys.exc_info()[1]
        failing = "" if error is None else _exception_note(error).how
        with self._lock:
            groups = [
                number
                for each, numbers in self._groups.items()
                if each is group or (all_of_them and isinstance(each, dist.ProcessGroup))
                for number in numbers.values()
            ]
            if groups:
                self._writer.write(destroy_line(groups, source_line, failing))

    def is_registered(self, group: Any) -> bool:
        """Return True if the group was registered."""
        return group in self._groups

    def stop(self, why: str) -> None:
        """Stop recording, which ends the comparison for all ranks; the program continues."""
        if self.off:
            return
        self.off = True
        try:
            self._write(stop_line(why[:MAX_ERROR_CHARS]))
        except (OSError, ValueError):  # the launcher can't be told
            write_message(f"distdemo's sanitizer stopped on this rank: {why}\n")

    def fail(self, error: BaseException) -> None:
        """Stop recording because of an internal error."""
        self.stop(f"{type(error).__name__}: {error}")

    def _stack(self, depth: int) -> tuple[tuple[int, ...], list[FrameType]]:
        """Return the frames of the user and of installed packages, innermost first, and a key.

        Packages count only up to the user's innermost frame.

        Args:
            depth: Number of inner frames to skip.
        """
        frame: FrameType | None = sys._getframe(depth)
        owners, left, user = self._owners, MAX_FRAMES, False
        found: list[FrameType] = []
        key: list[int] = []
        while frame is not None and left:
            code = frame.f_code
            owner = owners.get(code.co_filename)
            if owner is None:
                owner = owners[code.co_filename] = owner_of(code.co_filename)
            if owner == "user" or (owner == "package" and not user):
                found.append(frame)
                key += id(code), frame.f_lasti
                if owner == "user":
                    if code.co_name == "<module>":
                        break
                    user = True
            elif found and owner == "ours":
                break
            if found:
                left -= 1
            frame = frame.f_back
        return tuple(key), found

    def _place(self, found: list[FrameType], *, cpp: bool = False) -> SourceLine:
        """Return the source line for the frames that ``_stack`` found."""
        part = part_of_torch(found[0] if found else None, self._owners)
        via, within = (part or "torch's C++", "") if cpp else ("", part)
        if not found:
            return SourceLine(via=via, within=within)
        owners = [self._owners[frame.f_code.co_filename] for frame in found]
        at = owners.index("user") if "user" in owners else 0
        lines = [str(line_of(frame.f_code, frame.f_lineno)) for frame in found]
        inner, callers = tuple(lines[:at]), tuple(lines[at + 1 :])
        line = line_of(found[at].f_code, found[at].f_lineno)
        return replace(line, via=via, within=within, inner=inner, callers=callers)

    def _describe(self, key: Any, group: Any, call: Call) -> int:
        if len(self._calls) >= MAX_KNOWN:
            self._forget_calls()
        number = self._defined  # no handler runs within these lines either: see Writer.write
        self._defined = number + 1
        self._calls[key] = number
        devices = self._groups[group]
        group_number = devices[""] if "" in devices else devices.get(call.device or "cpu", 0)
        self._writer.write(call_line(number, group_number, call))
        return number


def _backends(group: Any) -> str:
    """Return the backends of a group, ``cpu:gloo,cuda:nccl``."""
    try:
        found = str(dist.get_backend_config(group))
    except (KeyError, RuntimeError, ValueError):
        found = ""
    return found if ":" in found else f":{dist.get_backend(group)}"


def line_of(code: CodeType, line: int) -> SourceLine:
    """Return a line of a function, also if torch's compiler has split the function."""
    return SourceLine(code.co_filename, line or code.co_firstlineno, original_name(code.co_name))


def owner_of(file: str) -> str:
    """Return the owner of code: ``user``, ``package``, ``ours``, ``torch`` or ``library``."""
    if is_ours(file):
        return "ours"
    if file.startswith(CELL_FILES):
        return "user"
    if file.startswith(("<", TORCH)) or COMPILED in file:
        return "torch"
    if not is_library(file):
        return "user"
    if file.endswith("typing_extensions.py"):  # its wrapper around deprecated functions
        return "library"
    return "package" if is_installed(file) else "library"


def part_of_torch(until: FrameType | None, owners: dict[str, str]) -> str:
    """Return the part of torch that makes the call, or an empty text if the user's code does.

    Args:
        until: Innermost frame of the user or a package; None if the thread has none.
        owners: Owner of each file.
    """
    frame: FrameType | None = sys._getframe(1)
    named = inner = outer = ""
    while frame is not None and frame is not until:
        file = frame.f_code.co_filename
        if file.startswith(GRAPH) or COMPILED in file:
            named = named or "a compiled graph"
        elif owners.get(file) == "torch" and not file.startswith("<") and file not in API:
            named = named or _known_part(file, frame.f_code.co_name)
            outer = _public(frame.f_globals.get("__name__", "")) or outer
            inner = inner or outer
        frame = frame.f_back
    if until is None and outer:
        inner = f"{outer}'s thread"
    return named or inner


def _known_part(file: str, function: str) -> str:
    """Return the name that users know for a function of torch, or an empty text."""
    file = file.replace("\\", "/")
    if file.endswith("/torch/_tensor.py") and function == "backward":
        return "backward()"
    if file.endswith("/torch/nn/parallel/distributed.py"):
        return "DDP's constructor" if function == "__init__" else f"DDP's {function}"
    if file.endswith("/torch/distributed/_functional_collectives.py"):
        return f"functional {function}"
    return "DTensor" if "/torch/distributed/tensor/" in file else ""


def _public(module: str) -> str:
    """Return the public part of a module's name; empty for ``torch`` alone."""
    parts = itertools.takewhile(lambda part: not part.startswith("_"), module.split("."))
    name = ".".join(parts)
    return name if "." in name else ""


def _exception_note(error: BaseException) -> EndNote:
    """Return the end note of a program that raised."""
    source_line, inside = SourceLine(), ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        owner, here = owner_of(code.co_filename), line_of(code, trace.tb_lineno)
        if owner == "user":
            source_line, inside = here, ""
        elif owner == "package" and source_line.line:
            source_line, inside = replace(source_line, inner=(str(here), *source_line.inner)), ""
        elif code.co_filename == c10d.__file__ and not inside:
            inside = "" if code.co_name == "monitored_barrier" else code.co_name
        trace = trace.tb_next
    if isinstance(error, SystemExit):
        how = "returned" if error.code in (None, 0) else f"exited with {error.code}"
        return EndNote(how, source_line)
    said = re.sub(r" at 0x[0-9a-f]+", "", headline(text_of(error)))[:MAX_ERROR_CHARS]
    return EndNote(f"raised {type(error).__name__}: {said}", source_line, inside)


def safely(recorder: Recorder, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function unless recording has stopped; an exception only stops the recording."""
    if recorder.off:
        return None
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001 - the program must not be affected
        recorder.fail(error)
        return None
