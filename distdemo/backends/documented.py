"""What PyTorch's documentation says that a backend can do with CPU (or its own) tensors.

Sources, of PyTorch 2.13: the table of backends in docs/source/distributed.md, and the docstring of
``ReduceOp``. Where they say nothing, nothing is made up: dtypes are not documented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.dtypes import DTYPES

if TYPE_CHECKING:
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec

NOT_THERE = {"mpi@torch": frozenset({"reduce_scatter"})}
"""Crosses in the table's columns of the devices that distdemo uses."""


def documented(backend: str, op: Op, spec: OpSpec) -> bool | None:
    """Whether it works by the documentation; None if that is silent.

    Args:
        backend: as its map is called; torch's documentation knows nothing of our own ``mpi``.
        op: what to run.
        spec: its settings.
    """
    if backend == "mpi":
        return None
    if op.name in NOT_THERE.get(backend, frozenset()):
        return False
    if spec.reduce_op is not None:
        return _reduction(backend, spec.reduce_op, spec.dtype)
    return True if spec.dtype == "float32" else None


def _reduction(backend: str, reduce_op: str, dtype: str) -> bool | None:
    if reduce_op == "avg" and backend != "nccl":
        return False
    if reduce_op == "premul_sum" and backend not in ("nccl", "xccl"):
        return False
    if reduce_op in ("band", "bor", "bxor"):
        return False if backend == "nccl" else None
    if DTYPES[dtype].kind == "complex" and reduce_op in ("max", "min", "product"):
        return False
    return True if dtype == "float32" and reduce_op in ("sum", "max", "min", "product") else None
