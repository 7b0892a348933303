"""Helpers for distributed programs: rank, barrier, and collectives on objects and uneven tensors.

All of them also work in a single process: without an initialized process group, or if
``torch.distributed`` isn't available, this process is rank 0 of a world of one. (Before
``init_process_group`` this is also true under torchrun.) Importing this module doesn't import
torch.

**Groups.** ``group=None`` is the default group. ``src`` and ``dst`` are ranks *of the group*,
0 to its size - 1, whereas those of ``torch.distributed`` are ranks of the default group.

**Mistakes.** A call begins with a small all_gather that describes what every rank is about to do.
If ranks disagree (different calls or roots, incompatible tensors, a value that can't be pickled),
every rank raises the same error instead of hanging, aborting or returning garbage.

**The CPU group.** Objects are sent over the CPU. If the default group takes no CPU tensors (nccl),
the first call that needs it creates a gloo group of the same ranks, which is used as long as that
default group exists. Creating it is collective, like any ``new_group``, so this first call must
have the same position among the ``new_group`` calls of every rank. A subgroup that takes no CPU
tensors sends the bytes on its device, like torch's own object collectives.

.. warning::
    Objects are sent with pickle, and **unpickling runs code**: a sender in the group can run code
    on all of its ranks. Use the three object functions only among processes and over a network
    that you trust.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

from distdemo.errors import DistdemoError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor
    from torch.distributed import ProcessGroup
    from torch.nn import Module

__all__ = [
    "all_gather_objects",
    "all_gather_uneven",
    "broadcast_object",
    "check_replicas",
    "gather_objects",
    "get_rank",
    "get_world_size",
    "is_main",
    "step",
    "synchronize",
]

T = TypeVar("T")


def get_rank() -> int:
    """Return this process's rank in the default group; 0 without one."""
    dist = _distributed()
    return 0 if dist is None else int(dist.get_rank())


def get_world_size() -> int:
    """Return the number of ranks in the default group; 1 without one."""
    dist = _distributed()
    return 1 if dist is None else int(dist.get_world_size())


def is_main() -> bool:
    """Return True on rank 0, which usually prints and saves."""
    return get_rank() == 0


def step() -> None:
    """Count a training step: call it on every rank, once per iteration.

    Without it, the steps of the optimizers are counted. ``distdemo run`` reports ranks that average
    gradients of different steps. Elsewhere this does nothing.
    """
    recorder = _recorder()
    if recorder:
        recorder.steps.advance()


def check_replicas(
    replicas: Module | Mapping[str, Tensor] | Iterable[Tensor], group: ProcessGroup | None = None
) -> None:
    """Check that tensors are equal on all ranks of a group: call it on each of them.

    ``distdemo run`` compares their checksums, and reports a tensor that differs. Elsewhere this
    does nothing.

    Args:
        replicas: Module, whose parameters are checked, or tensors; sparse ones are skipped.
        group: Group whose ranks hold the same tensors.
    """
    recorder = _recorder()
    if recorder:
        recorder.check_replicas(group, replicas)


def _recorder() -> Any:
    hooks = sys.modules.get("distdemo.calls.record.hooks")
    return hooks and hooks.current_recorder()


def synchronize() -> None:
    """Return when every rank has called this; immediately in a world of one. Collective.

    It synchronizes processes on the CPU and doesn't wait for work on a GPU.
    """
    route = _find_route(None)
    if route.size > 1:
        import torch.distributed as dist

        dist.barrier(group=route.carrier)


# ------------------------------------------------------------------------------------ objects


def all_gather_objects(value: T, group: ProcessGroup | None = None) -> list[T]:
    """Return every rank's value, in rank order, on every rank. Collective.

    ::

        {"loss": 0.5}  # rank 0    ->    [{"loss": 0.5}, None]  # rank 0
        None           # rank 1    ->    [{"loss": 0.5}, None]  # rank 1

    In a world of one the list holds the value itself; otherwise copies, even of this rank's value.

    Args:
        value: Picklable object. Tensors in it arrive on the same device.
        group: Process group; None for the default group.

    Raises:
        DistdemoError: This rank isn't a member of the group; or, on every rank, a value can't be
            pickled, or the ranks called different functions.

    .. warning:: Unpickling runs code: a sender in the group can run code on this rank.
    """
    route, data, sizes = _pickled("all_gather_objects", value, group)
    if route.size == 1:
        return [value]
    return _unpickled(_all_gather(route, _bytes(data, max(sizes))), sizes)


