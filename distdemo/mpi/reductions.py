"""Reduce operations: MPI's types and operations for torch's dtypes and ReduceOps.

- Integers wrap around, as in torch. For bool, sum and max are "or", product and min are "and".
- float16, bfloat16 and the float8 types are reduced as float32, and rounded once, at the end.
- min and max of floating-point numbers are NaN where one of them is, on every rank, and -0.0 is
  less than 0.0: see :class:`Order`.
- avg is a sum divided by the number of ranks; premul_sum multiplies before it adds.
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

_Kind: Any = dist.ReduceOp.RedOpType  # torch's stubs lack some members
_FLOATS = {torch.float32: MPI.FLOAT, torch.float64: MPI.DOUBLE}
_COMPLEX = {torch.complex64: MPI.C_FLOAT_COMPLEX, torch.complex128: MPI.C_DOUBLE_COMPLEX}
_WHOLE = {
    getattr(torch, f"{sign}int{bits}"): getattr(MPI, f"{sign}int{bits}_t".upper())
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
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
"""MPI's types and operations per family of dtypes."""


@dataclass(frozen=True, slots=True)
class Order:
    """A mapping of floats to integers of the same order, for min or max that propagate NaN.

    MPI computes the maximum with ``a > b ? a : b`` or a processor instruction. Whether a NaN wins
    then depends on which operand it is, and as ranks reduce in different orders, their results
    differ. Integers are totally ordered.

    The bits of a nonnegative float, read as a signed integer, are ordered already. Negative
    floats are in reverse order, so all bits except the sign are flipped. That gives ::

        -NaN < -inf < ... < -0.0 < 0.0 < ... < inf < NaN

    Then adding the number of NaNs of one sign (the sum wraps around) moves the NaNs of both signs
    to the end that wins. Every step is reversible, so a NaN keeps all its bits.

    Attributes:
        whole: Integer dtype, as wide as the floats.
        datatype: MPI's type for it.
        floats: Dtype of the floats.
        turn: Offset that moves each NaN beyond the infinity that wins.
    """

    whole: torch.dtype
    datatype: MPI.Datatype
    floats: torch.dtype
    turn: int

    @classmethod
    def of(cls, dtype: torch.dtype, *, largest: bool) -> Order:
        """Return the order of float32 or float64, with NaN the largest or the smallest."""
        whole, datatype, significand = {  # IEEE 754: bits of the significand
            torch.float32: (torch.int32, MPI.INT32_T, 23),
            torch.float64: (torch.int64, MPI.INT64_T, 52),
        }[dtype]
        nans = (1 << significand) - 1  # per sign
        return cls(whole, datatype, dtype, -nans if largest else nans)

    def to_keys(self, tensor: torch.Tensor) -> torch.Tensor:
        """Convert the floats of a contiguous tensor to integers, in place."""
        keys = tensor.view(self.whole)
        for block in _blocks(keys):
            self._flip(block)
            block.add_(self.turn)
        return keys

    def to_floats(self, keys: torch.Tensor) -> torch.Tensor:
        """Convert integers back to floats, in place."""
        for block in _blocks(keys):
            block.sub_(self.turn)
            self._flip(block)
        return keys.view(self.floats)

    def _flip(self, bits: torch.Tensor) -> None:
        """Flip all bits except the sign where the sign is set; its own inverse."""
        info = torch.iinfo(self.whole)
        signs = bits >> (info.bits - 1)  # all bits set, or none
        bits.bitwise_xor_(signs.bitwise_and_(info.max))


BLOCK = 1 << 16  # elements that stay in the cache during all steps


def _blocks(keys: torch.Tensor) -> Sequence[torch.Tensor]:
    """Return views of the tensor's blocks."""
    return (keys,) if keys.numel() <= BLOCK else torch.split(keys.view(-1), BLOCK)


@dataclass(frozen=True, slots=True)
class MpiReduction:
    """Reduction of one dtype with one operation.

    Attributes:
        datatype: MPI's type.
        op: MPI's operation.
        through: Dtype to reduce in, if it isn't the tensor's.
        average: True to divide by the number of ranks afterwards.
        weighted: True to multiply by the ReduceOp's factor first.
        order: Integers to reduce instead of floats, if any.
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
        reduce_op: Any,
        in_place: bool = False,
    ) -> torch.Tensor:
        """Return the input of the reduction: the tensor itself or a converted copy.

        Args:
            tensor: Tensor of the user.
            reduce_op: ReduceOp, with the factor of a premul_sum.
            in_place: True if the result overwrites this tensor, so it may be changed now.
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
            # Only the ReduceOp's state has the factor of a premul_sum, a number or a tensor.
            return held.mul_(reduce_op.__getstate__()[1]) if self.weighted else held

    def result_buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a buffer for the result: the tensor's memory, or a new tensor."""
        dtype = self.order.whole if self.order else self.through or tensor.dtype
        if plain(tensor) and self.through is None:
            with torch.inference_mode():
                return tensor.view(dtype) if self.order else tensor
        return torch.empty(tensor.shape, dtype=dtype, device=tensor.device)

    def store(
        self, held: torch.Tensor, tensor: torch.Tensor, ranks: int, kept: object = None
    ) -> None:
        """Finish the result and copy it to the user's tensor.

        Args:
            held: Buffer that MPI wrote to.
            tensor: Tensor of the user.
            ranks: Number of ranks.
            kept: Buffer that MPI read; the callback keeps it alive.
        """
        with torch.inference_mode():
            if self.average:
                held.div_(ranks)
            if self.order is not None:
                held = self.order.to_floats(held)
        if held is not tensor and (self.order is None or held.data_ptr() != tensor.data_ptr()):
            fill(tensor, held)


_sums: dict[torch.dtype, MpiReduction] = {}


def reduction_for(dtype: torch.dtype, reduce_op: Any) -> MpiReduction:
    """Return the reduction for a dtype and an operation.

    Args:
        dtype: Dtype of the tensor.
        reduce_op: ``ReduceOp`` or ``RedOpType``.

    Raises:
        TypeError: It isn't supported.
    """
    if reduce_op == _Kind.SUM:  # the common case; hashing a kind is slower than the rest of an op
        reduction = _sums.get(dtype)
        if reduction is None:
            reduction = _sums[dtype] = _reduction(dtype, _Kind.SUM)
        return reduction
    return _reduction(dtype, getattr(reduce_op, "op", reduce_op))


@cache
def _reduction(dtype: torch.dtype, kind: Any) -> MpiReduction:
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
    return MpiReduction(
        datatypes[reduced],
        ops[kind],
        through,
        average=kind == _Kind.AVG,
        weighted=kind == _Kind.PREMUL_SUM,
    )


def _why(dtype: torch.dtype, kind: Any) -> str:
    if kind == _Kind.AVG:
        return "an average of integers is rarely an integer"
    if kind == _Kind.PREMUL_SUM:
        return "a pre-multiplied sum needs floating-point numbers"
    if dtype in _COMPLEX and kind in _ORDER:
        return "complex numbers have no order"
    return "bitwise operations need integers"
