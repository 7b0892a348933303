"""Callers in C++, such as DDP's reducer: c10d's kernels, replaced at the key of the CPU's backends.

A kernel here calls the group's backend itself. It must not end in the kernel that it replaces: a
boxed call keeps the GIL, for which gloo's thread may wait while it holds what the call needs.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

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

from distdemo.sanitizer.calls import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from distdemo.sanitizer.hooks import Recorder

_groups: WeakSet[dist.ProcessGroup] = WeakSet()
_held: list[torch.library.Library] = []  # torch forgets the kernels with their library


CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Kernel:
    """Where a kernel's arguments go, by their places in its schema.

    Attributes:
        method: of the backend.
        options: that it takes.
        tensors: its first arguments; the first of them is also what is returned, if it says so.
        group: the process group, boxed.
        timeout: in milliseconds; below 0: the group's.
        fields: of the options.
        returns: its first argument, beside the handle.
        each: method of the backend for each pair of the two lists, as torch has none in Python that
            takes these; the backends' own do the same.
    """

    method: str
    options: Any
    tensors: tuple[int, ...]
    group: int
    timeout: int
    fields: dict[str, int] = field(default_factory=dict)
    returns: bool = True
    each: str = ""


KERNELS = {
    "allreduce_": Kernel("allreduce", AllreduceOptions, (0,), 1, 5, {"reduceOp": 2}),
    "broadcast_": Kernel(
        "broadcast", BroadcastOptions, (0,), 1, 5, {"rootRank": 2, "rootTensor": 3}
    ),
    "allgather_": Kernel("allgather", AllgatherOptions, (0, 1), 2, 4),
    "_allgather_base_": Kernel("_allgather_base", AllgatherOptions, (0, 1), 2, 4),
    "_reduce_scatter_base_": Kernel(
        "_reduce_scatter_base", ReduceScatterOptions, (0, 1), 2, 5, {"reduceOp": 3}
    ),
    "allreduce_coalesced_": Kernel(
        "allreduce_coalesced", AllreduceCoalescedOptions, (0,), 1, 4, {"reduceOp": 2}, returns=False
    ),
    "allgather_into_tensor_coalesced_": Kernel(
        "allgather_into_tensor_coalesced",
        AllgatherOptions,
        (0, 1),
        2,
        4,
        returns=False,
        each="_allgather_base",
    ),
    "reduce_scatter_tensor_coalesced_": Kernel(
        "reduce_scatter_tensor_coalesced",
        ReduceScatterOptions,
        (0, 1),
        2,
        5,
        {"reduceOp": 3},
        returns=False,
        each="_reduce_scatter_base",
    ),
    "alltoall_base_": Kernel("alltoall_base", AllToAllOptions, (0, 1, 3, 4), 2, 6, returns=False),
}


def cover(recorder: Recorder, groups: Iterable[dist.ProcessGroup]) -> None:
    """From now on note what C++ calls on these groups, too.

    On others not all ranks may note it: those that have no DDP module don't come here.
    """
    _groups.update(groups)
    if _held:
        return
    library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]  # torch's
    _held.append(library)
    for name, kernel in KERNELS.items():
        call, key = partial(_call, recorder, kernel), "CPU"
        if "reduceOp" in kernel.fields and torch.__version__ < "2.10":
            call, key = partial(_call_original, recorder, kernel, name), "AutogradCPU"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is replaced
            library.impl(name, call, key)  # type: ignore[no-untyped-call]  # as above


def _call(recorder: Recorder, kernel: Kernel, *args: Any) -> Any:  # noqa: ANN401 - torch's
    """Note the call, and make it."""
    group = dist.ProcessGroup.unbox(args[kernel.group])
    opts = kernel.options()
    for name, place in kernel.fields.items():
        setattr(opts, name, _reduce_op(args[place]) if name == "reduceOp" else args[place])
    if len(args) > kernel.timeout and args[kernel.timeout] >= 0:
        opts.timeout = timedelta(milliseconds=args[kernel.timeout])
    given = (*(args[place] for place in kernel.tensors), opts)
    _note(recorder, kernel, group, given)
    backend = group._get_backend(CPU)  # noqa: SLF001 - as the kernel itself does
    if kernel.each:
        *others, work = [
            getattr(backend, kernel.each)(*pair, opts) for pair in zip(*given[:2], strict=True)
        ]
        for other in others:
            other.wait()
    else:
        work = getattr(backend, kernel.method)(*given)
    return (given[0], work.boxed()) if kernel.returns else work.boxed()


def _call_original(recorder: Recorder, kernel: Kernel, name: str, *args: Any) -> Any:  # noqa: ANN401 - torch's
    """The same where Python can't read a boxed ReduceOp, and so can't make the call itself.

    It sits above the kernel, which torch.ops reaches without the GIL. Inference tensors have no
    such key: their calls go by unseen.
    """
    group = dist.ProcessGroup.unbox(args[kernel.group])
    given = (*(args[place] for place in kernel.tensors), kernel.options())
    _note(recorder, kernel, group, given, known_op=False)
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001 - torch.library has no other way on
        return getattr(torch.ops.c10d, name)(*args)


def _note(
    recorder: Recorder,
    kernel: Kernel,
    group: dist.ProcessGroup,
    given: tuple[Any, ...],
    *,
    known_op: bool = True,
) -> None:
    """Note a call, unless a method that was noted has made it."""
    if group not in _groups or recorder.off or getattr(recorder.local, "busy", False):
        return
    try:
        fields, via = METHODS[kernel.method](given, {})._replace(sync=False), _caller()
        if not known_op and via.startswith("functional"):
            fields = fields._replace(reduce_op="")  # DDP, the other caller, adds
        recorder.made(group, fields, via)
    except Exception as error:  # noqa: BLE001 - the program must not suffer
        recorder.fail(error)


def _reduce_op(boxed: Any) -> Any:  # noqa: ANN401 - ReduceOp, boxed
    unbox = getattr(dist.ReduceOp, "unbox", None)  # torch 2.15 and later
    if unbox is not None:
        return unbox(boxed)
    kind = boxed.op()
    return dist.ReduceOp.RedOpType(kind) if isinstance(kind, int) else kind


def _caller() -> str:
    """What of torch made a call by itself."""
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 - there is no other way that is cheap
    while frame is not None:
        file, name = frame.f_code.co_filename.replace("\\", "/"), frame.f_code.co_name
        if file.endswith("/torch/_tensor.py") and name == "backward":
            return "backward()"
        if file.endswith("/torch/nn/parallel/distributed.py"):
            return "DDP's constructor" if name == "__init__" else f"DDP's {name}"
        if file.endswith("/torch/distributed/_functional_collectives.py"):
            return f"functional {name}"
        if "/torch/distributed/tensor/" in file:
            return "DTensor"
        frame = frame.f_back
    return "torch's C++"
