"""Memory of the tensors of a run; no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Op
from distdemo.ops.values import PERIODS, batch

if TYPE_CHECKING:
    from distdemo.ops.spec import OpSpec

COPIES = 6  # copies of a computed batch: values, wide values, magnitudes, totals, differences


def footprint(op: Op, spec: OpSpec) -> int:
    """Return the peak bytes of all ranks' tensors together, including verification."""
    if spec.objects:
        return 0
    total = 0
    for times, given, received, _ in _ranks(op, spec):
        buffers = sum(given) + 2 * sum(received)  # what is received, and what is expected
        largest = max([*given, *received, 0])
        at_once = min(max(spec.group_size, len(given), len(received)), batch(largest))
        computed = COPIES * _wide(spec) * largest * at_once
        total += times * (buffers * DTYPES[spec.dtype].itemsize + computed)
    return total


def memory_of_all(op: Op, spec: OpSpec) -> int:
    """Return the bytes of all ranks' tensors if filled and verified in blocks, as in bench.

    Excludes a backend's own copies, which may double it.
    """
    itemsize = DTYPES[spec.dtype].itemsize
    wide = _wide(spec)
    total = 0
    for times, given, received, rank in _ranks(op, spec):
        separate = 0 if op.is_in_place(spec) else sum(received)
        shared = op.in_place_slots(rank, spec) if spec.in_place else None
        if shared is not None:
            separate -= received[shared[1]]
        largest = min(PERIODS[0], max([*given, *received, 0]))
        at_once = min(max(spec.group_size, 1), batch(largest))
        # In addition to the computation: the period and its bound, perhaps joined from two parts.
        blocks = largest * (COPIES * wide * at_once + 2 * (itemsize + wide))
        total += times * ((sum(given) + separate) * itemsize + blocks)
    return total


def _ranks(op: Op, spec: OpSpec) -> Iterator[tuple[int, list[int], list[int], int]]:
    """Yield how often a rank counts, the elements of its pieces before and after, and the rank.

    All ranks except the root, the sender and the receiver are alike, so one represents the rest;
    if tensors have unequal sizes, every rank is counted separately.
    """
    special = {rank for rank in (spec.root, spec.src, spec.dst) if rank is not None}
    if spec.sizes is not None or spec.splits is not None:
        special = set(range(spec.group_size))
    others = [rank for rank in range(spec.group_size) if rank not in special]
    for rank in [*sorted(special), *others[:1]]:
        given = [cut.numel for cut in op.cuts_before(rank, spec)]
        received = [cut.numel for cut in op.cuts_after(rank, spec)]
        yield 1 if rank in special else len(others), given, received, rank


def _wide(spec: OpSpec) -> int:
    """Return the bytes per element during computation."""
    return 16 if DTYPES[spec.dtype].kind == "complex" else 8
