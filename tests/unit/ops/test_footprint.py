from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from distdemo import ops
from distdemo.model import OpSpec
from distdemo.ops.buffers import expected, make_buffers
from distdemo.ops.contract import Op
from distdemo.ops.footprint import footprint
from distdemo.programs.verify import verify

OPS = list(ops.REGISTRY.values())
NUMEL = 4096  # large enough for the tensors to outweigh everything that is not counted


def spec_of(op: Op, n: int, dtype: str, **more: Any) -> OpSpec:
    if "reduce_op" in op.takes:
        more.setdefault("reduce_op", "sum")
    if "root" in op.takes:
        more["root"] = n - 1
    if "pattern" in op.takes:
        more |= {"src": 0, "dst": 1, "pattern": "pair"}
    return OpSpec(op.name, n, dtype, (NUMEL,), **more)


class Peak(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive at once."""

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
    """The most bytes that one rank's tensors take from its inputs to its verification."""
    with Peak() as peak:
        buffers = make_buffers(op, rank, spec, "cpu")
        wanted = expected(op, rank, spec)
        for got, should in zip(buffers.recv, wanted or (), strict=False):
            got.copy_(should.tensor)
        assert verify(buffers.recv, wanted).ok
    return int(peak.bytes)


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_it_covers_the_buffers_of_all_ranks(op: Op, n: int) -> None:
    spec = spec_of(op, n, "float32")
    total = 0
    for rank in range(n):
        buffers = make_buffers(op, rank, spec, "cpu")
        distinct = {tensor.data_ptr(): tensor for tensor in [*buffers.send, *buffers.recv]}
        total += sum(tensor.nbytes for tensor in distinct.values())
    assert footprint(op, spec) >= total


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int64"])
@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_it_covers_the_worst_moment_of_verifying_the_result(op: Op, n: int, dtype: str) -> None:
    # Else a run that was let through would die of memory halfway.
    if op.name == "gather" and dtype.startswith("complex"):
        pytest.skip("no backend gathers these")
    spec = spec_of(op, n, dtype)
    slack = 64 * n  # scalars that torch makes on the way
    total = sum(live_through(op, rank, spec) for rank in range(n))
    assert total <= footprint(op, spec) + slack


def test_it_covers_an_average_too() -> None:
    op = ops.REGISTRY["all_reduce"]
    spec = spec_of(op, 8, "float32", reduce_op="avg")
    total = sum(live_through(op, rank, spec) for rank in range(8))
    assert total <= footprint(op, spec) + 64 * 8


def test_it_grows_with_the_pieces_that_every_rank_gets() -> None:
    op = ops.REGISTRY["all_gather"]
    small, large = (footprint(op, spec_of(op, n, "float32")) for n in (8, 16))
    assert large > 2 * small
