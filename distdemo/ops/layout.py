"""How the tensors of a run lie in memory, and what is in them before anything is: nothing, poison.

All of it follows from an op's declarations. Collective: nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from distdemo.ops.contract import Op, is_joined
from distdemo.ops.parts import Buffers, Undefined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from distdemo.ops.spec import OpSpec

Shape = tuple[int, ...]


def torch_dtype(spec: OpSpec) -> torch.dtype:
    """The torch dtype of this spec."""
    dtype = getattr(torch, spec.dtype)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"torch.{spec.dtype} is no dtype")
    return dtype


def laid_out(op: Op, rank: int, spec: OpSpec, device: str) -> Buffers:
    """Memory for all that this rank gives and gets, joined or in place where the spec says so.

    What is in it is undefined: nothing of it has been touched yet.
    """
    given = [op.cut(rank, piece, spec).shape for piece in range(op.pieces(rank, spec))]
    send_joined, send = _room(given, spec, device, joined=op.list_before)
    if op.is_in_place(spec):
        return Buffers(send, send)
    got = received_shapes(op, rank, spec)
    recv_joined, recv = _room(got, spec, device, joined=op.list_after)
    shared = op.overlay(rank, spec) if spec.in_place else None
    if shared is not None:
        _overlay(send, recv, shared, into_send=send_joined is not None)
    return Buffers(send, recv, send_joined, recv_joined)


def received_shapes(op: Op, rank: int, spec: OpSpec) -> list[Shape]:
    """The shape of every piece that this rank gets."""
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return [spec.shape]
    return [op.cut(source.ranks[0], source.piece, spec).shape for source in result]


def poison(tensor: Tensor) -> None:
    """Fill with a value that no result has by default, so that a gap in one shows."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).max)


def _room(
    shapes: Sequence[Shape], spec: OpSpec, device: str, *, joined: bool
) -> tuple[Tensor | None, list[Tensor]]:
    """A tensor for each shape; joined: one after the other in a single one, which comes first."""
    dtype = torch_dtype(spec)
    if not (joined and is_joined(spec)):
        return None, [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
    if not shapes[0]:
        whole = torch.empty(len(shapes), dtype=dtype, device=device)
        return whole, list(whole.unbind())
    lengths = [shape[0] for shape in shapes]
    whole = torch.empty((sum(lengths), *shapes[0][1:]), dtype=dtype, device=device)
    return whole, list(torch.split(whole, lengths))


def _overlay(
    send: list[Tensor], recv: list[Tensor], shared: tuple[int, int], *, into_send: bool
) -> None:
    """Let a piece given and a piece got be one: where it is part of a joined tensor, there."""
    give, take = shared
    if into_send:
        recv[take] = send[give]
    else:
        send[give] = recv[take]
