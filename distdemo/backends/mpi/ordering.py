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

from dataclasses import dataclass

import torch
from mpi4py import MPI


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

    def keys(self, tensor: torch.Tensor) -> torch.Tensor:
        """The numbers for a tensor without gaps, which stays as it is."""
        return self._flipped(tensor.view(self.whole)).add_(self.turn)

    def values(self, keys: torch.Tensor) -> torch.Tensor:
        """The floats for the numbers, which are of no more use then."""
        return self._flipped(keys.sub_(self.turn)).view(self.floats)

    def _flipped(self, bits: torch.Tensor) -> torch.Tensor:
        """All bits but the sign flipped where that is set; twice is nothing."""
        info = torch.iinfo(self.whole)
        signs = bits >> (info.bits - 1)  # all bits set, or none
        return signs.bitwise_and_(info.max).bitwise_xor_(bits)


_WHOLE = {
    torch.float32: (torch.int32, MPI.INT32_T, 23),  # IEEE 754: bits of the significand
    torch.float64: (torch.int64, MPI.INT64_T, 52),
}


def order_for(dtype: torch.dtype, largest: bool) -> Order:
    """The order of float32 or float64 in which NaN is the largest, or the smallest."""
    whole, datatype, significand = _WHOLE[dtype]
    nans = (1 << significand) - 1  # of either sign
    return Order(whole, datatype, dtype, -nans if largest else nans)
