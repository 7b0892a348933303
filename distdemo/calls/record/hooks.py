"""Hooks that record each collective before it is called.

Calls from Python are recorded by the methods of ``ProcessGroup``, which are replaced on the class
and on subclasses that override them, such as our mpi backend. It doesn't matter how a program
imported ``dist.all_reduce``. Calls from C++ (DDP's reducer) are recorded by ``kernels``, which is
installed when the first DDP module is created.
"""

from __future__ import annotations

import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from types import FrameType, ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d as c10d

from distdemo.calls.notes import MisuseNote, Ring, Writer, shared
from distdemo.calls.record.buffers import Buffers, is_strided
from distdemo.calls.record.calls import METHODS, Fields, described
from distdemo.calls.record.gradients import IN_PLACE, watch
from distdemo.calls.record.recorder import Recorder, Tracked, opaque, owner_of, safely
from distdemo.calls.record.shake import delays
from distdemo.calls.record.steps import called_by_ddp, in_backward
from distdemo.calls.records import Notes

RECORDER = Recorder.__init__.__code__.co_filename
POLLS = (
    "block_current_stream",
    "get_future",
    "get_future_result",
    "is_completed",
    "is_success",
    "result",
    "synchronize",
)
POSITION_OF_SIZE = 3  # index of world_size in the arguments of init_process_group

_HOME = "torch.distributed"
_COUNT = len(sys.modules)
_LOADED = [module for name, module in sys.modules.items() if name.startswith(_HOME)]


def is_installed() -> bool:
    """Return True if the calls of this process are already recorded."""
    return current_recorder() is not None


def current_recorder() -> Recorder | None:
    """Return the recorder of this process, or None if its calls aren't recorded."""
    return getattr(dist.ProcessGroup.allreduce, "_recorded", None)


def install(recorder: Recorder) -> Recorder:
    """Install the hooks, once per process, before or after it creates a group."""
    _cover(recorder, dist.ProcessGroup)
    _replace_handle(recorder, dist.Work)
    _replace_futures(recorder)
    recorder.steps.install()
    if recorder.buffers is not None:
        recorder.buffers.__enter__()  # type: ignore[no-untyped-call]  # until the process exits
        _replace_backward(recorder, recorder.buffers)
    outside = c10d._warn_not_in_group

    @opaque
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
    world = rank, world_size
    recorder = Recorder(writer, world, buffers=notes.buffers, replicas=notes.replicas)
    if notes.shake is not None:
        recorder.delays = iter(delays(notes.shake, rank))
    install(recorder)
    try:
        yield
    except BaseException as error:
        safely(recorder, recorder.record_end, error)
        raise
    safely(recorder, recorder.record_end, None)


def _wrap_for_cpp(recorder: Recorder, original: Any) -> Any:
    """Wrap a function that precedes calls from C++, so that these are recorded."""

    def wrapper(*args: Any, **named: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():  # the compiler reads this as part of the program
            from torch._dynamo.comptime import comptime

            comptime(install_kernels)
        else:
            install_kernels()
        return original(*args, **named)

    def install_kernels(*_: object) -> None:
        from distdemo.calls.record.kernels import install

        safely(recorder, install, recorder)

    return wrapper


def _replace_everywhere(name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace a function of torch.distributed in every torch module that imported it."""
    original = getattr(c10d, name)
    replacement = opaque(wraps(original)(wrap(original)))
    for module in _torch_modules():
        if vars(module).get(name) is original:
            setattr(module, name, replacement)


def _torch_modules() -> list[ModuleType]:
    """Return torch.distributed's modules; reading all modules would copy pages in a forked rank."""
    new = itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - _COUNT))
    return [*_LOADED, *(sys.modules[name] for name in new if name.startswith(_HOME))]


def _init(recorder: Recorder, original: Any) -> Any:
    def init_process_group(*args: Any, **named: Any) -> Any:
        busy = getattr(recorder.local, "busy", False)
        recorder.local.busy = True
        size = named.get("world_size", -1)
        size = os.environ.get("WORLD_SIZE", recorder.size) if size == -1 else size
        of_all = str(size) == str(recorder.size)
        began = recorder.size > 0 and of_all and len(args) <= POSITION_OF_SIZE
        if began:
            safely(recorder, recorder.record_new_group, tuple(range(recorder.size)), "init")
        try:
            result = original(*args, **named)
        except BaseException:
            if began:
                safely(recorder, partial(recorder.record_failure, accepted=False))
            raise
        finally:
            recorder.local.busy = busy
        if began:
            safely(recorder, recorder.record_return)
        _registered(recorder, dist.group.WORLD)
        return result

    return init_process_group


