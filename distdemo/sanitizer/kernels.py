"""Callers in C++, such as DDP's reducer: c10d's kernels, replaced at the key of the CPU's backends.

A kernel here calls the group's backend itself. It must not end in the kernel that it replaces: a
boxed call keeps the GIL, for which gloo's thread may wait while it holds what the call needs.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
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
from distdemo.view.foreign import write_message

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from distdemo.sanitizer.hooks import Recorder

_groups: WeakSet[dist.ProcessGroup] = WeakSet()
_held: list[torch.library.Library] = []  # torch forgets the kernels with their library


CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a kernel calls; its arguments go by the names of its schema.

    Attributes:
        method: of the backend.
        options: that it takes.
        tensors: its first arguments; the first of them is also what is returned, if it says so.
        returns: its first argument, beside the handle.
        each: method of the backend for each pair of the two lists, as torch has none in Python that
            takes these; the backends' own do the same.
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
"""Arguments that the backend takes as options, by the options' names."""
OTHERS = {"process_group", "async_op", "timeout", "sparse_indices"}


def cover(recorder: Recorder, groups: Iterable[dist.ProcessGroup]) -> None:
    """From now on note what C++ calls on these groups, too.

    On others not all ranks may note it: those that have no DDP module don't come here.
    """
    _groups.update(group for group in groups if recorder.knows(group))
    if _held:
        return
    library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]  # torch's
    _held.append(library)
    for name, kernel in KERNELS.items():
        packet = getattr(torch.ops.c10d, name, None)
        schema = packet and packet.default._schema  # noqa: SLF001 - torch.library has no other
        names = [argument.name for argument in schema.arguments] if schema else []
        if (
            not {"process_group", *kernel.tensors}
            <= {*names}
            <= {*kernel.tensors, *OPTIONS, *OTHERS}
        ):
            write_message(
                f"distdemo's sanitizer does not see c10d::{name}: "
                f"torch {torch.__version__} has it in another form.\n"
            )
            continue
        call, key = partial(_call, recorder, kernel, names), "CPU"
        if "reduce_op" in names and torch.__version__ < "2.10":
            call, key = partial(_call_original, recorder, kernel, names, name), "AutogradCPU"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel is replaced
            library.impl(name, call, key)  # type: ignore[no-untyped-call]  # as above


def _call(recorder: Recorder, kernel: Kernel, names: list[str], *args: Any) -> Any:  # noqa: ANN401 - torch's
    """Note the call, and make it."""
    given = dict(zip(names, args, strict=False))  # those with a default may be left out
    group, opts = dist.ProcessGroup.unbox(given["process_group"]), kernel.options()
    for name, option in OPTIONS.items():
        if name in given:
            value = given[name]
            setattr(opts, option, _reduce_op(value) if name == "reduce_op" else value)
    if given.get("timeout", -1) >= 0:
        opts.timeout = timedelta(milliseconds=given["timeout"])
    tensors = [given[name] for name in kernel.tensors]
    _note(recorder, kernel, group, (*tensors, opts))
    backend = group._get_backend(CPU)  # noqa: SLF001 - as the kernel itself does
    if kernel.each:
        *others, work = [
            getattr(backend, kernel.each)(*pair, opts) for pair in zip(*tensors, strict=True)
        ]
        for other in others:
            other.wait()
    else:
        work = getattr(backend, kernel.method)(*tensors, opts)
    return (tensors[0], work.boxed()) if kernel.returns else work.boxed()


def _call_original(
    recorder: Recorder,
    kernel: Kernel,
    names: list[str],
    name: str,
    *args: Any,  # noqa: ANN401 - torch's
) -> Any:  # noqa: ANN401 - as above
    """The same where Python can't read a boxed ReduceOp, and so can't make the call itself.

    It sits above the kernel, which torch.ops reaches without the GIL. Inference tensors have no
    such key: their calls go by unseen.
    """
    given = dict(zip(names, args, strict=False))
    group = dist.ProcessGroup.unbox(given["process_group"])
    tensors = [given[each] for each in kernel.tensors]
    _note(recorder, kernel, group, (*tensors, kernel.options()), known_op=False)
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
