"""Tensors whose first dimension differs from rank to rank."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from distdemo.comm import carrier
from distdemo.comm.carrier import Route
from distdemo.errors import DistdemoError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup


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
        DistdemoError: this rank is no member of the group; or, on every rank, the tensors don't
            fit together, or the ranks called different functions.
    """
    import torch

    note = note or _no_note
    route = carrier.find_route(group)
    alone = route.size == 1
    rows = _rows(route, tensor)
    note("all_gather the sizes", [torch.tensor(rows)], 0 if alone else carrier.HEADER_BYTES)
    padded = _padded(tensor.detach(), max(rows))
    note("pad to the largest", [padded], 0)
    received = _all_gather_even(route, padded)
    note("all_gather", received, 0 if alone else padded.nbytes)
    trimmed = [_trimmed(part, size) for part, size in zip(received, rows, strict=True)]
    note("trim", trimmed, 0)
    return trimmed


def _no_note(name: str, tensors: list[Tensor], sent: int) -> None:
    """Nobody listens."""


def _rows(route: Route, tensor: Tensor) -> list[int]:
    """Collective: every rank's first dimension, once it is sure that the rest is the same."""
    rows, kind = _kind(tensor)
    # A fixed number of bytes stands for a description of any length; 7, to be a positive int64.
    digest = int.from_bytes(hashlib.sha256(kind.encode()).digest()[:7], "big")
    headers = carrier.agree(route, "all_gather_uneven", digest, rows)
    if len({other for other, _ in headers}) > 1 or rows < 0:
        raise DistdemoError(
            "The ranks' tensors don't fit together.",
            carrier.by_rank(carrier.texts(route, kind)),
            "They may differ in their first dimension alone.",
        )
    return [size for _, size in headers]


def _kind(tensor: object) -> tuple[int, str]:
    """The first dimension, negative if there is none, and all the rest in words."""
    import torch

    if not isinstance(tensor, torch.Tensor):
        return -1, f"{type(tensor).__name__}, no tensor"
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided or tensor.dim() == 0:
        form = "without dimensions" if tensor.dim() == 0 else "that is not dense"
        return -1, f"a {dtype} tensor {form}"
    shape = ", ".join(["*", *map(str, tensor.shape[1:])])
    return tensor.shape[0], f"{dtype} [{shape}] on {tensor.device.type}"


def _padded(tensor: Tensor, rows: int) -> Tensor:
    """The tensor with this many rows, those below its own zero; contiguous."""
    if len(tensor) == rows:
        return tensor.resolve_conj().resolve_neg().contiguous()
    padded = tensor.new_zeros((rows, *tensor.shape[1:]))
    padded[: len(tensor)] = tensor
    return padded


def _all_gather_even(route: Route, tensor: Tensor) -> list[Tensor]:
    """Collective: every rank's tensor of one shape."""
    import torch

    mine = tensor.reshape(-1).view(torch.uint8)
    parts = carrier.all_gather_bytes(route.on(tensor.device), mine)
    return [part.view(tensor.dtype).view(tensor.shape) for part in parts]


def _trimmed(tensor: Tensor, rows: int) -> Tensor:
    """Its first rows, without the memory of the others."""
    return tensor if len(tensor) == rows else tensor[:rows].clone()
