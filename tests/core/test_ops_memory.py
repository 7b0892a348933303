"""Compare estimates of a run's memory with what its tensors take."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product
from typing import Any

import pytest
import torch
from strategies import FORMS, example
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from distdemo import ops
from distdemo.bench.rank import check, refill
from distdemo.ops.buffers import expected, laid_out, make_buffers, verify
from distdemo.ops.contract import Form, Op
from distdemo.ops.spec import OpSpec
from distdemo.ops.values import PERIODS, footprint

NUMEL = 1024  # large enough for the tensors to outweigh everything that is not counted
TENSORS = [(op, form) for op, form in FORMS if form.name != "objects" and not op.is_barrier]


def spec_of(op: Op, form: Form, n: int, dtype: str, **more: Any) -> OpSpec:
    """Return a large request for this form; some of its uneven tensors or parts are empty."""
    spec = example(op, form, n, dtype=dtype, **more)
    if spec.sizes is not None:
        sizes = tuple(size * NUMEL // 4 for size in spec.sizes)
        return replace(spec, sizes=sizes, shape=(max(sizes),))
    if spec.splits is not None:
        rows = tuple(tuple(part * NUMEL // 4 for part in row) for row in spec.splits)
        return replace(spec, splits=rows, shape=(max(map(sum, rows)),))
    return replace(spec, shape=(NUMEL,))


class Peak(TorchDispatchMode):
    """Mode that records the peak of the bytes of all tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                self._alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self._alive = {k: entry for k, entry in self._alive.items() if not entry[0].expired()}
        self.bytes = max(self.bytes, sum(size for _, size in self._alive.values()))
        return result


def live_through(op: Op, rank: int, spec: OpSpec) -> int:
    """Return the peak of one rank's bytes, from its inputs to its verification."""
    with Peak() as peak:
        buffers = make_buffers(op, rank, spec, "cpu")
        wanted = expected(op, rank, spec)
        for got, should in zip(buffers.recv, wanted or (), strict=False):
            got.copy_(should.tensor)
        assert verify(buffers.recv, wanted).ok
    return int(peak.bytes)


def covers_the_worst_moment_of_verifying_the_result() -> None:
    # Else a run that was let through would die of memory halfway.
    asked = [(op, spec_of(op, form, 3, "bfloat16")) for op, form in TENSORS]
    for name, reduce_op in product(("all_reduce", "reduce_scatter"), ("sum", "avg", "premul_sum")):
        op = ops.REGISTRY[name]
        asked.append((op, spec_of(op, op.all_forms[0], 3, "complex64", reduce_op=reduce_op)))
    for op, spec in asked:
        total = sum(live_through(op, rank, spec) for rank in range(spec.group_size))
        slack = 64 * spec.group_size  # scalars that torch makes on the way
        assert total <= footprint(op, spec) + slack, spec


LARGE = 3 * PERIODS[0] // 2


def covers_a_measurement_at_its_worst_and_little_more() -> None:
    for (op, form), dtype in zip(TENSORS, cycle(("float32", "complex64")), strict=False):
        more = {"reduce_op": "avg"} if "reduce_op" in op.takes else {}
        spec = replace(example(op, form, 3, dtype=dtype, **more), shape=(LARGE,))
        total = 0
        for rank in range(3):
            with Peak() as peak:
                buffers = laid_out(op, rank, spec, "cpu")
                refill(op, rank, spec, buffers)
                check(op, rank, spec, buffers)
            total += peak.bytes
        assert total <= footprint(op, spec, PERIODS[0]) + 1024 * 3, spec
        assert footprint(op, spec, PERIODS[0]) - total <= 3 * (32 << 20), spec


@pytest.mark.usefixtures("compiler")  # a dispatch mode loads it
def test_estimates_cover_what_is_taken() -> None:
    covers_the_worst_moment_of_verifying_the_result()
    covers_a_measurement_at_its_worst_and_little_more()
