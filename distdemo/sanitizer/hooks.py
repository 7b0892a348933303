"""Hooks that record each collective before it is called.

Calls from Python are recorded by the methods of ``ProcessGroup``, which are replaced on the class
and on subclasses that override them, such as our mpi backend. It doesn't matter how a program
imported ``dist.all_reduce``. Calls from C++ (DDP's reducer) are recorded by ``kernels``, which is
installed when the first DDP module is created.

An error in this module ends the recording with a reason, and the program continues.
"""

from __future__ import annotations

import inspect
import itertools
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial, wraps
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d as c10d

from distdemo.launcher.failures import text_of
from distdemo.launcher.records import headline
from distdemo.launcher.stacks import is_library, is_ours
from distdemo.sanitizer.buffers import Buffers, is_strided
from distdemo.sanitizer.calls import METHODS, Fields, described
from distdemo.sanitizer.notes import (
    MAX_KNOWN,
    Ended,
    Ring,
    Touched,
    Writer,
    call_line,
    destroy_line,
    end_line,
    shared,
    stop_line,
    touched_line,
)
from distdemo.sanitizer.records import Call, Notes, SourceLine
from distdemo.view.foreign import write_message

TORCH = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120 - compared with file names of code
POSITION_OF_SIZE = 3  # index of world_size in the arguments of init_process_group
MAX_ERROR_CHARS = 400  # characters of an exception's text
MAX_FRAMES = 12  # frames between a user's function and its caller


_HOME = "torch.distributed"
_COUNT = len(sys.modules)
_LOADED = [module for name, module in sys.modules.items() if name.startswith(_HOME)]


class Tracked(NamedTuple):
    """Call that a handle belongs to.

    Attributes:
        number: Number of the call on this rank.
        sync: True if torch waits in the call itself.
        from_any: True for a receive from any rank.
    """

    number: int
    sync: bool
    from_any: bool


class PendingGroup:
    """Placeholder for a group that is being created."""


