"""Intercept calls from C++, such as DDP's reducer, by replacing c10d's kernels for CPU tensors.

A kernel here calls the group's backend directly. It must not call the kernel that it replaces: a
boxed call holds the GIL, and gloo's thread may wait for the GIL while holding a lock that the call
needs.
"""

from __future__ import annotations

import warnings
from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BroadcastOptions,
    ReduceScatterOptions,
)

from distdemo.calls.record.calls import METHODS
from distdemo.calls.record.recorder import Tracked, opaque, safely
from distdemo.calls.record.steps import called_by_ddp, in_backward
from distdemo.view.foreign import write_message

if TYPE_CHECKING:
    from distdemo.calls.record.recorder import Recorder

_held: list[torch.library.Library] = []  # torch drops the kernels with their library


CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Kernel:
    """Backend call that a kernel makes. Arguments have the names of its schema.

    Attributes:
        method: Method of the backend.
        options: Class of its options.
        tensors: Names of its first arguments.
        returns: True if the kernel returns its first argument with the handle.
        each: Backend method called per pair of the two lists, because torch has no Python method
            that takes lists; the backends do the same.
    """

    method: str
    options: Any
    tensors: tuple[str, ...]
    returns: bool = True
    each: str = ""


ONE, LIST, PAIR = ("tensors",), ("output_tensors", "input_tensors"), ("outputs", "inputs")
SINGLE = ("output_tensor", "input_tensor")
SPLIT = ("output", "input", "output_split_sizes", "input_split_sizes")
KERNELS = {
    "allreduce_": Kernel("allreduce", AllreduceOptions, ONE),
    "broadcast_": Kernel("broadcast", BroadcastOptions, ONE),
    "allgather_": Kernel("allgather", AllgatherOptions, LIST),
    "_allgather_base_": Kernel("_allgather_base", AllgatherOptions, SINGLE),
    "_reduce_scatter_base_": Kernel("_reduce_scatter_base", ReduceScatterOptions, SINGLE),
    "allreduce_coalesced_": Kernel(
        "allreduce_coalesced", AllreduceCoalescedOptions, ONE, returns=False
    ),
    "allgather_into_tensor_coalesced_": Kernel(
        "allgather_into_tensor_coalesced",
        AllgatherOptions,
        PAIR,
        returns=False,
        each="_allgather_base",
    ),
    "reduce_scatter_tensor_coalesced_": Kernel(
        "reduce_scatter_tensor_coalesced",
        ReduceScatterOptions,
        PAIR,
        returns=False,
        each="_reduce_scatter_base",
    ),
    "alltoall_base_": Kernel("alltoall_base", AllToAllOptions, SPLIT, returns=False),
}
OPTIONS = {"reduce_op": "reduceOp", "root_rank": "rootRank", "root_tensor": "rootTensor"}
"""Names of the options for arguments that the backend takes as options."""
OTHERS = {"process_group", "async_op", "timeout", "sparse_indices"}


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
    if _held:
        return
    library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]  # torch's
    _held.append(library)
    for name, kernel in KERNELS.items():
        packet = getattr(torch.ops.c10d, name, None)
        schema = packet and packet.default._schema
        names = [argument.name for argument in schema.arguments] if schema else []
        if (
            not {"process_group", *kernel.tensors}
            <= {*names}
            <= {*kernel.tensors, *OPTIONS, *OTHERS}
        ):
            write_message(
                f"distdemo's sanitizer can't record c10d::{name}: "
                f"its signature is different in torch {torch.__version__}.\n"
            )
            continue
        call, key = partial(_call, recorder, kernel, names), "CPU"
        if "reduce_op" in names and torch.__version__ < "2.10":
            call, key = partial(_call_original, recorder, kernel, names, name), "AutogradCPU"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about replacing a kernel
            library.impl(name, call, key)  # type: ignore[no-untyped-call]  # as above


@opaque
def _call(recorder: Recorder, kernel: Kernel, names: list[str], *args: Any) -> Any:
    """Record the call and make it."""
    given = dict(zip(names, args, strict=False))  # arguments with a default may be omitted
    group, opts = dist.ProcessGroup.unbox(given["process_group"]), kernel.options()
    for name, option in OPTIONS.items():
        if name in given:
            value = given[name]
            setattr(opts, option, _reduce_op(value) if name == "reduce_op" else value)
    if given.get("timeout", -1) >= 0:
        opts.timeout = timedelta(milliseconds=given["timeout"])
    tensors = [given[name] for name in kernel.tensors]
    number = _record(recorder, kernel, group, (*tensors, opts))
    backend = group._get_backend(CPU)
    if kernel.each:
        *others, work = [
            getattr(backend, kernel.each)(*pair, opts) for pair in zip(*tensors, strict=True)
        ]
        for other in others:
            other.wait()
    else:
        work = getattr(backend, kernel.method)(*tensors, opts)
    if number is not None:
        if in_backward() and called_by_ddp():  # DDP waits in C++ for the future
            safely(recorder, recorder.record_wait_after_backward, number)
        else:
            recorder.track(work, Tracked(number, sync=False, from_any=False, cpp=True))
            work = _Work(work)
    return (tensors[0], work.boxed()) if kernel.returns else work.boxed()


@opaque
def _call_original(
    recorder: Recorder,
    kernel: Kernel,
    names: list[str],
    name: str,
    *args: Any,
) -> Any:
    """Record the call and make it through the original kernel.

    For releases in which Python can't read a boxed ReduceOp. This is registered above the kernel,
    which torch.ops calls without the GIL. Inference tensors lack this key, so their calls aren't
    recorded.
    """
    given = dict(zip(names, args, strict=False))
    group = dist.ProcessGroup.unbox(given["process_group"])
    tensors = [given[each] for each in kernel.tensors]
    _record(recorder, kernel, group, (*tensors, kernel.options()), known_op=False)
    with torch._C._AutoDispatchBelowAutograd():
        return getattr(torch.ops.c10d, name)(*args)


def _record(
    recorder: Recorder,
    kernel: Kernel,
    group: dist.ProcessGroup,
    given: tuple[Any, ...],
    *,
    known_op: bool = True,
) -> int | None:
    """Record a call, unless it was made by a recorded method; return its number."""
    busy = getattr(recorder.local, "busy", False)
    if busy or recorder.off or not recorder.is_registered(group):
        return None
    try:
        fields = METHODS[kernel.method](given, {})
        if fields.sync:  # C++ waits later
            fields = fields._replace(sync=False)
        if not known_op and not called_by_ddp():  # DDP uses SUM
            fields = fields._replace(reduce_op="")
        return recorder.record_call(group, fields, cpp=True)
    except Exception as error:  # noqa: BLE001 - the program must not be affected
        recorder.fail(error)
        return None


def _reduce_op(boxed: Any) -> Any:
    unbox = getattr(dist.ReduceOp, "unbox", None)  # torch 2.15 and later
    if unbox is not None:
        return unbox(boxed)
    kind = boxed.op()
    return dist.ReduceOp.RedOpType(kind) if isinstance(kind, int) else kind
