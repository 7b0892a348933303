"""Intercept calls from C++, such as DDP's reducer, by replacing c10d's kernels for CPU tensors.

A kernel here calls the group's backend directly. It must not call the kernel that it replaces: a
boxed call holds the GIL, and gloo's thread may wait for the GIL while holding a lock that the call
needs.
"""

from __future__ import annotations

import warnings
from collections import deque
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as cpp

from distdemo.calls.record.calls import METHODS, fields_of
from distdemo.calls.record.frames import called_by_ddp
from distdemo.calls.record.recorder import Recorder, Tracked
from distdemo.observe.hooks import in_backward, opaque
from distdemo.view.foreign import write_message

CPU = torch.device("cpu")
_library: list[torch.library.Library] = []  # torch drops the kernels with their library


OPTIONS = {"reduce_op": "reduceOp", "root_rank": "rootRank", "root_tensor": "rootTensor"}
"""Names of the options for arguments that the backend takes as options."""
NO_OPERANDS = {*OPTIONS, "process_group", "async_op", "timeout", "sparse_indices"}


class Kernel(NamedTuple):
    """Kernel, and the backend call that it makes.

    Attributes:
        method: Method of the backend, and name of the kernel without ``_``.
        options: Class of its options.
        operands: Number of its other arguments: tensors and sizes.
        per_pair: Backend method called per pair of the two lists, because torch has no Python
            method that takes lists; the backends do the same.
        names: Names of the kernel's arguments.
        returns: True if the kernel returns its first argument with the handle.
    """

    method: str
    options: Any
    operands: int = 2
    per_pair: str = ""
    names: tuple[str, ...] = ()
    returns: bool = False


GATHERS = "allgather_into_tensor_coalesced"
SCATTERS = "reduce_scatter_tensor_coalesced"
KERNELS = [
    Kernel("allreduce", cpp.AllreduceOptions, 1),
    Kernel("broadcast", cpp.BroadcastOptions, 1),
    Kernel("allgather", cpp.AllgatherOptions),
    Kernel("_allgather_base", cpp.AllgatherOptions),
    Kernel("_reduce_scatter_base", cpp.ReduceScatterOptions),
    Kernel("allreduce_coalesced", cpp.AllreduceCoalescedOptions, 1),
    Kernel(GATHERS, cpp.AllgatherOptions, per_pair="_allgather_base"),
    Kernel(SCATTERS, cpp.ReduceScatterOptions, per_pair="_reduce_scatter_base"),
    Kernel("alltoall_base", cpp.AllToAllOptions, 4),
]
"""Replaced kernels."""


