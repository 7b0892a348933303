"""Hooks that record each collective before it is called.

Calls from Python are recorded by the methods of ``ProcessGroup``, which are replaced on the class
and on subclasses that override them, such as our mpi backend. It doesn't matter how a program
imported ``dist.all_reduce``. Calls from C++ (DDP's reducer) are recorded by ``kernels``, which is
installed when the first DDP module is created.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as cpp
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d as c10d
from torch.distributed import rpc

from distdemo.calls.notes import Ring, Writer, shared
from distdemo.calls.record import frames
from distdemo.calls.record.calls import METHODS, Fields, Method, fields_of
from distdemo.calls.record.gradients import IN_PLACE
from distdemo.calls.record.recorder import Recorder, Tracked
from distdemo.calls.records import Notes
from distdemo.observe.hooks import OBSERVER, add_hook, in_backward, replace_function, uncounted

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
MAX_DELAY_S = 0.02  # by --shake, of half of a rank's first calls
SHAKEN_CALLS = 1000

CPP_CALLERS = {
    dist: ("_verify_params_across_processes", "Reducer"),  # called by DDP's constructor
    functional: ("_resolve_group", "_resolve_group_name"),
}
"""Functions of torch that precede calls from C++, by module."""


def current_recorder() -> Recorder | None:
    """Return the recorder of this process, or None if its calls aren't recorded."""
    return getattr(dist.ProcessGroup.allreduce, "_recorded", None)


def install(recorder: Recorder) -> Recorder:
    """Install the hooks, once per process, before or after it creates a group."""
    add = partial(_add_hook, recorder)
    for kind in (dist.ProcessGroup, cpp.Backend):  # a backend if the program makes one itself
        _replace_methods(recorder, kind)
    _replace_handle(recorder, dist.Work)
    for listener in (recorder, recorder.ledger, recorder.steps, recorder.samplers):
        OBSERVER.add(listener, recorder.safely)
    recorder.ledger.names.install()
    if recorder.buffers is not None:
        recorder.buffers.__enter__()  # type: ignore[no-untyped-call]  # until the process exits
    add(c10d, "_warn_not_in_group", recorder.record_non_member)
    add(c10d, "destroy_process_group", recorder.record_destroy)
    for name in ("rendezvous", "_new_process_group_helper"):  # both follow the checks of arguments
        add(c10d, name, recorder.record_accept)
    add(c10d, "split_group", after=partial(_register, recorder))
    replace_function(c10d, "new_group", partial(_creating_group, recorder))
    replace_function(c10d, "init_process_group", partial(_initializing, recorder))
    replace_function(torch._C.Future, "wait", partial(_waiting, recorder))
    add(threading.Thread, "_delete", after=lambda _, thread: recorder.record_thread_end(thread))
    add(torch._C.Future, "then", after=recorder.track_future)
    add(torch._C, "_collect_all", after=lambda done, futures: recorder.track_future(done, *futures))
    replace_function(rpc, "_init_rpc_backend", partial(_joining_rpc, recorder))
    replace_function(frames.RPC, "_wait_all_workers", partial(_leaving_rpc, recorder))
    for module, names in CPP_CALLERS.items():
        for name in names:
            if hasattr(module, name):
                wrapper = _calling_cpp(recorder, getattr(module, name))
                setattr(module, name, uncounted(wrapper))
    _register(recorder, dist.group.WORLD)
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
    ring = Ring(memory)
    recorder = Recorder(
        Writer(ring.write, timed=notes.timed),
        (rank, world_size),
        buffers=notes.buffers,
        replicas=notes.replicas,
        delays=() if notes.shake is None else delays(notes.shake, rank),
        is_asked=ring.take_request,
    )
    install(recorder)
    try:
        yield
    except BaseException as error:
        recorder.safely(recorder.record_end, error)
        raise
    recorder.safely(recorder.record_end, None)


def delays(seed: int, rank: int) -> Iterator[float]:
    """Yield random delays before the first calls of a rank in seconds, which reveal races."""
    random = Random(f"{seed} {rank}")
    for _ in range(SHAKEN_CALLS):
        yield random.uniform(0, MAX_DELAY_S) if random.random() < 0.5 else 0.0


