"""Floating-point numbers as whole numbers of the same order, so that min and max know NaN.

MPI takes the larger by ``a > b ? a : b``, or by what the processor has for it. A NaN then wins or
loses by the side on which it stands, and as the ranks fold in different orders, each comes to a
result of its own. Whole numbers have one order for all.

The bits of a float, read as a whole number with a sign, are in order already where they are not
negative. Where they are, the larger is the smaller: all bits but the sign are flipped. That gives

::

    -NaN < -inf < ... < -0.0 < 0.0 < ... < inf < NaN

and a turn by as many places as there are NaNs of one sign (the sum wraps around) brings both kinds
to the end that wins. Every step can be taken back, so a NaN comes through to its last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from mpi4py import MPI

BLOCK = 1 << 16  # elements


@dataclass(frozen=True, slots=True)
class Order:
    """How the floats of one dtype become whole numbers, for min or for max.

    Attributes:
        whole: the dtype of the whole numbers, as wide as the floats.
        datatype: MPI's name for it.
        floats: the dtype of the floats.
        turn: what is added to the numbers, so that each NaN is beyond the infinity that wins.
    """

    whole: torch.dtype
    datatype: MPI.Datatype
    floats: torch.dtype
    turn: int

    def to_keys(self, tensor: torch.Tensor) -> torch.Tensor:
        """The numbers for the floats of a tensor without gaps, in its own memory."""
        keys = tensor.view(self.whole)
        for block in _blocks(keys):
            self._flip(block)
            block.add_(self.turn)
        return keys

    def to_floats(self, keys: torch.Tensor) -> torch.Tensor:
        """The floats for the numbers, in their own memory."""
        for block in _blocks(keys):
            block.sub_(self.turn)
            self._flip(block)
        return keys.view(self.floats)

    def _flip(self, bits: torch.Tensor) -> None:
        """Flip all bits but the sign where that is set; twice is nothing."""
        info = torch.iinfo(self.whole)
        signs = bits >> (info.bits - 1)  # all bits set, or none
        bits.bitwise_xor_(signs.bitwise_and_(info.max))


def _blocks(keys: torch.Tensor) -> Sequence[torch.Tensor]:
    """The same memory in blocks that stay in the cache from the first step to the last."""
    return (keys,) if keys.numel() <= BLOCK else torch.split(keys.view(-1), BLOCK)


_WHOLE = {
    torch.float32: (torch.int32, MPI.INT32_T, 23),  # IEEE 754: bits of the significand
    torch.float64: (torch.int64, MPI.INT64_T, 52),
}


def order_for(dtype: torch.dtype, largest: bool) -> Order:
    """The order of float32 or float64 in which NaN is the largest, or the smallest."""
    whole, datatype, significand = _WHOLE[dtype]
    nans = (1 << significand) - 1  # of either sign
    return Order(whole, datatype, dtype, -nans if largest else nans)
