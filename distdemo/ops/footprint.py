"""Memory of the tensors of a run; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Op, Undefined
from distdemo.ops.values import PERIODS, batch

if TYPE_CHECKING:
    from distdemo.ops.spec import OpSpec

COPIES = 6  # copies of each computed batch: values, wide values, magnitudes, totals, differences


def footprint(op: Op, spec: OpSpec) -> int:
    """Return the peak bytes of all ranks' tensors together, including verification.

    All ranks except the root, the sender and the receiver are alike, so one represents the rest;
    if tensors have unequal sizes, each rank is counted separately.
    """
    if spec.objects:
        return 0
    return sum(times * _of_rank(op, rank, spec) for rank, times in _kinds(spec))


def memory_of_all(op: Op, spec: OpSpec) -> int:
    """Return the bytes of all ranks' tensors if filled and verified in blocks, as in bench.

    Excludes a backend's own copies, which may double it.
    """
    return sum(times * _in_blocks(op, rank, spec) for rank, times in _kinds(spec))


def _kinds(spec: OpSpec) -> list[tuple[int, int]]:
    """Return representative ranks with the number of ranks that each represents."""
    if spec.sizes is not None or spec.splits is not None:
        return [(rank, 1) for rank in range(spec.group_size)]
    special = {rank for rank in (spec.root, spec.src, spec.dst) if rank is not None}
    others = [rank for rank in range(spec.group_size) if rank not in special]
    alike = [(others[0], len(others))] if others else []
    return [*((rank, 1) for rank in sorted(special)), *alike]


def _in_blocks(op: Op, rank: int, spec: OpSpec) -> int:
    """Return the bytes of this rank's buffers and of computing one period of their data."""
    itemsize, wide = DTYPES[spec.dtype].itemsize, _wide(spec)
    given = [op.cut(rank, piece, spec).numel for piece in range(op.pieces(rank, spec))]
    received = [] if op.is_in_place(spec) else _received(op, rank, spec)
    shared = op.in_place_slots(rank, spec) if spec.in_place else None
    saved = 0 if shared is None else received[shared[1]]
    largest = min(PERIODS[0], max([*given, *received, 0]))
    at_once = min(max(spec.group_size, 1), batch(largest))
    # In addition to the computation: the period and its bound, perhaps joined from two parts.
    blocks = largest * (COPIES * wide * at_once + 2 * (itemsize + wide))
    return (sum(given) + sum(received) - saved) * itemsize + blocks


def _of_rank(op: Op, rank: int, spec: OpSpec) -> int:
    itemsize = DTYPES[spec.dtype].itemsize
    given = [op.cut(rank, piece, spec).numel for piece in range(op.pieces(rank, spec))]
    received = _received(op, rank, spec)
    buffers = (sum(given) + sum(received)) * itemsize
    expected = sum(received) * itemsize
    largest = max([*given, *received, 0])
    at_once = min(max(spec.group_size, len(given), len(received)), batch(largest))
    return buffers + expected + COPIES * _wide(spec) * largest * at_once


def _wide(spec: OpSpec) -> int:
    """Return the bytes per element during computation."""
    return 16 if DTYPES[spec.dtype].kind == "complex" else 8


def _received(op: Op, rank: int, spec: OpSpec) -> list[int]:
    """Return the number of elements in each piece that the rank receives."""
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return [spec.numel]
    return [op.cut(source.ranks[0], source.piece, spec).numel for source in result]