# ---------------------------------------------------------------------- replaced functions of torch


def _add_hook(
    recorder: Recorder,
    owner: Any,
    name: str,
    before: Callable[..., object] | None = None,
    after: Callable[..., object] | None = None,
) -> None:
    """Call functions of the recorder around another one; see `observe.hooks.add_hook`."""
    guarded = (None if hook is None else partial(recorder.safely, hook) for hook in (before, after))
    add_hook(owner, name, *guarded)


def _calling_cpp(recorder: Recorder, original: Any) -> Any:
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

        if not recorder.is_tested:
            recorder.safely(install, recorder)

    return wrapper


# -------------------------------------------------------------------------------------- groups


def _initializing(recorder: Recorder, original: Any) -> Any:
    def init_process_group(*args: Any, **named: Any) -> Any:
        size = named.get("world_size", -1)
        size = os.environ.get("WORLD_SIZE", recorder.size) if size == -1 else size
        is_world = recorder.size > 0 and str(size) == str(recorder.size)
        is_recorded = is_world and len(args) <= POSITION_OF_SIZE
        with _creation(recorder, range(recorder.size) if is_recorded else None, "init"):
            original(*args, **named)
        _register(recorder, dist.group.WORLD)

    return init_process_group


def _joining_rpc(recorder: Recorder, original: Any) -> Any:
    """Wrap the part of ``init_rpc`` in which ranks wait for each other."""
    parameters = inspect.signature(original)

    def init_rpc(*args: Any, **named: Any) -> Any:
        given = parameters.bind(*args, **named).arguments
        members = recorder.safely(recorder.rpc_members, given.get("rank"), given.get("world_size"))
        with _creation(recorder, members, "rpc"):
            return original(*args, **named)

    return init_rpc


def _leaving_rpc(recorder: Recorder, original: Any) -> Any:
    """Wrap the part of ``rpc.shutdown`` in which ranks wait for each other."""

    def wait_all_workers(*args: Any, **named: Any) -> Any:
        is_recorded = recorder.safely(recorder.record_rpc_shutdown)
        result = original(*args, **named)
        if is_recorded:
            recorder.safely(recorder.record_return)
        return result

    return wait_all_workers


def _creating_group(recorder: Recorder, original: Any) -> Any:
    parameters = inspect.signature(original)

    def new_group(*args: Any, **named: Any) -> Any:
        given = parameters.bind(*args, **named).arguments
        if given.get("ranks") is not None:
            given["ranks"] = [int(rank) for rank in given["ranks"]]  # it may be an iterator
        members = None
        by_members = given.get("use_local_synchronization")
        if not recorder.local.busy and recorder.is_registered(dist.group.WORLD):
            members = sorted(given.get("ranks") or range(dist.get_world_size()))
            if by_members and dist.get_rank() not in members:
                members = None
        with _creation(recorder, members, "local" if by_members else ""):
            group = original(**given)
        return _register(recorder, group)

    return new_group


@contextmanager
def _creation(recorder: Recorder, members: Iterable[int] | None, how: str) -> Iterator[None]:
    """Record the creation of a group, unless its members are None; calls within belong to it."""
    if members is not None:
        recorder.safely(recorder.record_new_group, tuple(members), how)
    try:
        with recorder.within_call():
            yield
    except BaseException as error:
        if members is not None:  # torch rejects arguments before it contacts other ranks
            accepted = how != "init" and isinstance(error, (dist.DistError, KeyboardInterrupt))
            recorder.safely(recorder.record_failure, accepted=accepted)
        raise
    if members is not None:
        recorder.safely(recorder.record_return)


def _register(recorder: Recorder, group: Any, *_: object, **__: object) -> Any:
    if isinstance(group, dist.ProcessGroup):
        recorder.safely(_replace_methods, recorder, type(group))
        recorder.safely(recorder.register, group)
    return group


# --------------------------------------------------------------------------------------- calls


def _replace_methods(recorder: Recorder, kind: type) -> None:
    """Replace the methods of this class and its base classes, once each."""
    for base in kind.__mro__:
        if base.__module__ == "distdemo.mpi.engine":  # our mpi backend waits in the method itself
            _add_hook(recorder, base, "_wait", recorder.record_accept)
        for name in METHODS:
            replace_function(base, name, partial(_calling, recorder, name), recorder)