def gather_objects(value: T, dst: int = 0, group: ProcessGroup | None = None) -> list[T] | None:
    """Return every rank's value, in rank order, on rank ``dst``; None elsewhere. Collective.

    ::

        "a"  # rank 0          ->    None        # rank 0
        "b"  # rank 1 = dst    ->    ["a", "b"]  # rank 1 = dst

    In a world of one the list holds the value itself; otherwise copies, even of this rank's value.

    Args:
        value: Picklable object. Tensors in it arrive on the same device.
        dst: Rank in the group (torch's own ``dst`` is a rank of the default group).
        group: Process group; None for the default group.

    Raises:
        DistdemoError: This rank isn't a member of the group; or, on every rank, ``dst`` isn't a
            rank of the group or differs between ranks, a value can't be pickled, or the ranks
            called different functions.

    .. warning:: Unpickling runs code: a sender in the group can run code on rank ``dst``.
    """
    route, data, sizes = _pickled("gather_objects", value, group, dst)
    if route.size == 1:
        return [value]
    import torch
    import torch.distributed as dist

    sent = _bytes(data, max(sizes)).to(route.device)
    parts = [torch.empty_like(sent) for _ in sizes] if route.rank == dst else None
    dist.gather(sent, parts, group=route.carrier, group_dst=dst)
    return None if parts is None else _unpickled(parts, sizes)


def broadcast_object(value: T, src: int = 0, group: ProcessGroup | None = None) -> T:
    """Return rank ``src``'s value on every rank; other ranks' values are ignored. Collective.

    ::

        {"lr": 0.1}  # rank 0 = src    ->    {"lr": 0.1}  # rank 0, the value itself
        None         # rank 1          ->    {"lr": 0.1}  # rank 1, a copy

    Args:
        value: Picklable object on ``src``. Tensors in it arrive on the same device.
        src: Rank in the group (torch's own ``src`` is a rank of the default group).
        group: Process group; None for the default group.

    Raises:
        DistdemoError: This rank isn't a member of the group; or, on every rank, ``src`` isn't a
            rank of the group or differs between ranks, the value can't be pickled, or the ranks
            called different functions.

    .. warning:: Unpickling runs code: a sender in the group can run code on this rank.
    """
    route, data, sizes = _pickled("broadcast_object", value, group, src)
    if route.size == 1:
        return value
    import torch.distributed as dist

    sent = _bytes(data, sizes[src]).to(route.device)
    dist.broadcast(sent, group=route.carrier, group_src=src)
    if route.rank == src:
        return value
    received: list[T] = _unpickled([sent], [sizes[src]])
    return received[0]


def _pickled(
    call: str, value: object, group: ProcessGroup | None, root: int | None = None
) -> tuple[_Route, bytes, list[int]]:
    """Check that all ranks agree; return this rank's pickle and all pickle sizes. Collective.

    Nothing is pickled in a world of one, or on a broadcast's ranks other than the source.
    """
    route = _find_route(group)
    data = b""
    mistake = ""
    if root is not None and root not in range(route.size):
        mistake = f"rank {root} can't be the root among {route.size}, counted from 0 in the group"
    elif route.size > 1 and (call != "broadcast_object" or route.rank == root):
        try:
            data = pickle.dumps(value)
        except Exception as error:  # pickling runs user code; all ranks must know
            mistake = f"its value can't be pickled, {type(error).__name__}: {error}"
    call += "" if root is None else f" with root {root!r}"
    return route, data, _agree(route, call, len(data), mistake)


def _bytes(data: bytes, size: int) -> Tensor:
    """Return the data as a tensor padded to this size."""
    import torch

    return torch.frombuffer(bytearray(data[:size].ljust(size, b"\0")), dtype=torch.uint8)


