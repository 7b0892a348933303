"""The tensors of a run: what a rank holds before, the buffers it hands over, what it should get.

All of it follows from an op's declarations; no op builds its own. Collective: nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import torch

from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Buffers, Op, Source, Undefined
from distdemo.ops.reduction import REDUCTIONS, Reduction
from distdemo.ops.values import batch, element, plan

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.model import Number, OpSpec


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
    labels = [op.label(rank, piece, spec) for piece in range(op.pieces(rank, spec))]
    return _tensors(op, labels, spec)


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
    if any(source.reduced for source in result):
        return [_reduce(op, source, spec) for source in result]
    labels = [op.label(source.ranks[0], source.piece, spec) for source in result]
    return [Expected(piece) for piece in _tensors(op, labels, spec)]


def _tensors(op: Op, labels: Sequence[int], spec: OpSpec) -> list[Tensor]:
    """A tensor of the spec's dtype and shape for each label."""
    step = batch(spec.numel)
    starts = range(0, len(labels), step)
    blocks = (_filled(op, labels[start : start + step], spec) for start in starts)
    return [tensor for block in blocks for tensor in block.to(torch_dtype(spec)).unbind()]


def _filled(op: Op, labels: Sequence[int], spec: OpSpec) -> Tensor:
    """The values of all these labels at once: a tensor of (labels, *shape), in a wide dtype.

    One tensor for all of them: in a world of hundreds of ranks every rank computes what all the
    others held, and a torch call for each of them would take longer than the op.
    """
    whole = (len(labels), *spec.shape)
    wide = _wide(torch_dtype(spec))
    if spec.values is not None:
        dtype, empty = torch_dtype(spec), (0,) * spec.numel
        rows = [[_number(n, dtype) for n in spec.values[label] or empty] for label in labels]
        return torch.tensor(rows, dtype=torch_dtype(spec)).to(wide).reshape(whole)
    column = torch.tensor(labels, dtype=torch.int64).unsqueeze(1)
    if isinstance(spec.fill, str):
        return column.to(wide).expand(len(labels), spec.numel).reshape(whole)
    if spec.fill is not None:
        # Through a list, because torch.full takes no integer beyond 64 bits, not even for floats.
        number = _number(spec.fill, torch_dtype(spec))
        return torch.tensor([number], dtype=torch_dtype(spec)).to(wide).expand(whole)
    positions = torch.arange(spec.numel, dtype=torch.int64)
    numbers: Tensor = element(plan(spec, len(op.value_labels(spec))), column, positions)
    return numbers.to(wide).reshape(whole)


def _poisoned(spec: OpSpec, device: str) -> Tensor:
    """A receive buffer of a value that no result has by default, so that a gap shows."""
    dtype = torch_dtype(spec)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.full(spec.shape, float("nan"), dtype=dtype, device=device)
    poison = True if dtype == torch.bool else torch.iinfo(dtype).max
    return torch.full(spec.shape, poison, dtype=dtype, device=device)


def _reduce(op: Op, source: Source, spec: OpSpec) -> Expected:
    """Reduce in arithmetic that is wider than the dtype, then round once.

    Integers wrap around as the hardware's do (int64, then cut to the dtype). A floating-point sum
    or product whose partial results are all whole numbers that the dtype holds must match exactly.
    Otherwise each of n roundings, ours included, may be off by ε/2 of the partial result:
    |error| ≤ n·ε·Σ|xᵢ| for a sum and n·ε·∏|xᵢ| for a product bound them with room to spare
    (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2).
    """
    reduction = REDUCTIONS[spec.reduce_op or "sum"]
    dtype = torch_dtype(spec)
    count = len(source.ranks)
    rounds = reduction.rounds and (dtype.is_floating_point or dtype.is_complex)
    combine = getattr(torch, reduction.torch_combine)
    total: Tensor | None = None
    magnitude: Tensor | None = None
    whole = True
    for block in _blocks(op, source, spec):
        total = reduce(combine, _collapsed(block, reduction, total))
        if rounds:
            magnitude = reduce(combine, _collapsed(block.abs(), reduction, magnitude))
            whole = whole and _is_whole(block)
    assert total is not None  # noqa: S101 - a source has at least one rank
    if spec.reduce_op == "avg":
        total = _divided(total, count)
        magnitude = None if magnitude is None else magnitude / count
    result = total.to(dtype)
    if magnitude is None or (spec.reduce_op != "avg" and _is_exact(whole, magnitude, spec)):
        return Expected(result)
    return Expected(result, magnitude * (count * DTYPES[spec.dtype].epsilon))


def _blocks(op: Op, source: Source, spec: OpSpec) -> Iterator[Tensor]:
    """What the source's ranks hold, some ranks at a time: tensors of (ranks, *shape)."""
    labels = [op.label(rank, source.piece, spec) for rank in source.ranks]
    step = batch(spec.numel)
    for start in range(0, len(labels), step):
        yield _filled(op, labels[start : start + step], spec)


def _collapsed(block: Tensor, reduction: Reduction, so_far: Tensor | None) -> list[Tensor]:
    """The block reduced over its ranks as far as one torch call can, after what was so far."""
    before = [] if so_far is None else [so_far]
    if not reduction.torch_collapse:
        return [*before, *block.unbind()]
    return [*before, getattr(torch, reduction.torch_collapse)(block, dim=0)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    if dtype.is_floating_point:
        return torch.float64
    return dtype if dtype == torch.bool else torch.int64


def _number(number: Number, dtype: torch.dtype) -> Number:
    """A number that torch can make a tensor of: Python's integers may be beyond 64 bits."""
    if isinstance(number, int) and (dtype.is_floating_point or dtype.is_complex):
        return float(number)
    return number


def _divided(total: Tensor, count: int) -> Tensor:
    """Each part of a complex number by itself, so that it is rounded once."""
    if total.is_complex():
        return torch.view_as_complex(torch.view_as_real(total) / count)
    return total / count


def _is_exact(whole: bool, magnitude: Tensor, spec: OpSpec) -> bool:
    """Whether every partial result, in any order, is a whole number that the dtype holds."""
    return whole and bool((magnitude <= DTYPES[spec.dtype].exact).all())


def _is_whole(tensor: Tensor) -> bool:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return bool((tensor == tensor.trunc()).all())
