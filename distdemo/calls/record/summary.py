"""Shorten tensors and objects for display."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from distdemo.view.held import Holding, Piece

WHOLE = 1024  # largest number of elements that is kept whole
ENDS = 16  # elements kept at either end of a larger tensor
PIECES = 16  # pieces kept at either end of a longer list


def summarize(pieces: Sequence[Any], sources: Sequence[tuple[int, ...]] = ()) -> Holding:
    """Return small tensors and objects whole, and the ends of large tensors.

    Args:
        pieces: Tensors on any device, or objects, in order.
        sources: Source ranks of each piece; by default they are unknown.
    """
    kept = list(zip(pieces, sources or [()] * len(pieces), strict=True))
    if not all(isinstance(piece, Tensor) for piece in pieces):
        return Holding(tuple(Piece.of_object(value, source) for value, source in kept))
    is_large = sum(tensor.numel() for tensor in pieces) > WHOLE
    if is_large and len(kept) > 2 * PIECES:
        kept = kept[:PIECES] + kept[-PIECES:]
    tensors = []
    for tensor, source in kept:
        flat = tensor.detach().reshape(-1)
        is_cut = is_large and flat.numel() > 2 * ENDS
        first = tuple(flat[: ENDS if is_cut else None].tolist())
        last = tuple(flat[-ENDS:].tolist()) if is_cut else ()
        tensors.append(Piece(tuple(tensor.shape), first, last, source))
    return Holding(tuple(tensors), len(pieces) - len(tensors))