def _calling(recorder: Recorder, name: str, original: Any) -> Any:
    """Wrap a method of ``ProcessGroup`` or of a backend."""
    local = recorder.local
    method = METHODS[name]

    def call(self: Any, *args: Any, **named: Any) -> Any:
        if recorder.off or local.busy:
            return original(self, *args, **named)
        local.busy = True  # nested calls belong to this one
        try:
            if recorder.is_left_to_torch(self):
                return original(self, *args, **named)
            if not recorder.is_registered(self):
                recorder.safely(_skip_call, recorder, self)
                return original(self, *args, **named)
            begun = recorder.safely(_begin_call, recorder, method, self, args, named)
            try:
                work = original(self, *args, **named)
            except BaseException:
                if begun is not None:
                    accepted = method.op == "monitored_barrier"
                    recorder.safely(recorder.record_failure, accepted=accepted)
                raise
            if begun is not None:
                recorder.safely(_follow_call, recorder, method, self, args, work, *begun)
            return work
        finally:
            local.busy = False

    return call


def _skip_call(recorder: Recorder, group: Any) -> None:
    """Record that calls on a group aren't compared, unless they are torch's own on a backend."""
    is_meant = isinstance(group, dist.ProcessGroup) or not frames.called_by_torch()
    if is_meant and group.size() > 1:
        recorder.record_unseen("calls", (type(group).__name__,))


def _begin_call(
    recorder: Recorder, method: Method, group: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Fields, int]:
    """Record a call that is about to be made; return its fields and number."""
    fields = fields_of(method, args, named)
    if fields.peer is not None and frames.in_batch():
        fields = fields._replace(batched=True)
    number = recorder.record_call(group, fields, method, args)
    if recorder.observer is not None:
        recorder.observer.on_call(method, fields, args, group)
    if method.op == "monitored_barrier":  # it waits in the method itself
        recorder.record_accept()
    return fields, number


def _follow_call(
    recorder: Recorder,
    method: Method,
    group: Any,
    args: tuple[Any, ...],
    work: Any,
    fields: Fields,
    number: int,
) -> None:
    """Track the handle of a call that was made."""
    if method.op in IN_PLACE:
        tensors = args[0] if args else ()
        recorder.beside("gradients", recorder.in_place.add, fields, tensors)
    if work is None:
        recorder.record_return()
    else:
        recorder.record_accept()
        from_any = method.op == "recv" and fields.peer == -1
        is_message = fields.peer is not None
        recorder.track(work, Tracked(number, fields.sync, from_any, message=is_message))
        if method.op == "all_reduce" and in_backward() and frames.called_by_ddp():
            recorder.record_wait_after_backward(number)
        if not hasattr(type(work).wait, "_recorded"):
            _replace_handle(recorder, type(work))
    if recorder.buffers is not None:
        watched = None if work is None or fields.sync else number
        own = group.rank()
        recorder.beside("buffers", recorder.buffers.on_call, watched, method, fields, args, own)


# ---------------------------------------------------------------------------- handles and futures


def _replace_handle(recorder: Recorder, kind: type) -> None:
    """Record waits for handles of this class, and what replaces a wait: polls and futures."""

    def on_poll(answer: Any, work: Any, *_: object, **__: object) -> None:
        recorder.record_poll(work, answer)

    for base in kind.__mro__:
        for name in POLLS:
            _add_hook(recorder, base, name, after=on_poll)
        replace_function(base, "wait", partial(_waiting, recorder))


def _waiting(recorder: Recorder, original: Any) -> Any:
    """Wrap ``wait`` of a handle or future."""

    def wait(self: Any, *args: Any, **named: Any) -> Any:
        call = recorder.safely(recorder.record_wait, self)
        try:
            result = original(self, *args, **named)
        except BaseException:
            if call is not None:
                recorder.track(self, call._replace(sync=False))  # it may be waited for again
                recorder.safely(recorder.record_failure, accepted=True)
            raise
        if call is not None:
            source = recorder.safely(self._source_rank) if call.from_any else None
            recorder.safely(recorder.record_return, -1 if source is None else source)
        return result

    return wait