def _unpickled(parts: list[Tensor], sizes: list[int]) -> list[Any]:
    """Return the unpickled values.

    Raises:
        DistdemoError: A value can't be read on this rank (its class or device is missing).
    """
    import torch

    values = []
    for part, size in zip(parts, sizes, strict=True):
        data = bytearray(size)  # converts to bytes without NumPy
        torch.frombuffer(data, dtype=torch.uint8).copy_(part[:size])
        try:
            values.append(pickle.loads(data))  # noqa: S301 - see the warnings above
        except Exception as error:
            raise DistdemoError(
                "A received value can't be read on this rank.",
                f"{type(error).__name__}: {error}.",
                "Its class must be importable, and its device available, on every rank.",
            ) from error
    return values


# ------------------------------------------------------------------------------------ tensors


def all_gather_uneven(tensor: Tensor, group: ProcessGroup | None = None) -> list[Tensor]:
    """Return every rank's tensor on every rank; first dimensions may differ. Collective.

    ::

        [0 1 2]  # rank 0    ->    [[0 1 2], [], [20 21]]  # rank 0
        []       # rank 1    ->    [[0 1 2], [], [20 21]]  # rank 1
        [20 21]  # rank 2    ->    [[0 1 2], [], [20 21]]  # rank 2

    all_gather requires equal shapes, so this function gathers the sizes, pads to the largest, calls
    all_gather and trims. It sends bytes, so any dtype works. The results are new tensors without
    gradients, even in a world of one.

    Args:
        tensor: Tensor whose other dimensions, dtype and device type are the same on all ranks.
        group: Process group; None for the default group.

    Raises:
        DistdemoError: This rank isn't a member of the group; or, on every rank, the tensors are
            incompatible, or the ranks called different functions.
    """
    import torch

    route = _find_route(group)
    dense = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.dim() > 0
    mistake = "" if dense else f"all_gather_uneven doesn't take {_kind(tensor)}"
    call = f"all_gather_uneven of {_kind(tensor)}"
    sizes = _agree(route, call, len(tensor) if dense else 0, mistake)
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    padded = plain.new_zeros((max(sizes), *plain.shape[1:]))
    padded[: len(plain)] = plain
    on_device = replace(route, carrier=route.group, device=str(tensor.device))
    mine = padded.reshape(-1).view(torch.uint8)
    parts = _all_gather(route if tensor.device.type == "cpu" else on_device, mine)
    received = [part.view(padded.dtype).view(padded.shape) for part in parts]
    return [
        part if len(part) == size else part[:size].clone()  # a clone frees the padding's memory
        for part, size in zip(received, sizes, strict=True)
    ]


def _kind(value: object) -> str:
    """Return what must be the same on all ranks, such as ``float32 [*, 4] on cpu``."""
    import torch

    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    shape = ", ".join(["*", *map(str, value.shape[1:])]) if value.dim() else ""
    layout = "" if value.layout is torch.strided else "sparse "
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{layout}{dtype} [{shape}] on {value.device.type}"


# ---------------------------------------------------------------------------------- transport

_HEADER_BYTES = 256  # size of the description that precedes a call; longer ones are truncated

_cpu_groups: WeakKeyDictionary[ProcessGroup, ProcessGroup] = WeakKeyDictionary()
"""Gloo group by default group; an entry is dropped together with its default group."""


@dataclass(frozen=True, slots=True)
class _Route:
    """Route from this rank to all ranks of a group.

    Attributes:
        rank: This rank's number in the group.
        size: Number of ranks in the group. If it is 1, the other fields are unused.
        group: Group that the caller passed.
        carrier: Group of the same ranks in the same order that carries the bytes.
        device: Device of the carrier's tensors.
    """

    rank: int = 0
    size: int = 1
    group: ProcessGroup | None = None
    carrier: ProcessGroup | None = None
    device: str = "cpu"


