"""Check default values and dtypes, and the expected results of reductions with their bounds."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from functools import reduce
from itertools import pairwise, product
from operator import and_
from typing import Any

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from distdemo import ops
from distdemo.dtypes import DTYPES
from distdemo.ops.buffers import Expected, expected, verify
from distdemo.ops.reduction import PREMUL_FACTOR, REDUCTIONS
from distdemo.ops.spec import OpSpec
from distdemo.ops.values import element, value_rule

SIZES = (1, 2, 5, 17, 128)
ALL_REDUCE = ops.REGISTRY["all_reduce"]
FLOATS = ("float64", "float32", "float16", "bfloat16")


def spec(
    dtype: str = "float32", n: int = 4, shape: tuple[int, ...] = (4,), reduce_op: str | None = "sum"
) -> OpSpec:
    return OpSpec("all_reduce", n, dtype, shape, reduce_op)


def rows(spec: OpSpec) -> list[list[Any]]:
    """Return every rank's default values."""
    rule = value_rule(ALL_REDUCE, spec)
    return [
        [element(rule, label, position) for position in range(spec.numel)]
        for label in range(spec.group_size)
    ]


def columns(spec: OpSpec) -> list[tuple[Any, ...]]:
    return list(zip(*rows(spec), strict=True))


def test_every_element_differs_by_rank_and_by_position() -> None:
    for n, numel in product((1, 2, 64), (1, 10, 11, 101)):
        every = [number for row in rows(spec(n=n, shape=(numel,))) for number in row]
        assert len(set(every)) == n * numel


