from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from distdemo import ops
from distdemo.demo.verify import verify
from distdemo.ops.buffers import Expected, expected, held_before
from distdemo.ops.spec import OpSpec


def only(op: str, spec: OpSpec) -> Expected:
    """What rank 0 should hold, of an op that leaves it one tensor."""
    pieces = expected(ops.REGISTRY[op], 0, spec)
    assert pieces is not None
    assert len(pieces) == 1
    return pieces[0]


def all_reduced(dtype: str, reduce_op: str, *rows: tuple[Any, ...]) -> Expected:
    spec = OpSpec("all_reduce", len(rows), dtype, (len(rows[0]),), reduce_op, values=rows)
    return only("all_reduce", spec)


@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("reduce_op", ["sum", "product", "min", "max"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_default_values_have_to_match_exactly(dtype: str, reduce_op: str, n: int) -> None:
    assert only("all_reduce", OpSpec("all_reduce", n, dtype, reduce_op=reduce_op)).bound is None


def test_fractions_and_large_sums_may_be_rounded() -> None:
    assert all_reduced("float32", "sum", (0.1,), (0.2,)).bound is not None
    assert all_reduced("float16", "sum", (2000.0,), (60.0,)).bound is not None
    assert all_reduced("bfloat16", "product", (17.0,), (17.0,)).bound is not None


def test_a_sum_whose_parts_cancel_is_not_taken_for_an_exact_one() -> None:
    # In some order 2048 + 1 is a partial sum, and float16 can't hold it.
    assert all_reduced("float16", "sum", (2048.0,), (1.0,), (-2048.0,)).bound is not None


def test_moving_and_comparing_never_round() -> None:
    row = (0.1, 1e-8)
    assert (
        only("broadcast", OpSpec("broadcast", 1, shape=(2,), root=0, values=(row,))).bound is None
    )
    assert all_reduced("float32", "min", row, row).bound is None
    assert all_reduced("int8", "sum", (100,), (100,)).bound is None


def test_integers_wrap_around_as_the_hardware_s_do() -> None:
    assert all_reduced("int8", "sum", (100,), (100,)).tensor.tolist() == [-56]
    assert all_reduced("uint8", "product", (20,), (20,)).tensor.tolist() == [144]
    assert all_reduced("int64", "sum", (2**63 - 1,), (1,)).tensor.tolist() == [-(2**63)]


# Not so small that a part of one would be below the smallest normal number of float16.
FRACTIONS = st.one_of(st.just(0.0), st.floats(0.0078125, 100, width=16)).flatmap(
    lambda number: st.sampled_from([number, -number])
)


@settings(deadline=None, max_examples=200)
@given(
    dtype=st.sampled_from(["float64", "float32", "float16", "bfloat16"]),
    reduce_op=st.sampled_from(["sum", "avg"]),
    parts=st.lists(FRACTIONS, min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_the_rounding_of_any_order_of_the_ranks_is_within_the_bound(
    dtype: str, reduce_op: str, parts: list[float], order: Any
) -> None:
    exact_type = getattr(torch, dtype)
    held = [torch.tensor([part], dtype=exact_type) for part in parts]
    wanted = all_reduced(dtype, reduce_op, *((tensor.item(),) for tensor in held))
    order.shuffle(held)
    total = reduce(operator.add, held)
    divided_first = reduce(operator.add, [tensor / len(held) for tensor in held])
    for got in (total / len(held), divided_first) if reduce_op == "avg" else (total,):
        assert verify([got], [wanted]).ok


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("n", range(2, 7))
@pytest.mark.parametrize("reduce_op", ["sum", "avg"])
def test_a_missing_contribution_is_never_within_the_bound(
    reduce_op: str, n: int, dtype: str
) -> None:
    op, spec = ops.REGISTRY["all_reduce"], OpSpec("all_reduce", n, dtype, reduce_op=reduce_op)
    held = [held_before(op, rank, spec)[0].double() for rank in range(n)]
    # Rank 0's ones and twos are a sixth in an average of 30, which bfloat16 rounds away itself.
    for missing in range(n) if reduce_op == "sum" else range(1, n):
        total = sum(held, start=torch.zeros(4)) - held[missing]
        got = (total / n if reduce_op == "avg" else total).to(getattr(torch, dtype))
        verified = verify([got], [only("all_reduce", spec)])
        assert verified.wrong == int((held[missing] != 0).sum())
