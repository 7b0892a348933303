"""In a rank: what is put around torch's calls, so that each is noted before it is made.

Callers in Python are seen by the methods of ``ProcessGroup``, which are replaced on the class (and
on a subclass that has its own, as our mpi backend): so it does not matter how a program imported
``dist.all_reduce``. Callers in C++ (DDP's reducer) don't come that way: for them c10d's kernels
are replaced at the backend's key, when the first DDP module is made. A kernel there must not end
in a boxed call, which keeps the GIL and so can deadlock with gloo's own threads: it calls the
group's backend.

What goes wrong in here is told once, on stderr, and the program goes on without notes.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from functools import partial, wraps
from types import CodeType, FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from distdemo.launcher.records import headline
from distdemo.launcher.stacks import is_library, is_ours
from distdemo.sanitizer.calls import described, method_calls
from distdemo.sanitizer.notes import MOST_KNOWN, Ended, Writer, call_line, end_line
from distdemo.sanitizer.records import Call, Place


class Recorder:
    """What this rank notes.

    Args:
        fd: where to.
    """

    def __init__(self, fd: int) -> None:
        self._writer = Writer(fd)
        self._lock = threading.Lock()
        self.local = threading.local()
        self._calls: dict[Any, int] = {}
        self._kept: list[CodeType] = []  # so that the id of none is used again
        self._groups: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._named: dict[tuple[int, ...], int] = {}  # how many groups there are of these members
        self._kinds: dict[str, str] = {}
        self._count = 0
        self._works: dict[int, int] = {}
        self.from_any: dict[int, bool] = {}
        """By the address of a handle: it is that of a receive from any rank."""
        self.off = False
        os.register_at_fork(after_in_child=self._stop)

    def _stop(self) -> None:
        self.off = True

    def made(self, group: Any, fields: tuple[Any, ...], via: str = "") -> int:  # noqa: ANN401 - a group
        """Note a call, and return its number on this rank.

        Args:
            group: that it is made on.
            fields: of ``calls.method_calls``.
            via: what of torch made it by itself.
        """
        return self._note(fields, group, partial(described, fields), via)

    def made_group(self, members: tuple[int, ...]) -> None:
        """Note that a group of these ranks of the world is asked for."""
        call = partial(Call, "new_group", members=members)
        self._note(("new_group", members), dist.group.WORLD, call)

    def outside(self, op: str) -> None:
        """Note a collective on a group that this rank is not in, where torch does nothing."""
        self._note(("outside", op), dist.group.WORLD, partial(Call, f"outside {op}"))

    def _note(self, what: Any, group: Any, make: Callable[..., Call], via: str = "") -> int:  # noqa: ANN401 - what can be looked up; a group
        code, line = self._here()
        key = (what, id(code), line, id(group), via)
        number = self._calls.get(key)
        with self._lock:
            if number is None:
                place = Place(via=via)
                if code is not None:
                    place = Place(code.co_filename, line, code.co_name, via)
                number = self._describe(key, code, group, make(place=place))
            self._writer.write(str(number))
            self._count += 1
            return self._count - 1

    def waits(self, work: Any) -> bool:  # noqa: ANN401 - a Work
        """Note that a call is waited for; whether it is one of those that were noted."""
        number = self._works.pop(id(work), None)
        if number is None or self.off:
            return False
        if number >= 0:
            with self._lock:
                self._writer.write(f"w {number}")
        return True

    def came(self, source: int = -1) -> None:
        """Note that the call, or the wait, is over.

        Args:
            source: the rank of the group whose data came; −1: that was known before.
        """
        if not self.off:
            with self._lock:
                self._writer.write("r" if source < 0 else f"r {source}")

    def ended(self, error: BaseException | None) -> None:
        """Note that the program has ended, by itself or by this."""
        if not self.off:
            with self._lock:
                self._writer.write(end_line(Ended("returned") if error is None else _end(error)))

    def keep(self, work: Any, number: int) -> None:  # noqa: ANN401 - a Work
        """This handle is that of the call of this number; −1: torch waits for it at once."""
        if len(self._works) > MOST_KNOWN:
            self._works.clear()
        self._works[id(work)] = number

    def register(self, group: Any) -> None:  # noqa: ANN401 - a group
        """This group exists now: groups of the same members are told apart by their order."""
        with self._lock:
            self._calls.clear()  # they go by the address of their group, which may be another's now
            self._group(group)

    def fail(self, error: BaseException) -> None:
        """Tell once that notes end here; the program goes on."""
        self.off = True
        name = type(error).__name__
        sys.stderr.write(f"distdemo's sanitizer stopped on this rank: {name}: {error}\n")

    def _here(self) -> tuple[CodeType | None, int]:
        """The user's innermost line; where there is none, the innermost that isn't torch's."""
        frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - there is no other way that is cheap
        spare: FrameType | None = None
        known = self._kinds
        while frame is not None:
            file = frame.f_code.co_filename
            kind = known.get(file)
            if kind is None:
                kind = known[file] = _kind(file)
            if kind == "user":
                return frame.f_code, frame.f_lineno
            if kind == "library" and spare is None:
                spare = frame
            frame = frame.f_back
        if spare is None:
            return None, 0
        return spare.f_code, spare.f_lineno

    def _describe(self, key: Any, code: CodeType | None, group: Any, call: Call) -> int:  # noqa: ANN401 - a group
        if len(self._calls) >= MOST_KNOWN:
            self._calls.clear()
            self._kept.clear()
        if code is not None:
            self._kept.append(code)
        number = self._calls[key] = len(self._calls)
        self._writer.write(call_line(number, self._group(group), call))
        return number

    def _group(self, group: Any) -> int:  # noqa: ANN401 - a group
        number = self._groups.get(group)
        if number is None:
            members = tuple(c10d._world.pg_group_ranks.get(group, {}))  # noqa: SLF001 - get_process_group_ranks is that
            members = members or tuple(range(group.size()))
            nth = self._named[members] = self._named.get(members, -1) + 1
            number = self._groups[group] = sum(self._named.values()) + len(self._named)
            self._writer.write(f"G {number} {nth} {list(members)}")
        return number


