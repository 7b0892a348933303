"""In a rank: what is put around torch's calls, so that each is noted before it is made.

Callers in Python are seen by the methods of ``ProcessGroup``, which are replaced on the class (and
on subclasses that have their own, as our mpi backend): so it does not matter how a program
imported ``dist.all_reduce``. Callers in C++ (DDP's reducer) don't come that way: for them
c10d's kernels are replaced at the backend's key, when the first DDP module is made. A kernel
there must not end in a boxed call, which keeps the GIL and so can deadlock with gloo's own
threads: it calls the group's backend.

What goes wrong in here ends the notes, with the reason, and the program goes on.
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

from distdemo.launcher.failures import shown
from distdemo.launcher.records import headline
from distdemo.launcher.stacks import is_library, is_ours
from distdemo.sanitizer.buffers import Buffers, is_strided
from distdemo.sanitizer.calls import METHODS, Fields, described
from distdemo.sanitizer.notes import (
    MOST_KNOWN,
    Ended,
    Ring,
    Touched,
    Writer,
    call_line,
    end_line,
    left_line,
    shared,
    stop_line,
    touched_line,
)
from distdemo.sanitizer.records import Call, Notes, Place
from distdemo.view.foreign import write_message

TORCH = os.path.dirname(torch.__file__) + os.sep  # noqa: PTH120 - compared with code's own text
POSITION_OF_SIZE = 3  # among the arguments of init_process_group
LONGEST = 400  # characters of an exception's text
FARTHEST = 12  # frames between a user's function and its caller


_HOME = "torch.distributed"
_COUNT = len(sys.modules)
_LOADED = [module for name, module in sys.modules.items() if name.startswith(_HOME)]


class Waited(NamedTuple):
    """What a handle is of.

    Attributes:
        number: of the call, on this rank.
        sync: torch waits for it in the call itself.
        from_any: a receive from any rank.
    """

    number: int
    sync: bool
    from_any: bool


class Makers:
    """Stands for the ranks that make a group, before it is there."""


class Recorder:
    """What this rank notes.

    Args:
        writer: takes the notes.
        world: this rank and the world's size, as who reads them counts; None: as the program does.
        buffers: watch the tensors of calls, too.
    """

    def __init__(
        self, writer: Writer, world: tuple[int, int] | None = None, *, buffers: bool = False
    ) -> None:
        self._writer = writer
        self._world = world
        self._lock = threading.RLock()  # a signal's handler may call, too
        self.local = threading.local()
        self._calls: dict[Any, int] = {}
        self._kept: list[CodeType | None] = []  # so that the id of none is used again
        self._groups: WeakKeyDictionary[Any, dict[str, int]] = WeakKeyDictionary()
        self._makers: dict[tuple[str, tuple[int, ...]], Makers] = {}
        self._alike: Counter[tuple[tuple[int, ...], str]] = Counter()
        self._numbers = itertools.count()
        self._kinds: dict[str, str] = {}
        self._count = 0
        self._works: dict[int, Waited] = {}
        guard = partial(safely, self)
        self.buffers = Buffers(guard, self.touched, self.place) if buffers else None
        self.off = False
        self._elsewhere = False  # in a world that some ranks have made anew, with other numbers
        os.register_at_fork(after_in_child=self._stop)

    def _stop(self) -> None:
        self.off = True

    def made(self, group: Any, fields: Fields, via: str = "") -> int:  # noqa: ANN401 - a group
        """Note a call, and return its number on this rank.

        Args:
            group: that it is made on.
            fields: of ``calls.METHODS``.
            via: what of torch made it by itself.
        """
        return self._note(fields, group, partial(described, fields), via)

    @property
    def calls(self) -> int:
        """How many were noted."""
        return self._count

    @property
    def size(self) -> int:
        """Of the world, as who reads the notes counts; 0 if nobody has said."""
        return self._world[1] if self._world is not None else 0

    def makes_group(self, members: tuple[int, ...], how: str = "") -> None:
        """Note that a group of these ranks of the world is asked for.

        Args:
            members: of the group.
            how: ``init``, the default group; ``local``, by its members alone: they wait for each
                other, so it is a call on a group that has no others. Empty: by the whole world.
        """
        group: Any = dist.group.WORLD
        if how:
            with self._lock:
                group = self._makers.setdefault((how, members), Makers())
                if group not in self._groups:
                    number = next(self._numbers)
                    self._groups[group] = {"": number}
                    self._writer.write(f"G {number} 0 {how} {list(members)}")
        op = "init_process_group" if how == "init" else "new_group"
        self._note((op, members), group, partial(Call, op, members=members))

    def outside(self, op: str) -> None:
        """Note a collective on a group that this rank is not in, where torch does nothing."""
        if self.knows(dist.group.WORLD):
            self._note(("outside", op), dist.group.WORLD, partial(Call, f"outside {op}"))

    def _note(self, what: Any, group: Any, make: Callable[..., Call], via: str = "") -> int:  # noqa: ANN401 - what can be looked up; a group
        code, line, caller, called_at = self._here()
        key = (what, id(code), line, id(caller), called_at, id(group), via)
        with self._lock:
            number = self._calls.get(key)
            if number is None:
                place = replace(_place(code, line, caller, called_at), via=via)
                number = self._describe(key, group, make(place=place))
                self._kept += (code, caller)
            self._writer.write(str(number))
            self._count += 1
            return self._count - 1

    def waits(self, work: Any) -> Waited | None:  # noqa: ANN401 - a Work
        """Note that a call is waited for; None if it is none of those that were noted."""
        waited = self._works.pop(id(work), None)
        if waited is not None and not waited.sync:
            self._write(f"w {waited.number}")
        return waited

    def came(self, source: int = -1) -> None:
        """Note that the call, or the wait, is over.

        Args:
            source: the rank of the group whose data came; −1: that was known before.
        """
        self._write("r" if source < 0 else f"r {source}")

    def failed(self, *, made: bool) -> None:
        """Note that the call, or the wait, raised.

        Args:
            made: the call was made, and failed later; else nobody else will hear of it.
        """
        self._write("f" if made else "u")

    def _write(self, line: str) -> None:
        with self._lock:
            self._writer.write(line)

    def touched(self, touched: Touched) -> None:
        """Note what is wrong with the memory of a call."""
        self._write(touched_line(touched))

    def place(self) -> Place:
        """The user's line that this is called from."""
        return _place(*self._here())

    def ended(self, error: BaseException | None, place: Place | None = None) -> None:
        """Note that the program has ended, by itself or by this; ``place``: if it has no trace."""
        if self.buffers is not None and error is None:
            for touched in self.buffers.left():
                self.touched(touched)
        ended = Ended("returned") if error is None else _end(error)
        self._write(end_line(replace(ended, place=place) if place else ended))

    def keep(self, work: Any, waited: Waited) -> None:  # noqa: ANN401 - a Work
        """This is the handle of that call."""
        if len(self._works) > MOST_KNOWN:
            self._works.clear()
        self._works[id(work)] = waited

    def register(self, group: Any) -> None:  # noqa: ANN401 - a group
        """This group exists now: groups of the same members are told apart by their order.

        Where each device has a backend of its own, each has its own sequence of calls.
        """
        world = dist.group.WORLD
        here = None if world is None else (world.rank(), world.size())
        if self._world is not None and group is world:
            self._elsewhere = here != self._world
            alike = here is not None and here[1] == self._world[1]  # others may be where they were
            if self._elsewhere and (alike or not self._alike):
                self.stop("the program numbers the ranks in another way than the launcher")
        if group in self._groups or self.off or self._elsewhere:
            return
        members = tuple(int(rank) for rank in c10d._world.pg_group_ranks[group])  # noqa: SLF001 - get_process_group_ranks is that
        pairs = [part.partition(":")[::2] for part in _backends(group).split(",")]
        several = len({backend for _, backend in pairs}) > 1
        with self._lock:
            self._calls.clear()  # they go by the address of their group, which may be another's now
            self._kept.clear()
            numbers = self._groups[group] = {}
            for device, backend in pairs if several else [("", pairs[0][1])]:
                name = f"{backend}/{device}" if several else backend
                nth, number = self._alike[members, name], next(self._numbers)
                self._alike[members, name] += 1
                self._writer.write(f"G {number} {nth} {name} {list(members)}")
                numbers[device] = number

    def left(self, group: Any) -> None:  # noqa: ANN401 - a group, or None for all
        """Note that this rank destroys a group; not where Python does so at the program's end."""
        place = self.place()
        if self._kinds.get(place.file) != "user":
            return
        all_of_them = group is None or group is dist.group.WORLD
        error = sys.exc_info()[1]
        failing = "" if error is None else _end(error).how
        with self._lock:
            groups = [
                number
                for each, numbers in self._groups.items()
                if each is group or (all_of_them and isinstance(each, dist.ProcessGroup))
                for number in numbers.values()
            ]
            if groups:
                self._writer.write(left_line(groups, place, failing))

    def knows(self, group: Any) -> bool:  # noqa: ANN401 - a group
        """Whether torch has told of this group."""
        return group in self._groups

    def stop(self, why: str) -> None:
        """End the notes of this rank, and so the comparison of all; the program goes on."""
        if self.off:
            return
        self.off = True
        try:
            self._write(stop_line(why[:LONGEST]))
        except (OSError, ValueError):  # nobody else can tell
            write_message(f"distdemo's sanitizer stopped on this rank: {why}\n")

    def fail(self, error: BaseException) -> None:
        """The same, because of this."""
        self.stop(f"{type(error).__name__}: {error}")

    def _here(self) -> tuple[CodeType | None, int, CodeType | None, int]:
        """The user's innermost line, and the one that called its function, if it is near.

        Where there is none, the innermost line that isn't torch's.
        """
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - there is no other way that is cheap
        found: FrameType | None = None
        spare: FrameType | None = None
        known, left = self._kinds, FARTHEST
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
            elif kind == "ours" and frame.f_code.co_name == "live":  # a rank's whole life
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
        if len(self._calls) >= MOST_KNOWN:
            self._calls.clear()
            self._kept.clear()
        number = self._calls[key] = len(self._calls)
        devices = self._groups[group]
        of = devices[""] if "" in devices else devices.get(call.device or "cpu", 0)
        self._writer.write(call_line(number, of, call))
        return number