@settings(deadline=None, max_examples=60)
@given(
    dtype=st.sampled_from(sorted(DTYPES)),
    reduce_op=st.sampled_from([None, *REDUCTIONS]),
    n=st.integers(1, 300),
    numel=st.integers(1, 200),
    seed=st.one_of(st.none(), st.integers(0, 2**31 - 2)),
)
def test_every_value_is_whole_not_negative_and_held_exactly(
    dtype: str, reduce_op: str | None, n: int, numel: int, seed: int | None
) -> None:
    assume(reduce_op is None or DTYPES[dtype].kind in REDUCTIONS[reduce_op].kinds)
    rule = value_rule(ALL_REDUCE, replace(spec(dtype, n, (numel,), reduce_op), seed=seed))
    for label in {0, n // 2, n - 1}:
        numbers = [element(rule, label, position) for position in range(numel)]
        assert all(number == int(number) and number >= 0 for number in numbers)
        assert torch.tensor(numbers, dtype=getattr(torch, dtype)).tolist() == numbers
        assert element(rule, label, torch.arange(numel)).tolist() == numbers


def test_the_sum_over_all_ranks_is_exact_in_the_dtype() -> None:
    dtypes = ("float64", "float16", "bfloat16", "int8", "int32")
    for dtype, n, numel, seed in product(dtypes, SIZES, (1, 500), (None, 7)):
        if n > DTYPES[dtype].exact // 2:
            continue  # even ones and zeros would add up to more
        rule = value_rule(ALL_REDUCE, replace(spec(dtype, n, (numel,)), seed=seed))
        elements = element(rule, torch.arange(n).unsqueeze(1), torch.arange(numel))
        assert elements.sum(dim=0).max() <= DTYPES[dtype].exact, (dtype, n, numel, seed)
    for dtype, n in product(("float64", "float16", "bfloat16"), (2, 8)):
        asked = spec(dtype, n, reduce_op="premul_sum")
        assert max(map(sum, columns(asked))) * PREMUL_FACTOR <= DTYPES[dtype].exact, asked


def test_no_reduction_over_all_ranks_comes_out_the_same_whatever_is_missing() -> None:
    for (name, dtype), n in product(DTYPES.items(), SIZES):
        if dtype.kind == "bool":
            continue
        products = list(map(math.prod, columns(spec(name, n, reduce_op="product"))))
        assert min(products) >= 1, (name, n)
        assert 2 <= max(products) <= dtype.exact, (name, n)
        if dtype.kind == "int":  # of an AND some bits are left, and others are not
            ands = {reduce(and_, column) for column in columns(spec(name, n, reduce_op="band"))}
            assert not ands & {0, 127}, (name, n)
    ways = {"band": all, "min": all, "product": all, "bor": any, "max": any}
    for (reduce_op, combine), n in product(ways.items(), (2, 3, 16)):
        results = {combine(column) for column in columns(spec("bool", n, reduce_op=reduce_op))}
        assert results == {True, False}, (reduce_op, n)


def test_wrapped_values_keep_neighbouring_ranks_and_shifted_blocks_apart() -> None:
    for dtype in ("float16", "bfloat16", "int8", "uint8"):
        for n, numel in product((2, 17), (4, 200, 2000)):
            for left, right in pairwise(rows(spec(dtype, n, (numel,)))):
                assert all(mine != other for mine, other in zip(left, right, strict=True)), dtype
        # Chunks and buffers have lengths that are powers of two; the wrap must not be one.
        row = rows(spec(dtype, 4, (2000,)))[1]
        for shift in (1 << power for power in range(10)):
            assert all(here != there for here, there in zip(row, row[shift:], strict=False)), shift


# ------------------------------------------------------------------------------- bounds


def only(op: str, spec: OpSpec) -> Expected:
    """Return the expected result of rank 0, which is one tensor."""
    pieces = expected(ops.REGISTRY[op], 0, spec)
    assert pieces is not None
    assert len(pieces) == 1
    return pieces[0]


def all_reduced(dtype: str, reduce_op: str, *rows: tuple[Any, ...]) -> Expected:
    spec = OpSpec("all_reduce", len(rows), dtype, (len(rows[0]),), reduce_op, values=rows)
    return only("all_reduce", spec)


def test_only_a_result_that_may_round_has_a_bound() -> None:
    row = (0.1, 1e-8)
    for dtype, reduce_op, rows, rounds in (
        ("float32", "sum", ((0.1,), (0.2,)), True),
        ("float16", "sum", ((2000.0,), (60.0,)), True),
        ("bfloat16", "product", ((17.0,), (17.0,)), True),
        # In some order 2048 + 1 is a partial sum, and float16 can't hold it.
        ("float16", "sum", ((2048.0,), (1.0,), (-2048.0,)), True),
        ("float32", "min", (row, row), False),
        ("int8", "sum", ((100,), (100,)), False),
    ):
        assert (all_reduced(dtype, reduce_op, *rows).bound is not None) == rounds, rows
    assert all_reduced("int64", "sum", (2**63 - 1,), (1,)).tensor.tolist() == [-(2**63)]
    for dtype, reduce_op in product(FLOATS, ("sum", "product", "min")):
        default = OpSpec("all_reduce", 6, dtype, reduce_op=reduce_op)
        assert only("all_reduce", default).bound is None, default


# Not so small that a part of one would be below the smallest normal number of float16.
FRACTIONS = st.one_of(st.just(0.0), st.floats(0.0078125, 100, width=16)).flatmap(
    lambda number: st.sampled_from([number, -number])
)


@settings(deadline=None, max_examples=60)
@given(
    dtype=st.sampled_from(FLOATS),
    reduce_op=st.sampled_from(["sum", "avg"]),
    parts=st.lists(FRACTIONS, min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_the_rounding_of_any_order_of_the_ranks_is_within_the_bound(
    dtype: str, reduce_op: str, parts: list[float], order: Any
) -> None:
    exact_type = getattr(torch, dtype)
    tensors = [torch.tensor([part], dtype=exact_type) for part in parts]
    wanted = all_reduced(dtype, reduce_op, *((tensor.item(),) for tensor in tensors))
    order.shuffle(tensors)
    total = reduce(operator.add, tensors)
    divided_first = reduce(operator.add, [tensor / len(tensors) for tensor in tensors])
    for got in (total / len(tensors), divided_first) if reduce_op == "avg" else (total,):
        assert verify([got], [wanted]).ok


# ------------------------------------------------------------------------------- dtypes


def test_the_table_of_dtypes_agrees_with_torch() -> None:
    for dtype in DTYPES.values():
        theirs = getattr(torch, dtype.name)
        assert torch.empty((), dtype=theirs).element_size() == dtype.itemsize
        if dtype.kind == "int":
            whole = torch.iinfo(theirs)
            assert (dtype.lowest, dtype.exact, dtype.epsilon) == (whole.min, whole.max, 0)
        elif dtype.kind != "bool":
            limits = torch.finfo(theirs)
            assert dtype.epsilon == limits.eps
            numbers = torch.tensor([dtype.exact - 1, dtype.exact, dtype.exact + 1])
            kept = numbers.to(theirs).real.double().long() == numbers
            assert kept.tolist() == [True, True, False], dtype.name
