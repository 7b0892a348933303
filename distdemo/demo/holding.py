"""What is kept of a rank's tensors for showing them: all of a small one, the ends of a large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distdemo.demo.holdings import Holding, Piece, Thing
from distdemo.ops.values import pickled_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

WHOLE = 1024  # elements of one holding that are kept whole
ENDS = 16  # elements kept at each end of a tensor that is too large
PIECES = 16  # pieces kept at each end of a list that is too long


def keep(
    tensors: Sequence[Tensor],
    sources: Sequence[int | None],
    *,
    listed: bool = False,
    joined: bool = False,
) -> Holding:
    """The holding of these pieces, each with the rank that its data came from.

    Args:
        tensors: the pieces in order, on any device.
        sources: for each piece the rank it came from, None if it was reduced.
        listed: the rank has a list of tensors here.
        joined: they lie one after the other in a single tensor.
    """
    pairs = list(zip(tensors, sources, strict=True))
    total = sum(tensor.numel() for tensor in tensors)
    kept = pairs
    if total > WHOLE and len(pairs) > 2 * PIECES:
        kept = pairs[:PIECES] + pairs[-PIECES:]
    pieces = tuple(_piece(tensor, source, whole=total <= WHOLE) for tensor, source in kept)
    return Holding(pieces, omitted=len(pairs) - len(kept), listed=listed, joined=joined)


def keep_objects(
    held: Sequence[Any], sources: Sequence[int | None], *, listed: bool = False
) -> Holding:
    """The holding of these objects, each with the rank that it came from."""
    pieces = tuple(
        Thing(thing, pickled_size(thing), source)
        for thing, source in zip(held, sources, strict=True)
    )
    return Holding(pieces, listed=listed)


def _piece(tensor: Tensor, source: int | None, *, whole: bool) -> Piece:
    shape = tuple(tensor.shape)
    flat = tensor.detach().reshape(-1)
    if whole or flat.numel() <= 2 * ENDS:
        return Piece(shape, tuple(flat.tolist()), (), source)
    return Piece(shape, tuple(flat[:ENDS].tolist()), tuple(flat[-ENDS:].tolist()), source)
