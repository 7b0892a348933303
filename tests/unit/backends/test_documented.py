"""What the documentation promises; and that nothing is made up where it says nothing."""

from __future__ import annotations

import pytest
from strategies import FORMS, example

from distdemo import backends, ops
from distdemo.backends.documented import documented
from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS


def said(
    backend: str, name: str, dtype: str = "float32", reduce_op: str | None = None
) -> bool | None:
    """Of the usual form of an op."""
    op = ops.REGISTRY[name]
    return documented(
        backend, op, example(op, op.all_forms[0], 2, dtype=dtype, reduce_op=reduce_op)
    )


@pytest.mark.parametrize("backend", ["gloo", "nccl", "xccl", "ucc"])
@pytest.mark.parametrize("name", [name for name, op in ops.REGISTRY.items() if not op.meets])
def test_every_operation_works_with_floats(backend: str, name: str) -> None:
    takes = "reduce_op" in ops.REGISTRY[name].takes
    assert said(backend, name, reduce_op="sum" if takes else None) is True


def test_mpi_has_no_reduce_scatter_whatever_the_form_and_the_dtype() -> None:
    for op, form in FORMS:
        if op.name == "reduce_scatter":
            assert documented("mpi@torch", op, example(op, form, 2)) is False
            assert documented("mpi@torch", op, example(op, form, 2, dtype="int8")) is False
    assert said("mpi@torch", "all_reduce", reduce_op="sum") is True
    assert said("mpi@torch", "all_gather") is True


def test_of_our_own_mpi_it_knows_nothing() -> None:
    assert said("mpi", "all_reduce", reduce_op="sum") is None
    assert said("mpi", "reduce_scatter", reduce_op="sum") is None


@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "float32"])
def test_of_other_dtypes_it_says_nothing(dtype: str) -> None:
    assert said("gloo", "broadcast", dtype) is None
    assert said("gloo", "all_reduce", dtype, "sum") is None


@pytest.mark.parametrize(
    ("reduce_op", "where"),
    [("avg", {"nccl"}), ("premul_sum", {"nccl", "xccl"}), ("band", None), ("bxor", None)],
)
def test_reduce_ops_that_are_not_everyone_s(reduce_op: str, where: set[str] | None) -> None:
    for name in backends.REGISTRY:
        backend = "mpi@torch" if name == "mpi" else name
        found = said(backend, "all_reduce", "int32", reduce_op)
        if where is None:
            assert found is (False if backend == "nccl" else None)
        else:
            assert found is (None if backend in where else False)


@pytest.mark.parametrize("reduce_op", ["min", "max", "product"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_only_added(reduce_op: str, dtype: str) -> None:
    assert said("gloo", "all_reduce", dtype, reduce_op) is False
    assert said("gloo", "all_reduce", dtype, "sum") is None


def test_nothing_is_promised_that_has_no_meaning() -> None:
    for reduce_op, reduction in REDUCTIONS.items():
        for dtype in DTYPES.values():
            if dtype.kind not in reduction.kinds:
                assert said("gloo", "all_reduce", dtype.name, reduce_op) is not True
