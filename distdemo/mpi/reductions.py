"""Reduce operations: which of MPI's types and operations do what torch's dtype and ReduceOp ask.

- Whole numbers wrap around, as in torch. Booleans are added, multiplied and compared as such: sum
  and max are "or", product and min are "and".
- float16, bfloat16 and the float8 types are reduced as float32, and rounded once, at the end.
- min and max of floating-point numbers are NaN where one of them is, on every rank, and -0.0 is
  less than 0.0: see :class:`Order`.
- avg is a sum and a division by the number of ranks; premul_sum multiplies before it adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.buffers import clone, fill, plain

_Kind: Any = dist.ReduceOp.RedOpType  # torch tells its type checker of some members only
_FLOATS = {torch.float32: MPI.FLOAT, torch.float64: MPI.DOUBLE}
_COMPLEX = {torch.complex64: MPI.C_FLOAT_COMPLEX, torch.complex128: MPI.C_DOUBLE_COMPLEX}
_WHOLE = {
    torch.int8: MPI.INT8_T,
    torch.int16: MPI.INT16_T,
    torch.int32: MPI.INT32_T,
    torch.int64: MPI.INT64_T,
    torch.uint8: MPI.UINT8_T,
    torch.uint16: MPI.UINT16_T,
    torch.uint32: MPI.UINT32_T,
    torch.uint64: MPI.UINT64_T,
}
_SHORT = frozenset(
    {torch.float16, torch.bfloat16}
    | {dtype for name, dtype in vars(torch).items() if name.startswith("float8_")}
)
_ARITHMETIC = {_Kind.SUM: MPI.SUM, _Kind.PRODUCT: MPI.PROD}
_ORDER = {_Kind.MIN: MPI.MIN, _Kind.MAX: MPI.MAX}
_BITS = {_Kind.BAND: MPI.BAND, _Kind.BOR: MPI.BOR, _Kind.BXOR: MPI.BXOR}
_LOGIC = {
    _Kind.SUM: MPI.LOR,
    _Kind.MAX: MPI.LOR,
    _Kind.BOR: MPI.LOR,
    _Kind.PRODUCT: MPI.LAND,
    _Kind.MIN: MPI.LAND,
    _Kind.BAND: MPI.LAND,
    _Kind.BXOR: MPI.LXOR,
}
_FAMILIES: tuple[tuple[dict[torch.dtype, MPI.Datatype], dict[Any, MPI.Op]], ...] = (
    (_FLOATS, _ARITHMETIC | _ORDER | {_Kind.AVG: MPI.SUM, _Kind.PREMUL_SUM: MPI.SUM}),
    (_COMPLEX, _ARITHMETIC | {_Kind.AVG: MPI.SUM}),
    (_WHOLE, _ARITHMETIC | _ORDER | _BITS),
    ({torch.bool: MPI.C_BOOL}, _LOGIC),
)
"""MPI's types for dtypes of one family, and its operations on them."""


