"""How much memory the tensors of a run take. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Op, Undefined, bytes_per_tensor
from distdemo.ops.values import batch

if TYPE_CHECKING:
    from distdemo.model import OpSpec

COPIES = 6  # of what is computed at once: values, the same wide, magnitudes, totals, differences


def footprint(op: Op, spec: OpSpec) -> int:
    """Bytes of all ranks' tensors together at the worst moment, the verification included.

    Ranks are alike but for the root, the sender and the receiver, so one of the rest stands for
    all of them.
    """
    special = {rank for rank in (spec.root, spec.src, spec.dst) if rank is not None}
    total = sum(_of_rank(op, rank, spec) for rank in special)
    others = spec.world_size - len(special)
    if others > 0:
        one = next(rank for rank in range(spec.world_size) if rank not in special)
        total += others * _of_rank(op, one, spec)
    return total


def _of_rank(op: Op, rank: int, spec: OpSpec) -> int:
    each = bytes_per_tensor(spec)
    pieces, result = op.pieces(rank, spec), op.result(rank, spec)
    received = 1 if isinstance(result, Undefined) else len(result)
    buffers = (pieces + received) * each
    expected = received * each
    wide = 16 if DTYPES[spec.dtype].kind == "complex" else 8
    at_once = min(max(spec.world_size, pieces, received), batch(spec.numel))
    return buffers + expected + COPIES * wide * spec.numel * at_once
