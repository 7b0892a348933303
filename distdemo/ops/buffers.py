"""The tensors of a run: what a rank holds before, the buffers it hands over, what it should get.

All of it follows from an op's declarations; no op builds its own. Collective: nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import torch

from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Buffers, Op, Source, Undefined
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.values import element, plan

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.model import OpSpec


@dataclass(frozen=True, slots=True)
class Expected:
    """What one piece of a result should be.

    Attributes:
        tensor: the result, in the spec's dtype and shape, on the CPU.
        bound: how far each element may be off, float64, same shape; None: not at all.
    """

    tensor: Tensor
    bound: Tensor | None = None


def torch_dtype(spec: OpSpec) -> torch.dtype:
    """The torch dtype of this spec."""
    dtype = getattr(torch, spec.dtype)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"torch.{spec.dtype} is no dtype")
    return dtype


def held_before(op: Op, rank: int, spec: OpSpec) -> list[Tensor]:
    """The pieces that this rank holds before the op, each of ``spec.shape``, on the CPU."""
    return [_filled(op.label(rank, piece, spec), spec) for piece in range(op.pieces(rank, spec))]


def make_buffers(op: Op, rank: int, spec: OpSpec, device: str) -> Buffers:
    """The tensors to hand to torch.distributed: inputs filled, separate outputs poisoned."""
    send = [tensor.to(device) for tensor in held_before(op, rank, spec)]
    if op.is_in_place(spec):
        return Buffers(send, send)
    result = op.result(rank, spec)
    count = 1 if isinstance(result, Undefined) else len(result)
    return Buffers(send, [_poisoned(spec, device) for _ in range(count)])


def expected(op: Op, rank: int, spec: OpSpec) -> list[Expected] | None:
    """What this rank should hold afterwards, by plain arithmetic; None if it is undefined."""
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return None
    return [_evaluate(op, source, spec) for source in result]


def _filled(label: int, spec: OpSpec) -> Tensor:
    dtype = torch_dtype(spec)
    if spec.values is not None:
        row = spec.values[label]
        if row is None:
            return torch.zeros(spec.shape, dtype=dtype)
        return torch.tensor(row, dtype=dtype).reshape(spec.shape)
    if spec.fill is not None:
        number = label if isinstance(spec.fill, str) else spec.fill
        return torch.full(spec.shape, number, dtype=dtype)
    positions = torch.arange(spec.numel, dtype=torch.int64)
    return element(plan(spec), label, positions).to(dtype).reshape(spec.shape)  # type: ignore[no-any-return]


def _poisoned(spec: OpSpec, device: str) -> Tensor:
    """A receive buffer of a value that no result has by default, so that a gap shows."""
    dtype = torch_dtype(spec)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.full(spec.shape, float("nan"), dtype=dtype, device=device)
    poison = True if dtype == torch.bool else torch.iinfo(dtype).max
    return torch.full(spec.shape, poison, dtype=dtype, device=device)


def _evaluate(op: Op, source: Source, spec: OpSpec) -> Expected:
    parts = (_filled(op.label(rank, source.piece, spec), spec) for rank in source.ranks)
    if not source.reduced:
        return Expected(next(parts))
    return _reduce(list(parts), spec)


def _reduce(parts: list[Tensor], spec: OpSpec) -> Expected:
    """Reduce in arithmetic that is wider than the dtype, then round once.

    Integers wrap around as the hardware's do (int64, then cut to the dtype). A floating-point sum
    or product whose partial results are all whole numbers that the dtype holds must match exactly.
    Otherwise n roundings of up to ε each may be off: |error| ≤ n·ε·Σ|xᵢ| for a sum (Higham,
    Accuracy and Stability of Numerical Algorithms, 2002, section 4.2), n·ε·∏|xᵢ| for a product.
    """
    reduction = REDUCTIONS[spec.reduce_op or "sum"]
    dtype = torch_dtype(spec)
    wide = _wide(dtype)
    combine = getattr(torch, reduction.torch_combine)
    total = reduce(combine, [part.to(wide) for part in parts])
    if spec.reduce_op == "avg":
        total = total / len(parts)
    result = total.to(dtype)
    if not (reduction.rounds and (dtype.is_floating_point or dtype.is_complex)):
        return Expected(result)
    magnitude = reduce(combine, [part.to(wide).abs() for part in parts])
    if spec.reduce_op != "avg" and _is_exact(parts, magnitude, spec):
        return Expected(result)
    epsilon = DTYPES[spec.dtype].epsilon
    return Expected(result, magnitude * (len(parts) * epsilon))


def _wide(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    if dtype.is_floating_point:
        return torch.float64
    return dtype if dtype == torch.bool else torch.int64


def _is_exact(parts: list[Tensor], magnitude: Tensor, spec: OpSpec) -> bool:
    """Whether every partial result, in any order, is a whole number that the dtype holds."""
    if spec.numel == 0:
        return True
    whole = all(_is_whole(part) for part in parts)
    return whole and bool((magnitude <= DTYPES[spec.dtype].exact).all())


def _is_whole(tensor: Tensor) -> bool:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return bool((tensor == tensor.to(torch.float64).trunc()).all())