@dataclass(frozen=True, slots=True)
class Order:
    """Floats as whole numbers of the same order, for min or for max, so that NaN comes through.

    MPI takes the larger by ``a > b ? a : b``, or by what the processor has for it. A NaN then wins
    or loses by the side on which it stands, and as the ranks fold in different orders, each comes
    to a result of its own. Whole numbers have one order for all.

    The bits of a float, read as a whole number with a sign, are in order already where they are not
    negative. Where they are, the larger is the smaller: all bits but the sign are flipped. That
    gives ::

        -NaN < -inf < ... < -0.0 < 0.0 < ... < inf < NaN

    and a turn by as many places as there are NaNs of one sign (the sum wraps around) brings both
    kinds to the end that wins. Every step can be undone, so a NaN keeps its last bit.

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

    @classmethod
    def of(cls, dtype: torch.dtype, *, largest: bool) -> Order:
        """Of float32 or float64: NaN is the largest, or the smallest."""
        whole, datatype, significand = {  # IEEE 754: bits of the significand
            torch.float32: (torch.int32, MPI.INT32_T, 23),
            torch.float64: (torch.int64, MPI.INT64_T, 52),
        }[dtype]
        nans = (1 << significand) - 1  # of either sign
        return cls(whole, datatype, dtype, -nans if largest else nans)

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


BLOCK = 1 << 16  # elements that stay in the cache from the first step to the last


def _blocks(keys: torch.Tensor) -> Sequence[torch.Tensor]:
    """The same memory in blocks."""
    return (keys,) if keys.numel() <= BLOCK else torch.split(keys.view(-1), BLOCK)


@dataclass(frozen=True, slots=True)
class MpiReduction:
    """How to reduce one dtype with one operation.

    Attributes:
        datatype: MPI's type.
        op: MPI's operation.
        through: the dtype that it is converted to meanwhile; None: none.
        average: divide by the number of ranks afterwards.
        weighted: multiply with the ReduceOp's factor before.
        order: the whole numbers that stand for floats meanwhile; None: none.
    """

    datatype: MPI.Datatype
    op: MPI.Op
    through: torch.dtype | None = None
    average: bool = False
    weighted: bool = False
    order: Order | None = None

    def load(
        self,
        tensor: torch.Tensor,
        reduce_op: Any,  # noqa: ANN401 - torch's
        in_place: bool = False,
    ) -> torch.Tensor:
        """What goes into the reduction: the tensor itself, or what is fit for it.

        Args:
            tensor: the user's.
            reduce_op: with the factor of a premul_sum.
            in_place: the result comes to this tensor, so it may be changed already.
        """
        ready = plain(tensor) and self.through is None
        if ready and self.order is None and not self.weighted:
            return tensor
        with torch.inference_mode():
            held = tensor if ready and in_place and self.order else clone(tensor)
            if self.through is not None:
                held = held.to(self.through)
            if self.order is not None:
                return self.order.to_keys(held)
            # The factor of a premul_sum, a number or a tensor, is in the ReduceOp's state alone.
            return held.mul_(reduce_op.__getstate__()[1]) if self.weighted else held

    def room(self, tensor: torch.Tensor) -> torch.Tensor:
        """Where the result can come to: the tensor's memory, or room elsewhere."""
        dtype = self.order.whole if self.order else self.through or tensor.dtype
        if plain(tensor) and self.through is None:
            with torch.inference_mode():
                return tensor.view(dtype) if self.order else tensor
        return torch.empty(tensor.shape, dtype=dtype, device=tensor.device)

    def store(
        self, held: torch.Tensor, tensor: torch.Tensor, ranks: int, kept: object = None
    ) -> None:
        """The result of a reduction, finished, to where the user wants it.

        Args:
            held: where MPI wrote it.
            tensor: the user's.
            ranks: how many there are.
            kept: what MPI read; holding this call keeps it alive.
        """
        with torch.inference_mode():
            if self.average:
                held.div_(ranks)
            if self.order is not None:
                held = self.order.to_floats(held)
        if held is not tensor and (self.order is None or held.data_ptr() != tensor.data_ptr()):
            fill(tensor, held)


_sums: dict[torch.dtype, MpiReduction] = {}


def reduction_for(dtype: torch.dtype, reduce_op: Any) -> MpiReduction:  # noqa: ANN401 - torch's own
    """How MPI reduces this dtype with this operation.

    Args:
        dtype: the tensor's.
        reduce_op: a ``ReduceOp``, or the kind of one.

    Raises:
        TypeError: it does not.
    """
    if reduce_op == _Kind.SUM:  # most are sums; to hash a kind takes longer than the rest of an op
        reduction = _sums.get(dtype)
        if reduction is None:
            reduction = _sums[dtype] = _reduction(dtype, _Kind.SUM)
        return reduction
    return _reduction(dtype, getattr(reduce_op, "op", reduce_op))


@cache
def _reduction(dtype: torch.dtype, kind: Any) -> MpiReduction:  # noqa: ANN401 - a RedOpType
    through = torch.float32 if dtype in _SHORT else None
    reduced = through or dtype
    datatypes, ops = next((both for both in _FAMILIES if reduced in both[0]), (None, None))
    if datatypes is None or ops is None:
        raise TypeError(f"MPI has no arithmetic for {dtype}.")
    if kind not in ops:
        raise TypeError(f"MPI does not reduce {dtype} with {kind.name}: {_why(dtype, kind)}.")
    if kind in _ORDER and reduced in _FLOATS:
        order = Order.of(reduced, largest=kind == _Kind.MAX)
        return MpiReduction(order.datatype, ops[kind], through, order=order)
    average, weighted = kind == _Kind.AVG, kind == _Kind.PREMUL_SUM
    return MpiReduction(datatypes[reduced], ops[kind], through, average, weighted)


def _why(dtype: torch.dtype, kind: Any) -> str:  # noqa: ANN401 - a RedOpType
    if kind == _Kind.AVG:
        return "an average of whole numbers is rarely one"
    if kind == _Kind.PREMUL_SUM:
        return "a pre-multiplied sum is for floating-point numbers"
    if dtype in _COMPLEX and kind in _ORDER:
        return "complex numbers have no order"
    return "bitwise operations need whole numbers"