def _kind(file: str) -> str:
    """Whose the code of a file is: the user's, a library's, or torch's, Python's or ours."""
    if is_ours(file) or file.startswith("<") or "/torch/" in file.replace("\\", "/"):
        return "inner"
    return "library" if is_library(file) else "user"


def _end(error: BaseException) -> Ended:
    """How a program ended that raised."""
    if isinstance(error, SystemExit):
        how = "returned" if error.code in (None, 0) else f"exited with {error.code}"
        return Ended(how)
    place, inside = Place(), ""
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if not (is_library(code.co_filename) or is_ours(code.co_filename)):
            place, inside = Place(code.co_filename, trace.tb_lineno, code.co_name), ""
        elif "/torch/distributed/" in code.co_filename.replace("\\", "/") and not inside:
            inside = code.co_name if code.co_name != "wrapper" else ""
        trace = trace.tb_next
    said = re.sub(r" at 0x[0-9a-f]+", "", headline(str(error)))  # an address says nothing
    return Ended(f"raised {type(error).__name__}: {said}", place, inside)


# ------------------------------------------------------------------------------- putting them there


def install(fd: int) -> Recorder:
    """From now on note every call of this process; once, before it makes a group or after.

    Args:
        fd: where the notes go.
    """
    recorder = Recorder(fd)
    cover = partial(_cover, recorder)
    cover(dist.ProcessGroup)
    _replace_wait(recorder, dist.Work)
    outside = c10d._warn_not_in_group  # noqa: SLF001 - where every collective of a non-member ends

    def warn(name: str) -> None:
        _safely(recorder, recorder.outside, name)
        outside(name)

    vars(c10d)["_warn_not_in_group"] = warn
    _everywhere("new_group", partial(_new_group, recorder, cover))
    _everywhere("init_process_group", partial(_init, recorder, cover))
    for name in ("_verify_params_across_processes", "Reducer"):  # what DDP's constructor calls
        setattr(dist, name, _first_cover_cpp(recorder, getattr(dist, name)))
    if dist.is_initialized():
        _begin(recorder, cover)
    return recorder


def _begin(recorder: Recorder, cover: Callable[[type], None]) -> None:
    world = dist.group.WORLD
    if world is not None:
        cover(type(world))
        _safely(recorder, recorder.register, world)