def _new_group(recorder: Recorder, original: Any) -> Any:
    parameters = inspect.signature(original)

    def new_group(*args: Any, **named: Any) -> Any:
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


def _split_group(recorder: Recorder, original: Any) -> Any:
    def split_group(*args: Any, **named: Any) -> Any:
        return _registered(recorder, original(*args, **named))

    return split_group


def _destroy(recorder: Recorder, original: Any) -> Any:
    def destroy_process_group(group: Any = None) -> None:
        safely(recorder, recorder.record_destroy, group)
        original(group)

    return destroy_process_group


def _registered(recorder: Recorder, group: Any) -> Any:
    if isinstance(group, dist.ProcessGroup):
        safely(recorder, _cover, recorder, type(group))
        safely(recorder, recorder.register, group)
    return group


def _accepting(recorder: Recorder, original: Any) -> Any:
    """Wrap a function that starts a call which torch has accepted."""

    @opaque
    @wraps(original)
    def accepted(*args: Any, **named: Any) -> Any:
        safely(recorder, recorder.record_accept)
        return original(*args, **named)

    accepted._recorded = True
    return accepted


def _cover(recorder: Recorder, kind: type) -> None:
    """Replace the methods of this class and its base classes, once each."""
    for each in kind.__mro__:
        wait = each.__dict__.get("_wait")  # our mpi backend waits in the method itself
        ours = each.__module__ == "distdemo.mpi.engine"
        if ours and wait is not None and not hasattr(wait, "_recorded"):
            each._wait = _accepting(recorder, wait)  # type: ignore[attr-defined]
        for name, fields in METHODS.items():
            original = each.__dict__.get(name)
            if original is not None and not hasattr(original, "_recorded"):
                setattr(each, name, _recorded(recorder, name, original, fields))


def _recorded(recorder: Recorder, name: str, original: Any, fields: Any) -> Any:
    local = recorder.local

    @opaque
    @wraps(original)
    def method(self: Any, *args: Any, **named: Any) -> Any:
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
                safely(recorder, _follow, recorder, name, self, args, work, recorded)
            return work
        finally:
            local.busy = False

    method._recorded = recorder
    return method


