"""The memory of one rank: a place for every chunk that it ever has, and room for what comes in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from distdemo.ops.spec import Number

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.trace.algorithms.schedule import Sizes

Numbers = tuple[Number | str, ...]
"""The first numbers of a chunk."""
SHOWN = 4  # of them are kept
_ALIGNED = 64  # elements; what a GPU's messages begin at is a multiple of any vector's width


class Memory:
    """Chunks of one rank, one after the other in one tensor.

    Args:
        sizes: of the chunks.
        order: the chunks that have a place, as they lie.
        dtype: of the elements.
        device: where.

    Attributes:
        flat: all of them.
    """

    def __init__(self, sizes: Sizes, order: Sequence[int], dtype: torch.dtype, device: str) -> None:
        self._places: dict[int, tuple[int, int]] = {}
        end = 0
        for chunk in order:
            start, end = end, end + sizes.within(chunk, chunk + 1)
            self._places[chunk] = (start, end)
        self.flat: Tensor = torch.empty(end, dtype=dtype, device=device)

    def of(self, chunk: int) -> Tensor:
        """The chunk itself."""
        start, end = self._places[chunk]
        return self.flat[start:end]

    def runs(self, chunks: Iterable[int]) -> list[Tensor]:
        """These chunks, in this order, in as few pieces as they lie in; empty ones are nowhere."""
        found: list[tuple[int, int]] = []
        for chunk in chunks:
            start, end = self._places[chunk]
            if start == end:
                continue
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return [self.flat[start:end] for start, end in found]


class Scratch:
    """Room for messages that can't lie where their chunks do; used anew in every round.

    Args:
        like: of the same dtype, on the same device.
    """

    def __init__(self, like: Tensor) -> None:
        self._block = like.new_empty(0)
        self._used = 0

    def clear(self) -> None:
        """A new round begins: what was taken before may be taken again."""
        self._used = 0

    def take(self, elements: int) -> Tensor:
        """Room for so many elements that nobody else has in this round."""
        if self._used + elements > self._block.numel():
            self._block = self._block.new_empty(max(elements, self._block.numel()))
            self._used = 0
        place = self._block[self._used : self._used + elements]
        self._used = -(-(self._used + elements) // _ALIGNED) * _ALIGNED
        return place


def ordered(
    chunks: Iterable[int], messages: Iterable[tuple[tuple[int, ...], int]], starts: Iterable[int]
) -> list[int]:
    """The chunks in the order, around the circle, in which the fewest elements need packing.

    Args:
        chunks: to be put in order.
        messages: that this rank sends or gets: their chunks, and elements.
        starts: the chunks that may lie first.
    """
    row, kept = sorted(chunks), list(messages)
    turned = ([*row[at:], *row[:at]] for at in {_first(row, start): None for start in starts})
    return min(turned, key=lambda order: _packed(order, kept))


def _first(row: Sequence[int], start: int) -> int:
    """Where the first chunk is whose number is not below the start."""
    return next((at for at, chunk in enumerate(row) if chunk >= start), 0)


def _packed(order: Sequence[int], messages: Iterable[tuple[tuple[int, ...], int]]) -> int:
    """Elements of the messages whose chunks don't lie in a row."""
    place = {chunk: at for at, chunk in enumerate(order)}
    return sum(
        elements
        for chunks, elements in messages
        if any(place[b] != place[a] + 1 for a, b in pairwise(chunks))
    )


def first_numbers(chunk: Tensor) -> Numbers:
    """The first numbers of a chunk; of a bool that is none the byte, in words."""
    head = chunk[:SHOWN].cpu()
    if head.dtype != torch.bool:
        return tuple(head.tolist())
    return tuple(
        bool(byte) if byte < 2 else f"byte {byte}" for byte in head.view(torch.uint8).tolist()
    )