class Recorder:
    """Records the calls of this rank.

    Args:
        writer: Writer of the notes.
        world: This rank and the world size for the reader of the notes; by default the program's.
        buffers: True to watch the tensors of calls, too.
    """

    def __init__(
        self, writer: Writer, world: tuple[int, int] | None = None, *, buffers: bool = False
    ) -> None:
        self._writer = writer
        self._world = world
        self._lock = threading.RLock()  # a signal handler may call, too
        self.local = threading.local()
        self._calls: dict[Any, int] = {}
        self._code_refs: list[CodeType | None] = []  # keeps their ids from being reused
        self._groups: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()
        self._pending_groups: dict[tuple[str, tuple[int, ...]], PendingGroup] = {}
        self._same_members: Counter[tuple[tuple[int, ...], str]] = Counter()
        self._numbers = itertools.count()
        self._spare_threads = threading.active_count() - 1  # not of the program
        self._kinds: dict[str, str] = {}
        self._count = 0
        self._works: dict[int, Tracked] = {}
        guard = partial(safely, self)
        self.buffers = Buffers(guard, self.record_touched, self.source_line) if buffers else None
        self.off = False
        self._renumbered = False  # True in a new world with different rank numbers
        os.register_at_fork(after_in_child=self._stop)

    def _stop(self) -> None:
        self.off = True

    def record_call(self, group: Any, fields: Fields, via: str = "") -> int:  # noqa: ANN401 - a group
        """Record a call and return its number on this rank.

        Args:
            group: Group of the call.
            fields: Result of a function in ``calls.METHODS``.
            via: Part of torch that made the call, or empty.
        """
        return self._record(fields, group, partial(described, fields), via)

    @property
    def calls(self) -> int:
        """Number of recorded calls."""
        return self._count

    @property
    def size(self) -> int:
        """World size for the reader of the notes, or 0 if unknown."""
        return self._world[1] if self._world is not None else 0

    def record_new_group(self, members: tuple[int, ...], how: str = "") -> None:
        """Record a call that creates a group.

        Args:
            members: Global ranks of the members.
            how: ``init`` for the default group; ``local`` if only the members call it, so it is a
                call on a group of these; empty if the whole world calls it.
        """
        group: Any = dist.group.WORLD
        if how:
            with self._lock:
                group = self._pending_groups.setdefault((how, members), PendingGroup())
                if group not in self._groups:
                    number = next(self._numbers)
                    self._groups[group] = {"": number}
                    self._writer.write(f"G {number} 0 {how} {list(members)}")
        op = "init_process_group" if how == "init" else "new_group"
        self._record((op, members), group, partial(Call, op, members=members))

    def record_non_member(self, op: str) -> None:
        """Record a collective on a group that this rank isn't in, where torch does nothing."""
        if self.is_registered(dist.group.WORLD):
            self._record(("outside", op), dist.group.WORLD, partial(Call, f"outside {op}"))

    def _record(self, what: Any, group: Any, make: Callable[..., Call], via: str = "") -> int:  # noqa: ANN401 - a hashable key; a group
        code, line, caller, called_at = self._user_lines()
        key = (what, id(code), line, id(caller), called_at, id(group), via)
        with self._lock:
            number = self._calls.get(key)
            if number is None:
                source_line = replace(_source_line(code, line, caller, called_at), via=via)
                number = self._describe(key, group, make(source_line=source_line))
                self._code_refs += (code, caller)
            self._writer.write(str(number))
            self.local.unaccepted = not via
            self._count += 1
            return self._count - 1

    def record_accept(self) -> None:
        """Record that torch has accepted this thread's latest call, once."""
        if getattr(self.local, "unaccepted", False):
            self.local.unaccepted = False
            self._write(f"a{self._other_threads()}")

    def _other_threads(self) -> str:
        """Return a mark if there are threads that haven't called, and so may still do so."""
        return " +" if threading.active_count() > self._writer.threads + self._spare_threads else ""

    def record_wait(self, work: Any) -> Tracked | None:  # noqa: ANN401 - a Work
        """Record that a call is waited for, and return it, or None if it isn't a recorded call."""
        waited = self._works.pop(id(work), None)
        if waited is not None and not waited.sync:
            self._write(f"w {waited.number}{self._other_threads()}")
        return waited

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

    def record_touched(self, touched: Touched) -> None:
        """Record a misuse of a call's memory."""
        self._write(touched_line(touched))

    def source_line(self) -> SourceLine:
        """Return the user's line that this is called from."""
        return _source_line(*self._user_lines())

    def record_end(
        self, error: BaseException | None, source_line: SourceLine | None = None
    ) -> None:
        """Record the end of the program; ``source_line`` is for an error without a traceback."""
        if self.buffers is not None and error is None:
            for touched in self.buffers.unwaited():
                self.record_touched(touched)
        ended = Ended("returned") if error is None else _end_note(error)
        self._write(end_line(replace(ended, source_line=source_line) if source_line else ended))

    def track(self, work: Any, waited: Tracked) -> None:  # noqa: ANN401 - a Work
        """Remember the call that a handle belongs to."""
        if len(self._works) > MAX_KNOWN:
            self._works.clear()
        self._works[id(work)] = waited

    def register(self, group: Any) -> None:  # noqa: ANN401 - a group
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
        members = tuple(int(rank) for rank in c10d._world.pg_group_ranks[group])  # noqa: SLF001 - as get_process_group_ranks does
        pairs = [part.partition(":")[::2] for part in _backends(group).split(",")]
        several = len({backend for _, backend in pairs}) > 1
        with self._lock:
            self._calls.clear()  # their keys contain group addresses, which may be reused
            self._code_refs.clear()
            numbers = self._groups[group] = {}
            for device, backend in pairs if several else [("", pairs[0][1])]:
                name = f"{backend}/{device}" if several else backend
                nth, number = self._same_members[members, name], next(self._numbers)
                self._same_members[members, name] += 1
                self._writer.write(f"G {number} {nth} {name} {list(members)}")
                numbers[device] = number

    def record_destroy(self, group: Any) -> None:  # noqa: ANN401 - a group, or None for all
        """Record that the program destroys a group, unless Python does so at exit."""
        source_line = self.source_line()
        if self._kinds.get(source_line.file) != "user":
            return
        all_of_them = group is None or group is dist.group.WORLD
        error = sys.exc_info()[1]
        failing = "" if error is None else _end_note(error).how
        with self._lock:
            groups = [
                number
                for each, numbers in self._groups.items()
                if each is group or (all_of_them and isinstance(each, dist.ProcessGroup))
                for number in numbers.values()
            ]
            if groups:
                self._writer.write(destroy_line(groups, source_line, failing))

    def is_registered(self, group: Any) -> bool:  # noqa: ANN401 - a group
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

    def _user_lines(self) -> tuple[CodeType | None, int, CodeType | None, int]:
        """Return the user's innermost line, and the line that called its function if it is near.

        Without a user's line, return the innermost line outside torch.
        """
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - nothing else is as cheap
        found: FrameType | None = None
        spare: FrameType | None = None
        known, left = self._kinds, MAX_FRAMES
        while frame is not None and left:
            file = frame.f_code.co_filename
            kind = known.get(file)
            if kind is None:
                kind = known[file] = _kind(file)
            if kind == "user":
                if found is not None:
                    return found.f_code, found.f_lineno, frame.f_code, frame.f_lineno
                found = frame
                if frame.f_code.co_name == "<module>":
                    break
            elif kind == "ours" and frame.f_code.co_name == "rank_main":  # main function of a rank
                break
            elif found is not None:
                left -= 1
            elif kind == "library" and spare is None:
                spare = frame
            frame = frame.f_back
        found = found or spare
        if found is None:
            return None, 0, None, 0
        return found.f_code, found.f_lineno, None, 0

    def _describe(self, key: Any, group: Any, call: Call) -> int:  # noqa: ANN401 - a group
        if len(self._calls) >= MAX_KNOWN:
            self._calls.clear()
            self._code_refs.clear()
        number = self._calls[key] = len(self._calls)
        devices = self._groups[group]
        group_number = devices[""] if "" in devices else devices.get(call.device or "cpu", 0)
        self._writer.write(call_line(number, group_number, call))
        return number