class _Work(dist.Work):
    """Handle for C++, whose waits are recorded by the wrapper of the real handle's ``wait``."""

    @opaque
    def __init__(self, work: dist.Work) -> None:
        super().__init__()
        self._work: dist.Work | None = work
        for other in [*islice(_unfinished, 2)]:  # C++ may only use their futures
            if other.is_completed():
                other.release()
        _unfinished[self] = None  # C++ finds methods here only while Python holds the handle

    @opaque
    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait for the call."""
        if self._work is None:  # C++ waits once per tensor
            return True
        try:
            return self._work.wait(timeout)
        finally:
            self.release()

    @opaque
    def release(self) -> None:
        """Release the real handle, which is done, and its tensors."""
        self._work = None
        if _unfinished.pop(self, self) is None:
            _finished.append(self)

    @opaque
    def is_completed(self) -> bool:
        """Return True if the call is done."""
        return self._work is None or self._work.is_completed()

    @opaque
    def get_future(self) -> Any:
        """Return the future of the call."""
        return None if self._work is None else self._work.get_future()


_unfinished: dict[_Work, None] = {}
_finished: deque[_Work] = deque(maxlen=10_000)  # C++ may wait for them again


def install(recorder: Recorder) -> None:
    """Record calls from C++ from now on, once per process.

    Whatever makes such calls installs the kernels first, so that all members of a group record
    them. Until then, calls from Python don't have to pass a kernel in Python.
    """
    if _library:
        return
    library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]  # torch's
    _library.append(library)
    for kernel in KERNELS:
        name = f"{kernel.method}_"
        packet = getattr(torch.ops.c10d, name, None)
        schema: Any = packet and packet.default._schema
        names = tuple(argument.name for argument in schema.arguments) if packet else ()
        if len({*names} - NO_OPERANDS) != kernel.operands:
            write_message(
                f"distdemo's sanitizer can't record c10d::{name}: "
                f"its signature is different in torch {torch.__version__}. "
                "It reads such calls from torch's flight recorder.\n"
            )
            recorder.read_from_recorder()
            continue
        function, key = _call, "CPU"
        if "reduce_op" in names and torch.__version__ < "2.10":
            function, key = _call_original, "AutogradCPU"
        described = kernel._replace(names=names, returns=len(schema.returns) > 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about replacing a kernel
            library.impl(name, partial(function, recorder, described), key)  # type: ignore[no-untyped-call]  # as above


@opaque
def _call(recorder: Recorder, kernel: Kernel, *args: Any) -> Any:
    """Record the call and make it."""
    opts = kernel.options()
    group, tensors, given = _arguments(kernel, args)
    for name, option in OPTIONS.items():
        if name in given:
            value = given[name]
            setattr(opts, option, _reduce_op(value) if name == "reduce_op" else value)
    if given.get("timeout", -1) >= 0:
        opts.timeout = timedelta(milliseconds=given["timeout"])
    number = recorder.safely(_record, recorder, kernel, group, (*tensors, opts))
    call = getattr(group._get_backend(CPU), kernel.per_pair or kernel.method)
    pairs = zip(*tensors, strict=True) if kernel.per_pair else [tensors]
    with recorder.within_call():
        *others, work = [call(*operands, opts) for operands in pairs]
    recorder.record_made()
    for other in others:
        other.wait()
    if number is not None:
        if in_backward() and called_by_ddp():  # DDP waits in C++ for the future
            recorder.safely(recorder.record_wait_after_backward, number)
        else:
            recorder.track(work, Tracked(number, sync=False, from_any=False, cpp=True))
            work = _Work(work)
    return (tensors[0], work.boxed()) if kernel.returns else work.boxed()


@opaque
def _call_original(recorder: Recorder, kernel: Kernel, *args: Any) -> Any:
    """Record the call and make it through the original kernel.

    For releases in which Python can't read a boxed ReduceOp. This is registered above the kernel,
    which torch.ops calls without the GIL. Inference tensors lack this key, so their calls aren't
    recorded.
    """
    group, tensors, _ = _arguments(kernel, args)
    arguments = (*tensors, kernel.options())
    recorder.safely(_record, recorder, kernel, group, arguments, known_op=False)
    with torch._C._AutoDispatchBelowAutograd():
        result = getattr(torch.ops.c10d, f"{kernel.method}_")(*args)
    recorder.record_made()
    return result


def _arguments(kernel: Kernel, args: Any) -> tuple[dist.ProcessGroup, list[Any], dict[str, Any]]:
    """Return a kernel's group, its operands, and its other arguments by name."""
    given = dict(zip(kernel.names, args, strict=False))  # those with a default may be omitted
    tensors = [given.pop(name) for name in kernel.names if name not in NO_OPERANDS]
    return dist.ProcessGroup.unbox(given["process_group"]), tensors, given


def _record(
    recorder: Recorder,
    kernel: Kernel,
    group: dist.ProcessGroup,
    args: tuple[Any, ...],
    *,
    known_op: bool = True,
) -> int | None:
    """Record a call, unless it was made by a recorded method; return its number."""
    if recorder.local.busy or not recorder.is_registered(group):
        return None
    if recorder.is_left_to_torch(group, cpp_on=CPU.type):
        return None
    method = METHODS[kernel.method]
    fields = fields_of(method, args, {})
    if not known_op and not called_by_ddp():  # DDP uses SUM
        fields = fields._replace(reduce_op="")
    return recorder.record_call(group, fields, method, args, cpp=True)


def _reduce_op(boxed: Any) -> Any:
    unbox = getattr(dist.ReduceOp, "unbox", None)  # torch 2.15 and later
    if unbox is not None:
        return unbox(boxed)
    kind = boxed.op()
    return dist.ReduceOp.RedOpType(kind) if isinstance(kind, int) else kind
