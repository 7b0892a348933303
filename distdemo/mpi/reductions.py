"""Reduce operations: which of MPI's types and operations do what torch's dtype and ReduceOp ask.

- Whole numbers wrap around, as in torch. Truth values are added, multiplied and compared as such:
  sum and max are "or", product and min are "and".
- float16, bfloat16 and the float8 types are reduced as float32, and rounded once, at the end.
- min and max of floating-point numbers are NaN where one of them is, on every rank, and -0.0 is
  less than 0.0: see ``ordering``.
- avg is a sum and a division by the number of ranks; premul_sum multiplies before it adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.buffers import clone, fill, plain
from distdemo.mpi.ordering import Order, order_for

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
_ARITHMETIC = {_Kind.SUM: MPI.SUM, _Kind.PRODUCT: MPI.PROD, _Kind.AVG: MPI.SUM}
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


@dataclass(frozen=True, slots=True)
class Plan:
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
            return held.mul_(_factor(reduce_op)) if self.weighted else held

    def room(self, tensor: torch.Tensor) -> torch.Tensor:
        """Where the result can come to: the tensor's memory, or room elsewhere."""
        dtype = self.order.whole if self.order else self.through or tensor.dtype
        if plain(tensor) and self.through is None:
            with torch.inference_mode():
                return tensor.view(dtype) if self.order else tensor
        return torch.empty(tensor.shape, dtype=dtype, device=tensor.device)

    def store(self, held: torch.Tensor, tensor: torch.Tensor, ranks: int) -> None:
        """The result of a reduction, finished, to where the user wants it."""
        if self.average:
            with torch.inference_mode():
                held.div_(ranks)
        if self.order is not None:
            with torch.inference_mode():
                held = self.order.to_floats(held)
            if held.data_ptr() == tensor.data_ptr():
                return
        if held is not tensor:
            fill(tensor, held)


_sums: dict[torch.dtype, Plan] = {}


def plan_for(dtype: torch.dtype, reduce_op: Any) -> Plan:  # noqa: ANN401 - torch's own
    """How MPI reduces this dtype with this operation.

    Args:
        dtype: the tensor's.
        reduce_op: a ``ReduceOp``, or the kind of one.

    Raises:
        TypeError: it does not.
    """
    if reduce_op == _Kind.SUM:  # most are sums; to hash a kind takes longer than the rest of an op
        plan = _sums.get(dtype)
        if plan is None:
            plan = _sums[dtype] = _plan(dtype, _Kind.SUM)
        return plan
    return _plan(dtype, getattr(reduce_op, "op", reduce_op))


@cache
def _plan(dtype: torch.dtype, kind: Any) -> Plan:  # noqa: ANN401 - a RedOpType
    average, weighted = kind == _Kind.AVG, kind == _Kind.PREMUL_SUM
    through = torch.float32 if dtype in _SHORT else None
    datatypes, ops = _families(through or dtype)
    op = MPI.SUM if weighted and (through or dtype) in _FLOATS else ops.get(kind)
    if op is None:
        raise TypeError(f"MPI does not reduce {dtype} with {kind.name}: {_why(dtype, kind)}.")
    if kind in _ORDER and (through or dtype) in _FLOATS:
        order = order_for(through or dtype, largest=kind == _Kind.MAX)
        return Plan(order.datatype, op, through, order=order)
    return Plan(datatypes[through or dtype], op, through, average, weighted)


def _families(dtype: torch.dtype) -> tuple[dict[torch.dtype, MPI.Datatype], dict[Any, MPI.Op]]:
    """MPI's types and operations for dtypes like this one."""
    if dtype in _FLOATS:
        return _FLOATS, _ARITHMETIC | _ORDER
    if dtype in _COMPLEX:
        return _COMPLEX, _ARITHMETIC
    if dtype is torch.bool:
        return {dtype: MPI.C_BOOL}, _LOGIC
    if dtype in _WHOLE:
        return _WHOLE, {
            kind: op for kind, op in (_ARITHMETIC | _ORDER | _BITS).items() if kind != _Kind.AVG
        }
    raise TypeError(f"MPI has no arithmetic for {dtype}.")


def _why(dtype: torch.dtype, kind: Any) -> str:  # noqa: ANN401 - a RedOpType
    if kind == _Kind.AVG:
        return "an average of whole numbers is rarely one"
    if kind == _Kind.PREMUL_SUM:
        return "a pre-multiplied sum is for floating-point numbers"
    if dtype in _COMPLEX and kind in _ORDER:
        return "complex numbers have no order"
    return "bitwise operations need whole numbers"


def _factor(reduce_op: Any) -> Any:  # noqa: ANN401 - torch's own, a number or a tensor
    """What a premul_sum multiplies with."""
    return reduce_op.__getstate__()[1]