def _backends(group: Any) -> str:  # noqa: ANN401 - a group
    """Return the backends of a group, ``cpu:gloo,cuda:nccl``."""
    try:
        found = str(dist.get_backend_config(group))
    except (KeyError, RuntimeError, ValueError):
        found = ""
    return found if ":" in found else f":{dist.get_backend(group)}"


def _source_line(
    code: CodeType | None, line: int, caller: CodeType | None, called_at: int
) -> SourceLine:
    if code is None:
        return SourceLine()
    by = "" if caller is None else str(SourceLine(caller.co_filename, called_at, caller.co_name))
    return SourceLine(code.co_filename, line, code.co_name, caller=by)


def _kind(file: str) -> str:
    """Return the owner of a file's code: ``user``, ``library``, ``ours`` or ``inner`` (torch)."""
    if is_ours(file):
        return "ours"
    if file.startswith(("<", TORCH)):
        return "inner"
    return "library" if is_library(file) else "user"


def _end_note(error: BaseException) -> Ended:
    """Return the end note of a program that raised."""
    source_line, inside = SourceLine(), ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not (is_library(code.co_filename) or is_ours(code.co_filename)):
            source_line, inside = SourceLine(code.co_filename, trace.tb_lineno, code.co_name), ""
        elif code.co_filename == c10d.__file__ and not inside:
            inside = "" if code.co_name == "monitored_barrier" else code.co_name
        trace = trace.tb_next
    if isinstance(error, SystemExit):
        how = "returned" if error.code in (None, 0) else f"exited with {error.code}"
        return Ended(how, source_line)
    said = re.sub(r" at 0x[0-9a-f]+", "", headline(text_of(error)))[
        :MAX_ERROR_CHARS
    ]  # no addresses
    return Ended(f"raised {type(error).__name__}: {said}", source_line, inside)


# ------------------------------------------------------------------------------- installation


def is_installed() -> bool:
    """Return True if the calls of this process are already recorded."""
    return hasattr(dist.ProcessGroup.allreduce, "_recorded")