def _safely(recorder: Recorder, note: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401 - its own
    """Call it, unless notes have ended; its failure ends them, and nothing else."""
    if recorder.off:
        return None
    try:
        return note(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is, the program must not suffer
        recorder.fail(error)
        return None


def _first_cover_cpp(recorder: Recorder, original: Any) -> Any:  # noqa: ANN401 - torch's
    def covering(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        from distdemo.sanitizer.kernels import cover

        _safely(recorder, cover, recorder)
        return original(*args, **named)

    return covering


def _everywhere(name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function of torch.distributed wherever a module of torch's has it by name."""
    original = getattr(c10d, name)
    replacement = wraps(original)(wrap(original))
    for module in list(sys.modules.values()):
        found = getattr(module, "__dict__", {})
        if found.get(name) is original and str(found.get("__name__", "")).startswith("torch."):
            found[name] = replacement


def _init(recorder: Recorder, cover: Callable[[type], None], original: Any) -> Any:  # noqa: ANN401 - torch's
    def init_process_group(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        busy = getattr(recorder.local, "busy", False)
        recorder.local.busy = True
        try:
            return original(*args, **named)
        finally:
            recorder.local.busy = busy
            _begin(recorder, cover)

    return init_process_group


def _new_group(recorder: Recorder, cover: Callable[[type], None], original: Any) -> Any:  # noqa: ANN401 - torch's
    def new_group(ranks: Any = None, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        if getattr(recorder.local, "busy", False) or not dist.is_initialized():
            return original(ranks, *args, **named)
        recorder.local.busy = True
        try:
            members = tuple(range(dist.get_world_size()) if ranks is None else sorted(ranks))
            of_all = not named.get("use_local_synchronization", False)
            if of_all:
                _safely(recorder, recorder.made_group, members)
            group = original(ranks, *args, **named)
            if of_all:
                _safely(recorder, recorder.came)
            if isinstance(group, dist.ProcessGroup):
                cover(type(group))
                _safely(recorder, recorder.register, group)
            return group
        finally:
            recorder.local.busy = False

    return new_group


def _cover(recorder: Recorder, kind: type) -> None:
    """Replace the methods that this class itself has, once."""
    for name, fields in method_calls().items():
        original = kind.__dict__.get(name)
        if original is not None and not hasattr(original, "_noted"):
            setattr(kind, name, _noted(recorder, original, fields))


def _noted(recorder: Recorder, original: Any, fields: Any) -> Any:  # noqa: ANN401 - a method
    local = recorder.local

    @wraps(original)
    def method(self: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        if recorder.off or getattr(local, "busy", False):
            return original(self, *args, **named)
        local.busy = True  # what it calls in turn is its own
        try:
            try:
                found = fields(args, named)
                number = recorder.made(self, found)
            except Exception as error:  # noqa: BLE001 - the program must not suffer
                recorder.fail(error)
                return original(self, *args, **named)
            work = original(self, *args, **named)
            if work is None:
                recorder.came()
            else:
                recorder.keep(work, -1 if found[1] else number)
                if found[7] == -1:
                    recorder.from_any[id(work)] = True
                if type(work).wait is not dist.Work.wait:
                    _replace_wait(recorder, type(work))
            return work
        finally:
            local.busy = False

    method._noted = True  # type: ignore[attr-defined]  # noqa: SLF001 - so that it is not replaced again
    return method


def _came(recorder: Recorder, work: Any) -> None:  # noqa: ANN401 - a Work
    anybodys = bool(recorder.from_any) and recorder.from_any.pop(id(work), False)
    recorder.came(work._source_rank() if anybodys else -1)  # noqa: SLF001 - what dist.recv asks, too


def _replace_wait(recorder: Recorder, kind: type) -> None:
    original = kind.wait  # type: ignore[attr-defined]  # every Work has it
    if hasattr(original, "_noted"):
        return

    @wraps(original)
    def wait(self: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - torch's
        noted = _safely(recorder, recorder.waits, self)
        done = original(self, *args, **named)
        if noted:
            _safely(recorder, _came, recorder, self)
        return done

    wait._noted = True  # type: ignore[attr-defined]  # noqa: SLF001 - as above
    kind.wait = wait  # type: ignore[attr-defined]  # as above
