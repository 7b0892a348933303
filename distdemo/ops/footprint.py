"""How much memory the tensors of a run take. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Op
from distdemo.ops.parts import Undefined
from distdemo.ops.values import batch

if TYPE_CHECKING:
    from distdemo.model import OpSpec

COPIES = 6  # of what is computed at once: values, the same wide, magnitudes, totals, differences


def footprint(op: Op, spec: OpSpec) -> int:
    """Bytes of all ranks' tensors together at the worst moment, the verification included.

    Ranks are alike but for the root, the sender and the receiver, so one of the rest stands for
    all of them; where tensors have unequal sizes, each counts for itself.
    """
    if spec.objects:
        return 0
    if spec.sizes is not None or spec.splits is not None:
        return sum(_of_rank(op, rank, spec) for rank in range(spec.world_size))
    special = {rank for rank in (spec.root, spec.src, spec.dst) if rank is not None}
    total = sum(_of_rank(op, rank, spec) for rank in special)
    others = spec.world_size - len(special)
    if others > 0:
        one = next(rank for rank in range(spec.world_size) if rank not in special)
        total += others * _of_rank(op, one, spec)
    return total


def _of_rank(op: Op, rank: int, spec: OpSpec) -> int:
    itemsize = DTYPES[spec.dtype].itemsize
    given = [op.cut(rank, piece, spec).numel for piece in range(op.pieces(rank, spec))]
    received = _received(op, rank, spec)
    buffers = (sum(given) + sum(received)) * itemsize
    expected = sum(received) * itemsize
    wide = 16 if DTYPES[spec.dtype].kind == "complex" else 8
    largest = max([*given, *received, 0])
    at_once = min(max(spec.world_size, len(given), len(received)), batch(largest))
    return buffers + expected + COPIES * wide * largest * at_once


def _received(op: Op, rank: int, spec: OpSpec) -> list[int]:
    """Elements of each piece that the rank gets."""
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return [spec.numel]
    return [op.cut(source.ranks[0], source.piece, spec).numel for source in result]