def install(recorder: Recorder) -> Recorder:
    """Install the hooks, once per process, before or after it creates a group."""
    _cover(recorder, dist.ProcessGroup)
    _replace_wait(recorder, dist.Work)
    if recorder.buffers is not None:
        recorder.buffers.__enter__()  # type: ignore[no-untyped-call]  # until the process exits
        _replace_polls(recorder, recorder.buffers)
    outside = c10d._warn_not_in_group  # noqa: SLF001 - called by every collective of a non-member

    def warn(name: str) -> None:
        safely(recorder, recorder.record_non_member, name)
        outside(name)

    vars(c10d)["_warn_not_in_group"] = warn
    _replace_everywhere("new_group", partial(_new_group, recorder))
    _replace_everywhere("split_group", partial(_split_group, recorder))
    _replace_everywhere("init_process_group", partial(_init, recorder))
    _replace_everywhere("destroy_process_group", partial(_destroy, recorder))
    for name in ("rendezvous", "_new_process_group_helper"):  # both follow the checks of arguments
        vars(c10d)[name] = _accepting(recorder, getattr(c10d, name))
    for name in ("_verify_params_across_processes", "Reducer"):  # called by DDP's constructor
        setattr(dist, name, _wrap_for_cpp(recorder, getattr(dist, name)))
    for name in ("_resolve_group", "_resolve_group_name"):  # called by functional collectives
        resolve = getattr(functional, name, None)
        if resolve is not None:
            setattr(functional, name, _wrap_for_cpp(recorder, resolve))
    _registered(recorder, dist.group.WORLD)
    return recorder


@contextmanager
def record_calls(notes: Notes | None, rank: int, world_size: int) -> Iterator[None]:
    """Record every call of this rank within the block, and how the block ended.

    Args:
        notes: Recording settings, or None to record nothing.
        rank: Rank of this process in the launcher's world.
        world_size: Size of that world.
    """
    memory = None
    if notes is not None and notes.path:
        with suppress(OSError):  # /proc is unusual
            memory = shared(notes.path, notes.size, rank - notes.first)
    if notes is None or memory is None:
        yield
        return
    writer = Writer(Ring(memory).write, timed=notes.timed)
    recorder = install(Recorder(writer, (rank, world_size), buffers=notes.buffers))
    try:
        yield
    except BaseException as error:
        safely(recorder, recorder.record_end, error)
        raise
    safely(recorder, recorder.record_end, None)