def _backends(group: Any) -> str:  # noqa: ANN401 - a group
    """``cpu:gloo,cuda:nccl``."""
    try:
        found = str(dist.get_backend_config(group))
    except (KeyError, RuntimeError, ValueError):
        found = ""
    return found if ":" in found else f":{dist.get_backend(group)}"


def _place(code: CodeType | None, line: int, caller: CodeType | None, called_at: int) -> Place:
    if code is None:
        return Place()
    by = "" if caller is None else str(Place(caller.co_filename, called_at, caller.co_name))
    return Place(code.co_filename, line, code.co_name, caller=by)


def _kind(file: str) -> str:
    """Whose the code of a file is: the user's, a library's, ours, or torch's and Python's."""
    if is_ours(file):
        return "ours"
    if file.startswith(("<", TORCH)):
        return "inner"
    return "library" if is_library(file) else "user"


def _end(error: BaseException) -> Ended:
    """How a program ended that raised."""
    place, inside = Place(), ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not (is_library(code.co_filename) or is_ours(code.co_filename)):
            place, inside = Place(code.co_filename, trace.tb_lineno, code.co_name), ""
        elif code.co_filename == c10d.__file__ and not inside:
            inside = "" if code.co_name == "monitored_barrier" else code.co_name
        trace = trace.tb_next
    if isinstance(error, SystemExit):
        how = "returned" if error.code in (None, 0) else f"exited with {error.code}"
        return Ended(how, place)
    said = re.sub(r" at 0x[0-9a-f]+", "", headline(shown(error)))[:LONGEST]  # no addresses
    return Ended(f"raised {type(error).__name__}: {said}", place, inside)