def _distributed() -> Any | None:
    """Return the module torch.distributed if a default group is initialized, else None.

    A program that hasn't imported it can't have initialized it, so this function doesn't either.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist


def _find_route(group: ProcessGroup | None) -> _Route:
    """Return the route to the ranks of this group; create the CPU group if needed. Collective.

    Raises:
        DistdemoError: This rank isn't a member of the group, or the group was destroyed.
    """
    if group is None and _distributed() is None:
        return _Route()
    import torch.distributed as dist

    try:
        own_rank = dist.get_rank()
        rank = dist.get_rank(group)
        size = dist.get_world_size(group)
    except ValueError as error:
        hint = "destroy_process_group destroyed it. Create a new group."
        raise DistdemoError("The group no longer exists.", f"{error}.", hint) from error
    if rank < 0:
        raise DistdemoError(
            f"Rank {own_rank} is not a member of this group.",
            "new_group returns GroupMember.NON_GROUP_MEMBER on ranks outside the new group.",
            "Make this call only on the group's members.",
        )
    own = cast("ProcessGroup", dist.group.WORLD if group is None else group)
    if size == 1:
        return _Route(group=own)
    devices = [pair.partition(":")[0] for pair in dist.get_backend_config(own).split(",")]
    if "cpu" in devices:  # of cpu:gloo,cuda:nccl
        return _Route(rank, size, own, own)
    if own is not dist.group.WORLD or not dist.is_gloo_available():
        # The members of a subgroup alone can't create a gloo group: new_group's
        # use_local_synchronization derives the name from the number of groups that each rank is
        # in, so ranks in different numbers of groups would deadlock.
        return _Route(rank, size, own, own, devices[0])
    if own not in _cpu_groups:
        _cpu_groups[own] = dist.new_group(backend="gloo")
    return _Route(rank, size, own, _cpu_groups[own])


def _agree(route: _Route, call: str, size: int, mistake: str) -> list[int]:
    """Return every rank's size, in rank order. Collective.

    Every rank first sends a header of fixed size that describes its call, before anything that
    could hang or abort.

    Args:
        route: Route to the other ranks.
        call: Description of this rank's call, which must be the same on all ranks.
        size: Size of this rank's data.
        mistake: Reason why this rank can't make the call; empty if it can.

    Raises:
        DistdemoError: On every rank, if one made a mistake or the ranks made different calls.
    """
    sizes, calls, mistakes = [size], [call], [mistake]
    if route.size > 1:
        text = "\n".join([str(size), call[:150], mistake]).encode()
        parts = _all_gather(route, _bytes(text, _HEADER_BYTES))
        texts = [bytes(part.tolist()).rstrip(b"\0").decode(errors="ignore") for part in parts]
        numbers, calls, mistakes = map(list, zip(*(t.split("\n", 2) for t in texts), strict=True))
        sizes = list(map(int, numbers))
    if len(set(calls)) > 1 or any(mistakes):
        raise DistdemoError(
            "The ranks of the group made different or invalid calls.",
            _by_rank([mistake or call for call, mistake in zip(calls, mistakes, strict=True)]),
            "Every rank must make the same calls in the same order, with compatible values.",
        )
    return sizes


def _by_rank(texts: list[str]) -> str:
    """Return the ranks' texts, equal ones merged: ``Ranks 0, 2: float32. Rank 1: float64.``."""
    lines = []
    for text in dict.fromkeys(texts):
        ranks = [str(rank) for rank, other in enumerate(texts) if other == text]
        more = ", …" if len(ranks) > 8 else ""
        lines.append(f"Rank{'s' * (len(ranks) > 1)} {', '.join(ranks[:8])}{more}: {text}.")
    return " ".join(lines)


def _all_gather(route: _Route, mine: Tensor) -> list[Tensor]:
    """Return every rank's elements, in rank order, none aliasing ``mine``. Collective."""
    if route.size == 1 or mine.numel() == 0:
        return [mine.clone() for _ in range(route.size)]
    import torch
    import torch.distributed as dist

    sent = mine.to(route.device)
    parts = [torch.empty_like(sent) for _ in range(route.size)]
    dist.all_gather(parts, sent, group=route.carrier)
    return [part.to(mine.device) for part in parts]