def safely(recorder: Recorder, function: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 - its result
    """Call a function unless recording has stopped; an exception only stops the recording."""
    if recorder.off:
        return None
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001 - the program must not be affected
        recorder.fail(error)
        return None


def _wrap_for_cpp(recorder: Recorder, original: Any) -> Any:  # noqa: ANN401 - torch's
    """Wrap a function so that calls from C++ on its group arguments and result are recorded."""

    def wrapper(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        from distdemo.sanitizer.kernels import cover

        groups = [each for each in (*args, *named.values()) if isinstance(each, dist.ProcessGroup)]
        if groups:
            safely(recorder, cover, recorder, groups)
        found = original(*args, **named)
        group = vars(c10d)["_resolve_process_group"](found) if isinstance(found, str) else found
        if isinstance(group, dist.ProcessGroup):
            safely(recorder, cover, recorder, [group])
        return found

    return wrapper


def _replace_everywhere(name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function of torch.distributed in every torch module that imported it."""
    original = getattr(c10d, name)
    replacement = wraps(original)(wrap(original))
    for module in _torch_modules():
        if vars(module).get(name) is original:
            setattr(module, name, replacement)


def _torch_modules() -> list[ModuleType]:
    """Return torch.distributed's modules; reading all modules would copy pages in a forked rank."""
    new = itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - _COUNT))
    return [*_LOADED, *(sys.modules[name] for name in new if name.startswith(_HOME))]


def _init(recorder: Recorder, original: Any) -> Any:  # noqa: ANN401 - torch's
    def init_process_group(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        busy = getattr(recorder.local, "busy", False)
        recorder.local.busy = True
        size = named.get("world_size", -1)
        size = os.environ.get("WORLD_SIZE", recorder.size) if size == -1 else size
        of_all = str(size) == str(recorder.size)
        began = recorder.size > 0 and of_all and len(args) <= POSITION_OF_SIZE
        if began:
            safely(recorder, recorder.record_new_group, tuple(range(recorder.size)), "init")
        try:
            made = original(*args, **named)
        except BaseException:
            if began:
                safely(recorder, partial(recorder.record_failure, accepted=False))
            raise
        finally:
            recorder.local.busy = busy
        if began:
            safely(recorder, recorder.record_return)
        _registered(recorder, dist.group.WORLD)
        return made

    return init_process_group


def _new_group(recorder: Recorder, original: Any) -> Any:  # noqa: ANN401 - torch's
    parameters = inspect.signature(original)

    def new_group(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        given = parameters.bind(*args, **named).arguments
        if given.get("ranks") is not None:
            given["ranks"] = [int(rank) for rank in given["ranks"]]  # it may be an iterator
        busy = getattr(recorder.local, "busy", False)
        recorder.local.busy = True
        recorded = False
        try:
            if not busy and recorder.is_registered(dist.group.WORLD):
                members = tuple(sorted(given.get("ranks") or range(dist.get_world_size())))
                by_all = not given.get("use_local_synchronization")
                recorded = by_all or dist.get_rank() in members
            if recorded:
                safely(recorder, recorder.record_new_group, members, "" if by_all else "local")
            group = original(**given)
        except BaseException as error:
            if recorded:  # torch rejects arguments before it contacts other ranks
                accepted = isinstance(error, (dist.DistError, KeyboardInterrupt))
                safely(recorder, partial(recorder.record_failure, accepted=accepted))
            raise
        finally:
            recorder.local.busy = busy
        if recorded:
            safely(recorder, recorder.record_return)
        return _registered(recorder, group)

    return new_group


def _split_group(recorder: Recorder, original: Any) -> Any:  # noqa: ANN401 - torch's
    def split_group(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        return _registered(recorder, original(*args, **named))

    return split_group


def _destroy(recorder: Recorder, original: Any) -> Any:  # noqa: ANN401 - torch's
    def destroy_process_group(group: Any = None) -> None:  # noqa: ANN401 - a group
        safely(recorder, recorder.record_destroy, group)
        original(group)

    return destroy_process_group


def _registered(recorder: Recorder, group: Any) -> Any:  # noqa: ANN401 - a group, or torch's NON_GROUP_MEMBER
    if isinstance(group, dist.ProcessGroup):
        safely(recorder, _cover, recorder, type(group))
        safely(recorder, recorder.register, group)
    return group


def _accepting(recorder: Recorder, original: Any) -> Any:  # noqa: ANN401 - torch's
    """Wrap a function that starts a call which torch has accepted."""

    @wraps(original)
    def accepted(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        safely(recorder, recorder.record_accept)
        return original(*args, **named)

    accepted._recorded = True  # type: ignore[attr-defined]  # noqa: SLF001 - as above
    return accepted


def _cover(recorder: Recorder, kind: type) -> None:
    """Replace the methods of this class and its base classes, once each."""
    for each in kind.__mro__:
        wait = each.__dict__.get("_wait")  # our mpi backend waits in the method itself
        ours = each.__module__ == "distdemo.mpi.engine"
        if ours and wait is not None and not hasattr(wait, "_recorded"):
            each._wait = _accepting(recorder, wait)  # type: ignore[attr-defined]  # noqa: SLF001 - as above
        for name, fields in METHODS.items():
            original = each.__dict__.get(name)
            if original is not None and not hasattr(original, "_recorded"):
                setattr(each, name, _recorded(recorder, name, original, fields))


def _recorded(recorder: Recorder, name: str, original: Any, fields: Any) -> Any:  # noqa: ANN401 - a method
    local = recorder.local

    @wraps(original)
    def method(self: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        if recorder.off or getattr(local, "busy", False) or not recorder.is_registered(self):
            return original(self, *args, **named)
        local.busy = True  # nested calls belong to this one
        try:
            recorded = safely(recorder, _begin_call, recorder, fields, self, args, named)
            try:
                work = original(self, *args, **named)
            except BaseException:
                if recorded is not None:
                    safely(
                        recorder,
                        partial(recorder.record_failure, accepted=name == "monitored_barrier"),
                    )
                raise
            if recorded is not None:
                safely(recorder, _follow, recorder, name, args, work, recorded)
            return work
        finally:
            local.busy = False

    method._recorded = True  # type: ignore[attr-defined]  # noqa: SLF001 - prevents replacing it again
    return method


def _begin_call(  # noqa: PLR0913, PLR0917 - properties of a call
    recorder: Recorder,
    fields: Any,  # noqa: ANN401 - from calls.METHODS
    group: Any,  # noqa: ANN401 - a group
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> tuple[Fields, int, Touched | None]:
    """Record a call that is about to be made."""
    found = fields(args, named)
    number = recorder.record_call(group, found)
    if found.op == "monitored_barrier":  # it waits in the method itself
        recorder.record_accept()
    touched = None
    if recorder.buffers is not None and _called_by_user():
        source_line = recorder.source_line()
        touched = Touched(str(described(found, source_line)), source_line)
    return found, number, touched


def _called_by_user() -> bool:
    """Return True if the user's code makes the call rather than another part of torch."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - nothing else is as cheap
    inner = (os.path.dirname(c10d.__file__), os.path.dirname(__file__))  # noqa: PTH120 - as code has it
    while frame is not None and (
        os.path.dirname(frame.f_code.co_filename) in inner  # noqa: PTH120 - as above
    ):
        frame = frame.f_back
    return frame is not None and _kind(frame.f_code.co_filename) in {"user", "library"}


def _follow(
    recorder: Recorder,
    name: str,
    args: tuple[Any, ...],
    work: Any,  # noqa: ANN401 - a Work
    recorded: tuple[Fields, int, Touched | None],
) -> None:
    """Track the handle of a call that was made."""
    fields, number, touched = recorded
    if touched is not None and is_strided(args):  # and torch has not rejected it
        recorder.record_touched(touched)
    if work is None:
        recorder.record_return()
        return
    recorder.record_accept()
    recorder.track(work, Tracked(number, fields.sync, fields.peer == -1))
    if touched is not None and not fields.sync and recorder.buffers is not None:
        recorder.buffers.on_call(work, name, args, touched)
    if type(work).wait is not dist.Work.wait:
        _replace_wait(recorder, type(work))


def _replace_polls(recorder: Recorder, buffers: Buffers) -> None:
    """Treat polling a call, or asking for its future, as waiting for it."""

    def polling(original: Any) -> Any:  # noqa: ANN401 - torch's
        @wraps(original)
        def poll(self: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
            answer = original(self, *args, **named)
            if answer is not False:
                safely(recorder, buffers.on_wait, self)
            return answer

        return poll

    for name in ("is_completed", "synchronize", "get_future", "block_current_stream"):
        if hasattr(dist.Work, name):  # not every release has all of them
            setattr(dist.Work, name, polling(getattr(dist.Work, name)))


def _replace_wait(recorder: Recorder, kind: type) -> None:
    original = kind.wait  # type: ignore[attr-defined]  # every Work has it
    if hasattr(original, "_recorded"):
        return

    @wraps(original)
    def wait(self: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        waited = safely(recorder, recorder.record_wait, self)
        if recorder.buffers is not None:
            recorder.buffers.on_wait(self)
        try:
            done = original(self, *args, **named)
        except BaseException:
            if waited is not None:
                recorder.track(self, waited._replace(sync=False))  # it may be waited for again
                safely(recorder, partial(recorder.record_failure, accepted=True))
            raise
        if waited is not None:
            source = safely(recorder, self._source_rank) if waited.from_any else -1
            safely(recorder, recorder.record_return, -1 if source is None else source)
        return done

    wait._recorded = True  # type: ignore[attr-defined]  # noqa: SLF001 - as above
    kind.wait = wait  # type: ignore[attr-defined]  # as above
