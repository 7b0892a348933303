"""Helpers for distributed programs of your own: who am I, gather and broadcast whatever there is.

Each is safe to call in a program that was started alone: where no process group is initialised,
or ``torch.distributed`` is not there at all, this process is rank 0 of a world of one. (Until
``init_process_group`` that holds under torchrun too.) Importing this module doesn't import torch.

**Groups.** ``group=None`` is the default group. ``src`` and ``dst`` are ranks *of the group*,
0 to its size - 1; those of ``torch.distributed`` itself count in the default group.

**Mistakes.** A call begins with one small all_gather of what each rank is about to do. Where ranks
disagree (other calls, another root, tensors that don't fit together, a value that can't be
pickled) every rank raises the same error, rather than hang, abort or return garbage.

**The CPU group.** Objects travel over the CPU. Where the default group takes no CPU tensors
(nccl), a gloo group over the same ranks is made at the first call that needs it, and serves as
long as that default group lives. Making it is collective, like any ``new_group``: that first call
stands at the same place in the order in which all ranks make groups. A smaller group that takes
no CPU tensors carries the bytes on its device, as torch's own object collectives do.

.. warning::
    Objects travel by pickle, and **unpickling runs code**: a sender in the group can run code
    on all of its ranks. Call the three object functions only among processes that you trust, over a
    network that you trust.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakKeyDictionary

from distdemo.errors import DistdemoError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

__all__ = [
    "all_gather_objects",
    "all_gather_uneven",
    "broadcast_object",
    "gather_objects",
    "get_rank",
    "get_world_size",
    "is_main",
    "synchronize",
]

T = TypeVar("T")


def get_rank() -> int:
    """This process's rank in the default group; 0 without one."""
    dist = _distributed()
    return 0 if dist is None else int(dist.get_rank())


def get_world_size() -> int:
    """The number of ranks in the default group; 1 without one."""
    dist = _distributed()
    return 1 if dist is None else int(dist.get_world_size())


def is_main() -> bool:
    """Whether this process is rank 0: the one that prints and saves."""
    return get_rank() == 0


def synchronize() -> None:
    """Collective: return once every rank has called this; at once in a world of one.

    The processes meet on the CPU; what a GPU still computes is not waited for.
    """
    route = _find_route(None)
    if route.size > 1:
        import torch.distributed as dist

        dist.barrier(group=route.carrier)


# ------------------------------------------------------------------------------------ objects


def all_gather_objects(value: T, group: ProcessGroup | None = None) -> list[T]:
    """Collective: every rank's value, in the order of the ranks, on every rank.

    ::

        {"loss": 0.5}  # rank 0    ->    [{"loss": 0.5}, None]  # rank 0
        None           # rank 1    ->    [{"loss": 0.5}, None]  # rank 1

    In a world of one the list holds the value itself, else copies, this rank's own included.

    Args:
        value: anything that pickles. Tensors arrive on the device that they came from.
        group: None for the default group.

    Raises:
        DistdemoError: this rank is not a member of the group; or, on every rank, a value doesn't
            pickle, or the ranks called different functions.

    .. warning:: Unpickling runs code: a sender in the group can run code on this rank.
    """
    route, data, sizes = _pickled("all_gather_objects", value, group)
    if route.size == 1:
        return [value]
    return _unpickled(_all_gather(route, _bytes(data, max(sizes))), sizes)


