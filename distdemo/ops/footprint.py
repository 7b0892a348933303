"""Memory of the tensors of a run; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Op
from distdemo.ops.values import batch

if TYPE_CHECKING:
    from distdemo.ops.spec import OpSpec

COPIES = 6  # copies of a computed batch: values, wide values, magnitudes, totals, differences


def footprint(op: Op, spec: OpSpec, block: int | None = None) -> int:
    """Return the peak bytes of all ranks' tensors together, including verification.

    Excludes a backend's own copies, which may double it. All ranks except the root, the sender and
    the receiver are alike, so one represents the rest; if tensors have unequal sizes, every rank is
    counted separately.

    Args:
        op: Op that runs.
        spec: Call and its data.
        block: Elements that are filled and verified at a time; None for all.
    """
    if spec.objects:
        return 0
    special = {rank for rank in (spec.root, spec.src, spec.dst) if rank is not None}
    if spec.sizes is not None or spec.splits is not None:
        special = set(range(spec.group_size))
    others = [rank for rank in range(spec.group_size) if rank not in special]
    total = sum(_of_rank(op, rank, spec, block) for rank in special)
    if others:
        total += len(others) * _of_rank(op, others[0], spec, block)
    return total


def _of_rank(op: Op, rank: int, spec: OpSpec, block: int | None) -> int:
    itemsize = DTYPES[spec.dtype].itemsize
    wide = 16 if DTYPES[spec.dtype].kind == "complex" else 8  # bytes per element when computed
    given = [cut.numel for cut in op.cuts_before(rank, spec)]
    received = [cut.numel for cut in op.cuts_after(rank, spec)]
    elements = sum(given)
    if not op.is_in_place(spec):
        elements += sum(received)
    shared = op.in_place_slots(rank, spec) if spec.in_place else None
    if shared is not None:
        elements -= received[shared[1]]
    largest = max([*given, *received, 0])
    computed = largest if block is None else min(block, largest)
    at_once = min(max(spec.group_size, len(given), len(received)), batch(computed))
    # Of a block: it and its bound, perhaps joined from two parts.
    of_block = 2 * computed * (itemsize + wide)
    expected = sum(received) * itemsize if block is None else of_block
    return elements * itemsize + expected + COPIES * wide * computed * at_once