def _begin_call(
    recorder: Recorder,
    fields: Any,
    group: Any,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> tuple[Fields, int, MisuseNote | None]:
    """Record a call that is about to be made."""
    found = fields(args, named)
    if found.peer is not None and _in_batch():
        found = found._replace(batched=True)
    number = recorder.record_call(group, found)
    if found.op == "monitored_barrier":  # it waits in the method itself
        recorder.record_accept()
    misuse = None
    if recorder.buffers is not None and _called_by_user():
        source_line = recorder.source_line()
        misuse = MisuseNote(str(described(found, source_line)), source_line)
    return found, number, misuse


def _in_batch() -> bool:
    """Return True if batch_isend_irecv makes the call."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in {__file__, RECORDER, c10d.__file__}:
        if frame.f_code.co_name == "batch_isend_irecv":
            return True
        frame = frame.f_back
    return False


def _called_by_user() -> bool:
    """Return True if the user's code makes the call rather than another part of torch."""
    frame: FrameType | None = sys._getframe(1)
    inner = (os.path.dirname(c10d.__file__), os.path.dirname(__file__))  # noqa: PTH120 - as code has it
    while frame is not None and (
        os.path.dirname(frame.f_code.co_filename) in inner  # noqa: PTH120 - as above
    ):
        frame = frame.f_back
    return frame is not None and owner_of(frame.f_code.co_filename) not in {"ours", "torch"}


def _follow(
    recorder: Recorder,
    name: str,
    group: Any,
    args: tuple[Any, ...],
    work: Any,
    recorded: tuple[Fields, int, MisuseNote | None],
) -> None:
    """Track the handle of a call that was made."""
    fields, number, misuse = recorded
    if fields.op in IN_PLACE:
        tensors = args[0] if args else ()
        watch(fields, tensors, recorder.record_misuse, recorder.source_line)
    if misuse is not None and is_strided(args):  # and torch has not rejected it
        recorder.record_misuse(misuse)
    if misuse is not None and recorder.buffers is not None:
        recorder.buffers.on_result(name, args, group.rank(), misuse)
    if work is None:
        recorder.record_return()
        return
    recorder.record_accept()
    recorder.track(work, Tracked(number, fields.sync, fields.op == "recv" and fields.peer == -1))
    if name == "allreduce" and in_backward() and called_by_ddp():
        recorder.record_wait_after_backward(number)
    if misuse is not None and recorder.buffers is not None:
        is_root = fields.root == group.rank()
        recorder.buffers.on_call(work, name, args, misuse, sync=fields.sync, is_root=is_root)
    if not hasattr(type(work).wait, "_recorded"):
        _replace_handle(recorder, type(work))


def _replace_futures(recorder: Recorder) -> None:
    """Record waits for the futures of calls, and for futures that are made of them."""
    kind, then, collect = torch._C.Future, torch._C.Future.then, torch._C._collect_all

    @opaque
    @wraps(then)
    def derived(self: Any, *args: Any) -> Any:
        future = then(self, *args)
        safely(recorder, recorder.derive_future, future, self)
        return future

    @opaque
    def collect_all(futures: Any) -> Any:
        future = collect(futures)
        safely(recorder, recorder.derive_future, future, *futures)
        return future

    kind.then = derived  # type: ignore[method-assign]  # as above
    torch._C._collect_all = collect_all
    _replace_wait(recorder, kind, recorder.record_future_wait)


def _replace_handle(recorder: Recorder, kind: type) -> None:
    """Record waits for handles of this class, and what replaces a wait: polls and futures."""

    def polling(original: Any) -> Any:
        @opaque
        @wraps(original)
        def poll(self: Any, *args: Any, **named: Any) -> Any:
            answer = original(self, *args, **named)
            if answer is not False:
                is_future = isinstance(answer, torch._C.Future)
                safely(recorder, partial(recorder.record_no_wait, self, done=not is_future))
                if is_future:
                    safely(recorder, recorder.track_future, answer, self)
                if recorder.buffers is not None:
                    recorder.buffers.on_wait(self)
            return answer

        return poll

    for name in POLLS:
        if name in vars(kind):  # not every release has all of them
            setattr(kind, name, polling(vars(kind)[name]))
    _replace_wait(recorder, kind)


def _replace_backward(recorder: Recorder, buffers: Buffers) -> None:
    """Check which results of collectives the gradients are computed through."""
    module: Any = torch.autograd
    original = getattr(module, "_engine_run_backward", None)  # backward() and grad() call it
    if original is None:
        return

    @opaque
    def run(outputs: Any, *args: Any, **named: Any) -> Any:
        safely(recorder, buffers.results.on_backward, outputs)
        return original(outputs, *args, **named)

    module._engine_run_backward = run


def _replace_wait(
    recorder: Recorder,
    kind: type,
    record: Callable[[Any], Tracked | None] | None = None,
) -> None:
    """Record waits for handles, or for futures, of this class."""
    original = kind.wait  # type: ignore[attr-defined]  # every Work has it
    if hasattr(original, "_recorded"):
        return
    record_wait = record or recorder.record_wait

    @opaque
    @wraps(original)
    def wait(self: Any, *args: Any, **named: Any) -> Any:
        waited = safely(recorder, record_wait, self)
        if recorder.buffers is not None:
            recorder.buffers.on_wait(self)
        try:
            done = original(self, *args, **named)
        except BaseException:
            if waited is not None:
                if record is None:
                    recorder.track(self, waited._replace(sync=False))  # may be waited for again
                safely(recorder, partial(recorder.record_failure, accepted=True))
            raise
        if waited is not None:
            source = safely(recorder, self._source_rank) if waited.from_any else -1
            safely(recorder, recorder.record_return, -1 if source is None else source)
        return done

    wait._recorded = True
    kind.wait = wait  # type: ignore[attr-defined]  # as above