# ------------------------------------------------------------------------------- putting them there


def is_installed() -> bool:
    """Whether the calls of this process are noted already."""
    return hasattr(dist.ProcessGroup.allreduce, "_noted")


def install(recorder: Recorder) -> Recorder:
    """From now on note every call of this process; once, before it makes a group or after."""
    _cover(recorder, dist.ProcessGroup)
    _replace_wait(recorder, dist.Work)
    if recorder.buffers is not None:
        recorder.buffers.__enter__()  # type: ignore[no-untyped-call]  # as long as this process lives
        _replace_polls(recorder, recorder.buffers)
    outside = c10d._warn_not_in_group  # noqa: SLF001 - where every collective of a non-member ends

    def warn(name: str) -> None:
        safely(recorder, recorder.outside, name)
        outside(name)

    vars(c10d)["_warn_not_in_group"] = warn
    _everywhere("new_group", partial(_new_group, recorder))
    _everywhere("split_group", partial(_split_group, recorder))
    _everywhere("init_process_group", partial(_init, recorder))
    _everywhere("destroy_process_group", partial(_destroy, recorder))
    for name in ("_verify_params_across_processes", "Reducer"):  # what DDP's constructor calls
        setattr(dist, name, _covers_cpp(recorder, getattr(dist, name)))
    for name in ("_resolve_group", "_resolve_group_name"):  # what functional collectives call
        resolve = getattr(functional, name, None)
        if resolve is not None:
            setattr(functional, name, _covers_cpp(recorder, resolve))
    _registered(recorder, dist.group.WORLD)
    return recorder


