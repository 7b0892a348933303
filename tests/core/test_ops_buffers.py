"""Check the tensors of a run: its inputs, the layout of its buffers, and its expected results."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from hypothesis import given, settings
from plain import Held, facts_of
from strategies import FORMS, example, requests

from distdemo import ops
from distdemo.dtypes import DTYPES, DType
from distdemo.ops.buffers import expected, expected_objects, held_before, make_buffers, verify
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

TENSORS = [(op, form) for op, form in FORMS if form.name != "objects" and not op.is_barrier]


def as_stored(number: Any, dtype: DType) -> Any:
    """Return a number as this dtype stores it: integers wrap, the others are rounded."""
    if dtype.kind == "int":
        span = dtype.exact - dtype.lowest + 1
        return (number - dtype.lowest) % span + dtype.lowest
    if dtype.kind == "bool":
        return bool(number)
    exact = number if isinstance(number, complex) else float(number)
    return torch.tensor(exact, dtype=getattr(torch, dtype.name)).item()


def inputs(op: Op, spec: OpSpec) -> Held:
    """Return every rank's inputs: the elements of its pieces, or its objects."""
    if spec.objects:
        return [held_before(op, rank, spec) for rank in range(spec.group_size)]
    return [
        [piece.reshape(-1).tolist() for piece in held_before(op, rank, spec)]
        for rank in range(spec.group_size)
    ]


def shapes_should(rank: int, spec: OpSpec, pieces: int) -> list[tuple[int, ...]]:
    """Return the shapes of this rank's results: equal, except for uneven tensors and parts."""
    if spec.sizes is not None:
        return [(size, *spec.shape[1:]) for size in spec.sizes]
    if spec.splits is not None:
        return [(row[rank], *spec.shape[1:]) for row in spec.splits]
    return [spec.shape] * pieces


@settings(deadline=None, max_examples=50)
@given(requests())
def test_what_is_expected_is_what_plain_python_computes(request: tuple[Op, OpSpec]) -> None:
    op, spec = request
    before = inputs(op, spec)
    dtype = DTYPES[spec.dtype]
    if spec.objects:
        for rank in range(spec.group_size):
            assert expected_objects(op, rank, spec) == facts_of(op.name).result(rank, before, spec)
        return
    for rank in range(spec.group_size):
        should = facts_of(op.name).result(rank, before, spec)
        does = expected(op, rank, spec)
        if should is None or does is None:
            assert should is None
            assert does is None
            continue
        assert [piece.tensor.shape for piece in does] == shapes_should(rank, spec, len(should))
        assert all(piece.tensor.dtype == getattr(torch, spec.dtype) for piece in does)
        got = [piece.tensor.reshape(-1).tolist() for piece in does]
        assert got == [[as_stored(number, dtype) for number in piece] for piece in should]


# --------------------------------------------------------------------------------- the inputs


def held_by(name: str, n: int = 2, **fields: Any) -> Held:
    fields = {"shape": (2,), **fields}
    return inputs(ops.REGISTRY[name], OpSpec(name, n, **fields))


def test_the_user_s_numbers_are_held_as_given() -> None:
    # Whole numbers may be beyond 64 bits, and torch takes no 255.0 for each of its types.
    for large in (2**70, -(2**70)):
        row = (large,) * 2
        assert held_by("all_reduce", 1, dtype="float64", values=(row,)) == [[[float(large)] * 2]]
    whole = [name for name, dtype in DTYPES.items() if dtype.kind == "int" and dtype.exact > 200]
    for dtype, number in product(whole, (0.0, 255.0, True, 2)):
        before = held_by("p2p", dtype=dtype, shape=(1,), values=((number,), (number,)))
        assert before[0] == [[number]]


def test_a_seed_mixes_the_values_the_same_way_each_time() -> None:
    for dtype in ("float32", "int8", "bool"):
        counted, one, same, other = (
            held_by("all_gather", 4, dtype=dtype, shape=(8,), seed=seed) for seed in (None, 1, 1, 2)
        )
        assert one == same
        assert other != one != counted
    # Counting has a blind spot: the largest number is always the last rank's.
    before = held_by("all_reduce", 4, shape=(64,), seed=7)
    columns = zip(*(pieces[0] for pieces in before), strict=True)
    assert {column.index(max(column)) for column in columns} == {0, 1, 2, 3}


# --------------------------------------------------------------------------------- the buffers


def test_in_place_a_piece_given_and_one_got_are_one_memory() -> None:
    for (op, form), n in product(TENSORS, (1, 3)):
        if n < op.smallest_world:
            continue
        apart, there = example(op, form, n), example(op, form, n, in_place=True)
        for rank in range(n):
            shared = op.in_place_slots(rank, there)
            one, other = (make_buffers(op, rank, spec, "cpu") for spec in (apart, there))
            for buffers, expected_pair in ((one, None), (other, shared)):
                together = {
                    (give, take)
                    for give, sent in enumerate(buffers.send)
                    for take, got in enumerate(buffers.recv)
                    if sent.numel() and sent.data_ptr() == got.data_ptr()
                }
                in_place = {(0, 0)} if op.is_in_place(apart) else set()
                assert together == ({expected_pair} if expected_pair else in_place), (op, form)


def test_no_default_value_looks_like_a_buffer_that_was_never_written() -> None:
    op = ops.REGISTRY["all_gather"]
    for dtype, n, numel in product(set(DTYPES) - {"bool"}, (1, 6), (1, 300)):
        spec = OpSpec("all_gather", n, dtype, (numel,))
        wanted = expected(op, 0, spec)
        assert wanted is not None
        assert verify(make_buffers(op, 0, spec, "cpu").recv, wanted).wrong == n * numel, spec
