"""Reduce operations: MPI's types and operations for torch's dtypes and ReduceOps.

- Integers wrap around, as in torch. For bool, sum and max are "or", product and min are "and".
- float16, bfloat16 and the float8 types are reduced as float32, and rounded once, at the end.
- min and max of floating-point numbers are NaN where one of them is, on every rank: MPI's own
  depend on the order of the operands, so torch computes them (`_order`).
- avg is a sum divided by the number of ranks; premul_sum multiplies before it adds.
"""

from __future__ import annotations

from collections.abc import Callable
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
class MpiReduction:
    """Reduction of one dtype with one operation.

    Attributes:
        datatype: MPI's type.
        op: MPI's operation.
        through: Dtype to reduce in, if it isn't the tensor's.
        average: True to divide by the number of ranks afterwards.
        weighted: True to multiply by the ReduceOp's factor first.
    """

    datatype: MPI.Datatype
    op: MPI.Op
    through: torch.dtype | None = None
    average: bool = False
    weighted: bool = False

    def load(self, tensor: torch.Tensor, reduce_op: Any) -> torch.Tensor:
        """Return the input of the reduction: the tensor itself or a converted copy.

        Args:
            tensor: Tensor of the user.
            reduce_op: ReduceOp, with the factor of a premul_sum.
        """
        if plain(tensor) and self.through is None and not self.weighted:
            return tensor
        with torch.inference_mode():
            copy = clone(tensor)
            if self.through is not None:
                copy = copy.to(self.through)
            # Only the ReduceOp's state has the factor of a premul_sum, a number or a tensor.
            return copy.mul_(reduce_op.__getstate__()[1]) if self.weighted else copy

    def result_buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a buffer for the result: the tensor itself, or a new one."""
        if plain(tensor) and self.through is None:
            return tensor
        return torch.empty(tensor.shape, dtype=self.through or tensor.dtype)

    def store(
        self, result: torch.Tensor, tensor: torch.Tensor, ranks: int, kept: object = None
    ) -> None:
        """Finish the result and copy it to the user's tensor.

        Args:
            result: Buffer that MPI wrote to.
            tensor: Tensor of the user.
            ranks: Number of ranks.
            kept: Buffer that MPI read; the callback keeps it alive.
        """
        if self.average:
            with torch.inference_mode():
                result.div_(ranks)
        if result is not tensor:
            fill(tensor, result)


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
        raise TypeError(f"MPI does not reduce {dtype} with {kind.name}.")
    op = ops[kind]
    if kind in _ORDER and reduced in _FLOATS:
        op = _order(reduced, torch.maximum if kind == _Kind.MAX else torch.minimum)
    return MpiReduction(
        datatypes[reduced],
        op,
        through,
        average=kind == _Kind.AVG,
        weighted=kind == _Kind.PREMUL_SUM,
    )


def _order(dtype: torch.dtype, choose: Callable[..., object]) -> MPI.Op:
    """Return an operation of MPI that calls torch's minimum or maximum, which propagate NaN."""

    def combine(one: Any, both: Any, _: MPI.Datatype) -> None:
        if one.nbytes:  # MPI may divide few elements into many parts
            result = torch.frombuffer(both, dtype=dtype)
            choose(torch.frombuffer(one, dtype=dtype), result, out=result)

    return MPI.Op.Create(combine, commute=True)