def gather_objects(value: T, dst: int = 0, group: ProcessGroup | None = None) -> list[T] | None:
    """Collective: every rank's value, in the order of the ranks, on rank ``dst``; None elsewhere.

    ::

        "a"  # rank 0          ->    None        # rank 0
        "b"  # rank 1 = dst    ->    ["a", "b"]  # rank 1 = dst

    In a world of one the list holds the value itself, else copies, this rank's own included.

    Args:
        value: anything that pickles. Tensors arrive on the device that they came from.
        dst: a rank of the group (torch's own ``dst`` counts in the default group).
        group: None for the default group.

    Raises:
        DistdemoError: this rank is not a member of the group; or, on every rank,
            ``dst`` is not a rank of the group or not the same everywhere, a value doesn't
            pickle, or the ranks called different functions.

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
    """Collective: rank ``src``'s value on every rank; what the others give is not looked at.

    ::

        {"lr": 0.1}  # rank 0 = src    ->    {"lr": 0.1}  # rank 0, the value itself
        None         # rank 1          ->    {"lr": 0.1}  # rank 1, a copy

    Args:
        value: on ``src`` anything that pickles. Tensors arrive on the device that they came from.
        src: a rank of the group (torch's own ``src`` counts in the default group).
        group: None for the default group.

    Raises:
        DistdemoError: this rank is not a member of the group; or, on every rank,
            ``src`` is not a rank of the group or not the same everywhere, the value doesn't
            pickle, or the ranks called different functions.

    .. warning:: Unpickling runs code: a sender in the group can run code on this rank.
    """
    route, data, sizes = _pickled("broadcast_object", value, group, src)
    if route.size == 1:
        return value
    import torch.distributed as dist

    sent = _bytes(data, sizes[src]).to(route.device)
    dist.broadcast(sent, group=route.carrier, group_src=src)
    found: list[T] = [value] if route.rank == src else _unpickled([sent], [sizes[src]])
    return found[0]


def _pickled(
    call: str, value: object, group: ProcessGroup | None, root: int | None = None
) -> tuple[_Route, bytes, list[int]]:
    """Collective: this rank's pickle, and the bytes of every rank's, once all ranks agree.

    In a world of one nothing is pickled; nor what ranks other than the source of a broadcast give.
    """
    route = _find_route(group)
    data, mistake = b"", ""
    if root is not None and root not in range(route.size):
        mistake = f"rank {root} can't be the root among {route.size}, counted from 0 in the group"
    elif route.size > 1 and (call != "broadcast_object" or route.rank == root):
        try:
            data = pickle.dumps(value)
        except Exception as error:  # noqa: BLE001 - pickling runs the value's own code; all must hear
            mistake = f"its value can't be pickled, {type(error).__name__}: {error}"
    call += "" if root is None else f" with root {root!r}"
    return route, data, _agree(route, call, len(data), mistake)


def _bytes(data: bytes, size: int) -> Tensor:
    """A tensor of this size that begins with the data."""
    import torch

    return torch.frombuffer(bytearray(data[:size].ljust(size, b"\0")), dtype=torch.uint8)


def _unpickled(parts: list[Tensor], sizes: list[int]) -> list[Any]:
    """The values again.

    Raises:
        DistdemoError: one can't be read on this rank (its class is not there, its device is not).
    """
    import torch

    values = []
    for part, size in zip(parts, sizes, strict=True):
        data = bytearray(size)  # the way to bytes that needs no NumPy
        torch.frombuffer(data, dtype=torch.uint8).copy_(part[:size])
        try:
            values.append(pickle.loads(data))  # noqa: S301 - what the warnings above are about
        except Exception as error:
            raise DistdemoError(
                "A value that arrived can't be read on this rank.",
                f"{type(error).__name__}: {error}.",
                "Its class has to be importable on every rank, and its device has to be there.",
            ) from error
    return values


# ------------------------------------------------------------------------------------ tensors


def all_gather_uneven(
    tensor: Tensor,
    group: ProcessGroup | None = None,
    *,
    note: Callable[[str, list[Tensor], int], None] | None = None,
) -> list[Tensor]:
    """Collective: every rank's tensor on every rank, where first dimensions differ.

    ::

        [0 1 2]  # rank 0    ->    [[0 1 2], [], [20 21]]  # rank 0
        []       # rank 1    ->    [[0 1 2], [], [20 21]]  # rank 1
        [20 21]  # rank 2    ->    [[0 1 2], [], [20 21]]  # rank 2

    all_gather wants one shape, so: gather the sizes, pad to the largest, all_gather, trim. Bytes
    travel, so any dtype does. The results are new tensors without gradients, in a world of one too.

    Args:
        tensor: its other dimensions, dtype and kind of device are the same on all ranks.
        group: None for the default group.
        note: called after each step with its name ("all_gather the sizes", "pad to the largest",
            "all_gather", "trim"), the tensors that this rank has then, and the bytes that it
            handed to the backend in the step.

    Raises:
        DistdemoError: this rank is not a member of the group; or, on every rank, the tensors don't
            fit together, or the ranks called different functions.
    """
    import torch

    tell = note or (lambda *_: None)
    route = _find_route(group)
    dense = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.dim() > 0
    mistake = "" if dense else f"all_gather_uneven takes no {_kind(tensor)}"
    call = f"all_gather_uneven of {_kind(tensor)}"
    sizes = _agree(route, call, len(tensor) if dense else 0, mistake)
    tell("all_gather the sizes", [torch.tensor(sizes)], 0 if route.size == 1 else _HEADER_BYTES)
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    padded = plain.new_zeros((max(sizes), *plain.shape[1:]))
    padded[: len(plain)] = plain
    tell("pad to the largest", [padded], 0)
    on_device = replace(route, carrier=route.group, device=str(tensor.device))
    mine = padded.reshape(-1).view(torch.uint8)
    parts = _all_gather(route if tensor.device.type == "cpu" else on_device, mine)
    received = [part.view(padded.dtype).view(padded.shape) for part in parts]
    tell("all_gather", received, 0 if route.size == 1 else padded.nbytes)
    trimmed = [
        part if len(part) == size else part[:size].clone()  # without the memory of the others
        for part, size in zip(received, sizes, strict=True)
    ]
    tell("trim", trimmed, 0)
    return trimmed


def _kind(value: object) -> str:
    """All that has to be the same on all ranks: ``float32 [*, 4] on cpu``."""
    import torch

    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    shape = ", ".join(["*", *map(str, value.shape[1:])]) if value.dim() else ""
    layout = "" if value.layout is torch.strided else "sparse "
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{layout}{dtype} [{shape}] on {value.device.type}"


# ---------------------------------------------------------------------------- how bytes travel

_HEADER_BYTES = 256  # of what a rank says before a call: longer texts are cut

_cpu_groups: WeakKeyDictionary[ProcessGroup, ProcessGroup] = WeakKeyDictionary()
"""The gloo group beside a default group; forgotten with the default group that it was made for."""


@dataclass(frozen=True, slots=True)
class _Route:
    """The way from this rank to all ranks of a group.

    Attributes:
        rank: this rank's number in the group.
        size: how many ranks the group has. In a world of one the rest has no meaning.
        group: as the caller means it.
        carrier: a group of the same ranks in the same order, over which bytes go.
        device: where the carrier takes its tensors.
    """

    rank: int = 0
    size: int = 1
    group: ProcessGroup | None = None
    carrier: ProcessGroup | None = None
    device: str = "cpu"


def _distributed() -> Any | None:  # noqa: ANN401 - a module
    """The module torch.distributed if a default group is initialised, else None.

    A program that has not imported it can't have initialised it, so nothing is imported here.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist


def _find_route(group: ProcessGroup | None) -> _Route:
    """Collective: the way to the ranks of this group; makes the CPU group where one is needed.

    Raises:
        DistdemoError: this rank is not a member of the group, or the group was destroyed.
    """
    if group is None and _distributed() is None:
        return _Route()
    import torch.distributed as dist

    try:
        me, rank, size = dist.get_rank(), dist.get_rank(group), dist.get_world_size(group)
    except ValueError as error:
        hint = "A group lives until destroy_process_group. Make a new one."
        raise DistdemoError("The group is not there any more.", f"{error}.", hint) from error
    if rank < 0:
        raise DistdemoError(
            f"Rank {me} is not in the group that it was given.",
            "torch's new_group gives GroupMember.NON_GROUP_MEMBER to ranks outside the new group.",
            "Make this call on the group's members only.",
        )
    own = cast("ProcessGroup", dist.group.WORLD if group is None else group)
    if size == 1:
        return _Route(group=own)
    devices = [pair.partition(":")[0] for pair in dist.get_backend_config(own).split(",")]
    if "cpu" in devices:  # of cpu:gloo,cuda:nccl
        return _Route(rank, size, own, own)
    if own is not dist.group.WORLD or not dist.is_gloo_available():
        # A subgroup can't get a gloo group from its members alone: new_group's
        # use_local_synchronization names the group by how many groups each rank is in, so ranks
        # that are in different numbers of them would wait for each other for ever.
        return _Route(rank, size, own, own, devices[0])
    if own not in _cpu_groups:
        _cpu_groups[own] = dist.new_group(backend="gloo")
    return _Route(rank, size, own, _cpu_groups[own])


def _agree(route: _Route, call: str, size: int, mistake: str) -> list[int]:
    """Collective: every rank's size, in the order of the ranks.

    One header of fixed size a rank tells all ranks what the others are about to do, before anything
    is done that could hang or abort.

    Args:
        route: to the other ranks.
        call: what this rank is about to do; it has to be the same everywhere.
        size: of what it gives.
        mistake: why it can't; empty if it can.

    Raises:
        DistdemoError: on every rank, if one made a mistake or the ranks made different calls.
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
            "The ranks of a group can't do this together.",
            _by_rank([mistake or call for call, mistake in zip(calls, mistakes, strict=True)]),
            "Every rank has to make the same calls in the same order, with fitting values.",
        )
    return sizes


def _by_rank(said: list[str]) -> str:
    """Who said what: ``Ranks 0, 2: float32. Rank 1: float64.``."""
    lines = []
    for text in dict.fromkeys(said):
        ranks = [str(rank) for rank, other in enumerate(said) if other == text]
        more = ", …" if len(ranks) > 8 else ""
        lines.append(f"Rank{'s' * (len(ranks) > 1)} {', '.join(ranks[:8])}{more}: {text}.")
    return " ".join(lines)


def _all_gather(route: _Route, mine: Tensor) -> list[Tensor]:
    """Collective: every rank's elements, in the order of the ranks, none aliasing ``mine``."""
    if route.size == 1 or mine.numel() == 0:
        return [mine.clone() for _ in range(route.size)]
    import torch
    import torch.distributed as dist

    sent = mine.to(route.device)
    parts = [torch.empty_like(sent) for _ in range(route.size)]
    dist.all_gather(parts, sent, group=route.carrier)
    return [part.to(mine.device) for part in parts]