@contextmanager
def noting(notes: Notes | None, rank: int, world_size: int) -> Iterator[None]:
    """Within the block note every call of this rank, and then how the block ended.

    Args:
        notes: where to, and what; None: nothing.
        rank: of this process, as the launcher counts.
        world_size: likewise.
    """
    memory = None
    if notes is not None and notes.path:
        with suppress(OSError):  # /proc is not what it usually is
            memory = shared(notes.path, notes.size, rank - notes.first)
    if notes is None or memory is None:
        yield
        return
    writer = Writer(Ring(memory).write, timed=notes.timed)
    recorder = install(Recorder(writer, (rank, world_size), buffers=notes.buffers))
    try:
        yield
    except BaseException as error:
        safely(recorder, recorder.ended, error)
        raise
    safely(recorder, recorder.ended, None)


def safely(recorder: Recorder, note: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 - its own
    """Call it, unless notes have ended; its failure ends them, and nothing else."""
    if recorder.off:
        return None
    try:
        return note(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is, the program must not suffer
        recorder.fail(error)
        return None


def _covers_cpp(recorder: Recorder, original: Any) -> Any:  # noqa: ANN401 - torch's
    """Before it is called, C++ is covered on the groups that it gets; after, on that it returns."""

    def covering(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        from distdemo.sanitizer.kernels import cover

        groups = [each for each in (*args, *named.values()) if isinstance(each, dist.ProcessGroup)]
        if groups:
            safely(recorder, cover, recorder, groups)
        found = original(*args, **named)
        group = vars(c10d)["_resolve_process_group"](found) if isinstance(found, str) else found
        if isinstance(group, dist.ProcessGroup):
            safely(recorder, cover, recorder, [group])
        return found

    return covering


def _everywhere(name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function of torch.distributed wherever a module of torch's has it by name."""
    original = getattr(c10d, name)
    replacement = wraps(original)(wrap(original))
    for module in _torch_modules():
        if vars(module).get(name) is original:
            setattr(module, name, replacement)


def _torch_modules() -> list[ModuleType]:
    """Those of torch.distributed; a look at all others would copy their pages in a forked rank."""
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
            safely(recorder, recorder.makes_group, tuple(range(recorder.size)), "init")
        try:
            made = original(*args, **named)
        except BaseException:
            if began:
                safely(recorder, partial(recorder.failed, made=False))
            raise
        finally:
            recorder.local.busy = busy
        if began:
            safely(recorder, recorder.came)
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
        noted = False
        try:
            if not busy and recorder.knows(dist.group.WORLD):
                members = tuple(sorted(given.get("ranks") or range(dist.get_world_size())))
                by_all = not given.get("use_local_synchronization")
                noted = by_all or dist.get_rank() in members
            if noted:
                safely(recorder, recorder.makes_group, members, "" if by_all else "local")
            group = original(**given)
        except BaseException as error:
            if noted:  # torch refuses arguments before it tells anybody
                made = isinstance(error, (dist.DistError, KeyboardInterrupt))
                safely(recorder, partial(recorder.failed, made=made))
            raise
        finally:
            recorder.local.busy = busy
        if noted:
            safely(recorder, recorder.came)
        return _registered(recorder, group)

    return new_group


def _split_group(recorder: Recorder, original: Any) -> Any:  # noqa: ANN401 - torch's
    def split_group(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        return _registered(recorder, original(*args, **named))

    return split_group


def _destroy(recorder: Recorder, original: Any) -> Any:  # noqa: ANN401 - torch's
    def destroy_process_group(group: Any = None) -> None:  # noqa: ANN401 - a group
        safely(recorder, recorder.left, group)
        original(group)

    return destroy_process_group


def _registered(recorder: Recorder, group: Any) -> Any:  # noqa: ANN401 - a group, or torch's sign for none
    if isinstance(group, dist.ProcessGroup):
        safely(recorder, _cover, recorder, type(group))
        safely(recorder, recorder.register, group)
    return group


def _cover(recorder: Recorder, kind: type) -> None:
    """Replace the methods of this class, and of those that it inherits from, once each."""
    for each in kind.__mro__:
        for name, fields in METHODS.items():
            original = each.__dict__.get(name)
            if original is not None and not hasattr(original, "_noted"):
                setattr(each, name, _noted(recorder, name, original, fields))


def _noted(recorder: Recorder, name: str, original: Any, fields: Any) -> Any:  # noqa: ANN401 - a method
    local = recorder.local

    @wraps(original)
    def method(self: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        if recorder.off or getattr(local, "busy", False) or not recorder.knows(self):
            return original(self, *args, **named)
        local.busy = True  # what it calls in turn is its own
        try:
            noted = safely(recorder, _begin_call, recorder, fields, self, args, named)
            try:
                work = original(self, *args, **named)
            except BaseException:
                if noted is not None:
                    safely(recorder, partial(recorder.failed, made=name == "monitored_barrier"))
                raise
            if noted is not None:
                safely(recorder, _follow, recorder, name, args, work, noted)
            return work
        finally:
            local.busy = False

    method._noted = True  # type: ignore[attr-defined]  # noqa: SLF001 - so that it is not replaced again
    return method


def _begin_call(  # noqa: PLR0913, PLR0917 - all of a call
    recorder: Recorder,
    fields: Any,  # noqa: ANN401 - of calls.METHODS
    group: Any,  # noqa: ANN401 - a group
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> tuple[Fields, int, Touched | None]:
    """Note a call that is about to be made."""
    found = fields(args, named)
    number = recorder.made(group, found)
    touched = None
    if recorder.buffers is not None and _by_user():
        place = recorder.place()
        touched = Touched(str(described(found, place)), place)
    return found, number, touched


def _by_user() -> bool:
    """Whether the user's own code makes the call, not another part of torch."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way that is cheap
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
    noted: tuple[Fields, int, Touched | None],
) -> None:
    """Keep an eye on the handle of a call that was made."""
    fields, number, touched = noted
    if touched is not None and is_strided(args):  # and torch has not refused it
        recorder.touched(touched)
    if work is None:
        recorder.came()
        return
    recorder.keep(work, Waited(number, fields.sync, fields.peer == -1))
    if touched is not None and not fields.sync and recorder.buffers is not None:
        recorder.buffers.began(work, name, args, touched)
    if type(work).wait is not dist.Work.wait:
        _replace_wait(recorder, type(work))


def _replace_polls(recorder: Recorder, buffers: Buffers) -> None:
    """Who asks whether a call is done, or for its future, waits for it in another way."""

    def polling(original: Any) -> Any:  # noqa: ANN401 - torch's
        @wraps(original)
        def poll(self: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
            answer = original(self, *args, **named)
            if answer is not False:
                safely(recorder, buffers.waited, self)
            return answer

        return poll

    for name in ("is_completed", "synchronize", "get_future", "block_current_stream"):
        if hasattr(dist.Work, name):  # not every release has all
            setattr(dist.Work, name, polling(getattr(dist.Work, name)))


def _replace_wait(recorder: Recorder, kind: type) -> None:
    original = kind.wait  # type: ignore[attr-defined]  # every Work has it
    if hasattr(original, "_noted"):
        return

    @wraps(original)
    def wait(self: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        waited = safely(recorder, recorder.waits, self)
        if recorder.buffers is not None:
            recorder.buffers.waited(self)
        try:
            done = original(self, *args, **named)
        except BaseException:
            if waited is not None:
                recorder.keep(self, waited._replace(sync=False))  # it may be waited for again
                safely(recorder, partial(recorder.failed, made=True))
            raise
        if waited is not None:
            source = safely(recorder, self._source_rank) if waited.from_any else -1
            safely(recorder, recorder.came, -1 if source is None else source)
        return done

    wait._noted = True  # type: ignore[attr-defined]  # noqa: SLF001 - as above
    kind.wait = wait  # type: ignore[attr-defined]  # as above
