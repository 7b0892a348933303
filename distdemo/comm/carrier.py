"""How the calls of ``distdemo.comm`` travel: the way to a group's ranks, and bytes along it.

What a call says first is one fixed-size header a rank, so that every rank knows what all the
others are about to do before it does anything that could hang or abort.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from distdemo.errors import DistdemoError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed import ProcessGroup

CALLS = ("all_gather_objects", "gather_objects", "broadcast_object", "all_gather_uneven")
HEADER_BYTES = 3 * 8  # call, detail and size, an int64 each
_TEXT_BYTES = 256  # room for what a rank has to say about a mistake

_cpu_groups: WeakKeyDictionary[ProcessGroup, ProcessGroup] = WeakKeyDictionary()
"""The gloo group beside a default group; forgotten with the default group that it was made for."""


@dataclass(frozen=True, slots=True)
class Route:
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

    def on(self, device: torch.device) -> Route:
        """The way of a tensor on this device: over the caller's own group, but on the CPU."""
        if device.type == "cpu":
            return self
        return replace(self, carrier=self.group, device=str(device))


def distributed() -> Any | None:  # noqa: ANN401 - a module
    """The module torch.distributed if a default group is initialised, else None.

    A program that has not imported it can't have initialised it, so nothing is imported here.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist


def find_route(group: ProcessGroup | None) -> Route:
    """Collective: the way to the ranks of this group; makes the CPU group where one is needed.

    Raises:
        DistdemoError: this rank is no member of the group, or the group was destroyed.
    """
    dist = distributed()
    if dist is None and group is None:
        return Route()
    rank, size = _place(dist, group)
    if size == 1:
        return Route(group=group)
    own = _world() if group is None else group
    carrier, device = _carrier(own)
    return Route(rank, size, own, carrier, device)


def _place(dist: Any | None, group: ProcessGroup | None) -> tuple[int, int]:  # noqa: ANN401 - a module
    """This rank's number in the group, and the group's size."""
    if dist is None:
        raise _gone("No process group is initialised.")
    try:
        rank, size = int(dist.get_rank(group)), int(dist.get_world_size(group))
    except ValueError as error:
        raise _gone(f"{error}.") from error
    if rank < 0:
        raise DistdemoError(
            f"Rank {dist.get_rank()} is not in the group that it was given.",
            "torch's new_group gives GroupMember.NON_GROUP_MEMBER to ranks outside the new group.",
            "Make this call on the group's members only.",
        )
    return rank, size


def _gone(why: str) -> DistdemoError:
    hint = "A group lives until destroy_process_group. Make a new one."
    return DistdemoError("The group is not there any more.", why, hint)


def _world() -> ProcessGroup:
    import torch.distributed as dist

    world: ProcessGroup | None = dist.group.WORLD
    if world is None:
        raise RuntimeError("no default group, though it was there a moment ago")
    return world


def _carrier(group: ProcessGroup) -> tuple[ProcessGroup, str]:
    """Over which group this group's bytes go, and on which device."""
    import torch.distributed as dist

    pairs = dist.get_backend_config(group).split(",")  # cpu:gloo,cuda:nccl
    devices = [pair.partition(":")[0] for pair in pairs]
    if "cpu" in devices:
        return group, "cpu"
    if group is not _world() or not dist.is_gloo_available():
        # A subgroup can't get a gloo group from its members alone: new_group's
        # use_local_synchronization names the group by how many groups each rank is in, so ranks
        # that are in different numbers of them would wait for each other for ever.
        return group, devices[0]
    if group not in _cpu_groups:
        _cpu_groups[group] = dist.new_group(backend="gloo")
    return _cpu_groups[group], "cpu"


def agree(route: Route, call: str, detail: int, size: int) -> list[tuple[int, int]]:
    """Collective: every rank's detail and size, in the order of the ranks.

    Args:
        route: to the ranks that make this call.
        call: one of ``CALLS``.
        detail: what the call wants to be the same everywhere (or to compare).
        size: how much this rank brings; negative for a mistake.

    Raises:
        DistdemoError: on every rank, if the ranks made different calls.
    """
    if route.size == 1:
        return [(detail, size)]
    import torch

    header = torch.tensor([CALLS.index(call), detail, size], dtype=torch.int64)
    headers = [part.tolist() for part in _all_gather(route, header)]
    calls = [CALLS[code] for code, _, _ in headers]
    if len(set(calls)) > 1:
        raise DistdemoError(
            "The ranks of a group call different functions at the same time.",
            by_rank(calls),
            "Every rank of the group has to make the same calls in the same order.",
        )
    return [(detail, size) for _, detail, size in headers]


def texts(route: Route, text: str) -> list[str]:
    """Collective: what every rank has to say, its first 256 bytes, in the order of the ranks."""
    import torch

    data = bytearray(text.encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0"))
    parts = all_gather_bytes(route, torch.frombuffer(data, dtype=torch.uint8))
    return [bytes(part.tolist()).rstrip(b"\0").decode(errors="ignore") for part in parts]


def by_rank(said: list[str]) -> str:
    """Who said what: ``Ranks 0, 2: float32. Rank 1: float64.``."""
    lines = []
    for text in dict.fromkeys(said):
        ranks = [str(rank) for rank, other in enumerate(said) if other == text]
        more = ", …" if len(ranks) > 8 else ""
        lines.append(f"Rank{'s' * (len(ranks) > 1)} {', '.join(ranks[:8])}{more}: {text}.")
    return " ".join(lines)


def all_gather_bytes(route: Route, mine: Tensor) -> list[Tensor]:
    """Collective: every rank's bytes, in the order of the ranks, none of them aliasing ``mine``.

    Args:
        route: to the ranks that make this call.
        mine: uint8, of the same length on all ranks.
    """
    if route.size == 1 or mine.numel() == 0:
        return [mine.clone() for _ in range(route.size)]
    return _all_gather(route, mine)


def _all_gather(route: Route, mine: Tensor) -> list[Tensor]:
    import torch
    import torch.distributed as dist

    sent = mine.to(route.device)
    parts = [torch.empty_like(sent) for _ in range(route.size)]
    dist.all_gather(parts, sent, group=route.carrier)
    return [part.to(mine.device) for part in parts]


def gather_bytes(route: Route, mine: Tensor, dst: int) -> list[Tensor] | None:
    """Collective: every rank's bytes, in the order of the ranks, on ``dst``; None elsewhere.

    Args:
        route: to the ranks that make this call.
        mine: uint8, of the same length on all ranks.
        dst: a rank of the group.
    """
    import torch
    import torch.distributed as dist

    sent = mine.to(route.device)
    wanted = route.rank == dst
    parts = [torch.empty_like(sent) for _ in range(route.size)] if wanted else None
    dist.gather(sent, parts, dst=_global(route, dst), group=route.carrier)
    return None if parts is None else [part.to(mine.device) for part in parts]


def broadcast_bytes(route: Route, buffer: Tensor, src: int) -> Tensor:
    """Collective: the bytes of rank ``src`` of the group.

    Args:
        route: to the ranks that make this call.
        buffer: uint8, of the same length on all ranks; on ``src`` the bytes.
        src: a rank of the group.
    """
    import torch.distributed as dist

    sent = buffer.to(route.device)
    dist.broadcast(sent, src=_global(route, src), group=route.carrier)
    return sent.to(buffer.device)


def _global(route: Route, rank: int) -> int:
    """Torch counts roots in the default group."""
    import torch.distributed as dist

    if route.carrier is None:
        raise RuntimeError("a world of one has nobody to send to")
    return dist.get_global_rank(route.carrier, rank)
