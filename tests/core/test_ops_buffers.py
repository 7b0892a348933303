"""The tensors of a run: what is held before, how buffers lie, and what should come of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from plain import SHOULD, Held
from strategies import FORMS, example, requests

from distdemo import ops
from distdemo.demo.verify import verify
from distdemo.dtypes import DTYPES, DType
from distdemo.ops.buffers import expected, expected_objects, held_before, make_buffers
from distdemo.ops.contract import Buffers, Form, Op
from distdemo.ops.spec import OpSpec

TENSORS = [each for each in FORMS if each[1].name != "objects" and not each[0].meets]


def as_stored(number: Any, dtype: DType) -> Any:
    """What a memory cell of this type holds of a number: integers wrap, the others are rounded."""
    if dtype.kind == "int":
        span = dtype.exact - dtype.lowest + 1
        return (number - dtype.lowest) % span + dtype.lowest
    if dtype.kind == "bool":
        return bool(number)
    exact = number if isinstance(number, complex) else float(number)
    return torch.tensor(exact, dtype=getattr(torch, dtype.name)).item()


def inputs(op: Op, spec: OpSpec) -> Held:
    """What every rank holds before: the elements of each piece, or the objects."""
    if spec.objects:
        return [held_before(op, rank, spec) for rank in range(spec.group_size)]
    return [
        [piece.reshape(-1).tolist() for piece in held_before(op, rank, spec)]
        for rank in range(spec.group_size)
    ]


def shapes_should(rank: int, spec: OpSpec, pieces: int) -> list[tuple[int, ...]]:
    """The shapes of what this rank gets: alike, but for uneven tensors and parts."""
    if spec.sizes is not None:
        return [(size, *spec.shape[1:]) for size in spec.sizes]
    if spec.splits is not None:
        return [(row[rank], *spec.shape[1:]) for row in spec.splits]
    return [spec.shape] * pieces


@settings(deadline=None, max_examples=120)
@given(requests())
def test_what_is_expected_is_what_plain_python_computes(request: tuple[Op, OpSpec]) -> None:
    op, spec = request
    held = inputs(op, spec)
    dtype = DTYPES[spec.dtype]
    if spec.objects:
        for rank in range(spec.group_size):
            assert expected_objects(op, rank, spec) == SHOULD[op.name](rank, held, spec)
        return
    for rank in range(spec.group_size):
        should = SHOULD[op.name](rank, held, spec)
        does = expected(op, rank, spec)
        if should is None or does is None:
            assert should is None
            assert does is None
            continue
        assert [piece.tensor.shape for piece in does] == shapes_should(rank, spec, len(should))
        assert all(piece.tensor.dtype == getattr(torch, spec.dtype) for piece in does)
        got = [piece.tensor.reshape(-1).tolist() for piece in does]
        assert got == [[as_stored(number, dtype) for number in piece] for piece in should]


@settings(deadline=None, max_examples=50)
@given(requests(own=True))
def test_given_values_are_what_the_ranks_hold(request: tuple[Op, OpSpec]) -> None:
    op, spec = request
    given_rows: Any = spec.values or [
        json.loads(text or "null") for text in spec.objects_json or ()
    ]
    assert given_rows
    for rank, pieces in enumerate(inputs(op, spec)):
        if op.name == "scatter":
            assert list(map(comparable, pieces)) in ([], list(map(comparable, given_rows)))
        elif spec.objects:
            assert pieces == [given_rows[rank]]
        else:  # one after the other they are the rank's row
            assert [number for piece in pieces for number in piece] == list(given_rows[rank])


def comparable(row: Any) -> Any:
    return list(row) if isinstance(row, tuple) else row


@pytest.mark.parametrize("name", ["all_reduce", "reduce", "reduce_scatter"])
def test_a_pre_multiplied_sum_multiplies_each_rank_s_part(name: str) -> None:
    op = ops.REGISTRY[name]
    for factor in (2.0, 0.5, -3.0, 0.1):
        spec = OpSpec(name, 3, shape=(2,), reduce_op="premul_sum", factor=factor, root=1)
        held = inputs(op, spec)
        for rank in range(3):
            should, does = SHOULD[name](rank, held, spec), expected(op, rank, spec)
            if should is None or does is None:
                assert should is does is None
                continue
            wanted = [as_stored(number, DTYPES["float32"]) for number in should[0]]
            assert does[0].tensor.tolist() == wanted
            assert (does[0].bound is None) == (factor == int(factor))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(("op", "form"), TENSORS, ids=lambda each: each.name)
def test_in_place_a_piece_given_and_one_got_are_one_memory(op: Op, form: Form, n: int) -> None:
    if n < op.smallest_world:
        pytest.skip("this op needs more ranks")
    apart, there = example(op, form, n), example(op, form, n, in_place=True)
    for rank in range(n):
        shared = op.overlay(rank, there)
        one, other = (make_buffers(op, rank, spec, "cpu") for spec in (apart, there))
        assert [each.tolist() for each in one.send] == [each.tolist() for each in other.send]
        for buffers in (one, other):
            wanted = buffers is other and shared is not None
            together = {
                (give, take)
                for give, sent in enumerate(buffers.send)
                for take, got in enumerate(buffers.recv)
                if sent.numel() and sent.data_ptr() == got.data_ptr()
            }
            in_place = {(0, 0)} if op.is_in_place(apart) else set()
            assert together == ({shared} if wanted else in_place)
            for joined, parts in (
                (buffers.send_joined, buffers.send),
                (buffers.recv_joined, buffers.recv),
            ):
                if joined is not None:
                    assert joined.tolist() == pytest.approx(
                        [number for part in parts for number in part.tolist()], nan_ok=True
                    )


# --------------------------------------------------------------------------------- the inputs


def test_fill_is_one_number_everywhere_or_each_rank_s_own() -> None:
    op = ops.REGISTRY["all_reduce"]
    assert inputs(op, OpSpec("all_reduce", 2, shape=(2,), fill=7)) == [[[7.0] * 2]] * 2
    assert inputs(op, OpSpec("all_reduce", 2, shape=(2,), fill="rank")) == [
        [[0.0] * 2],
        [[1.0] * 2],
    ]


@pytest.mark.parametrize("fill", [1, "rank", None])
@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_every_tensor_has_a_memory_of_its_own_whatever_fills_it(dtype: str, fill: Any) -> None:
    # Backends refuse a tensor that is one number looked at often.
    for name in ("broadcast", "all_to_all"):
        buffers = make_buffers(
            ops.REGISTRY[name], 1, OpSpec(name, 3, dtype, (2, 3), root=0, fill=fill), "cpu"
        )
        assert all(tensor.is_contiguous() for tensor in every_tensor(buffers))


@pytest.mark.parametrize("fill", [2**70, -(2**70)])
def test_a_whole_number_that_a_float_holds_can_fill_it_however_large(fill: int) -> None:
    # The command line accepts it, so no rank may stumble over it.
    spec = OpSpec("broadcast", 1, "float64", (2,), fill=fill)
    assert inputs(ops.REGISTRY["broadcast"], spec) == [[[float(fill)] * 2]]


@pytest.mark.parametrize("number", [0.0, 255.0, True, 2])
@pytest.mark.parametrize(
    "dtype", [n for n, d in DTYPES.items() if d.kind == "int" and d.exact > 200]
)
def test_a_whole_number_fills_whole_numbers_however_it_is_written(dtype: str, number: Any) -> None:
    # The command line accepts 255.0 for an int, and torch does not for each of its types.
    row = OpSpec("p2p", 2, dtype, (1,), src=0, dst=1, values=((number,), (number,)))
    fill = OpSpec("p2p", 2, dtype, (1,), src=0, dst=1, fill=number)
    assert inputs(ops.REGISTRY["p2p"], row)[0] == inputs(ops.REGISTRY["p2p"], fill)[0] == [[number]]


def test_in_a_group_the_default_values_are_those_of_the_world_s_ranks() -> None:
    op = ops.REGISTRY["all_gather"]
    assert inputs(op, OpSpec("all_gather", 2, shape=(2,), members=(1, 3))) == [
        [[10, 11]],
        [[30, 31]],
    ]
    filled = OpSpec("all_gather", 2, shape=(2,), members=(1, 3), fill="rank")
    assert inputs(op, filled) == [[[1, 1]], [[3, 3]]]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
def test_a_seed_mixes_the_values_the_same_way_each_time(dtype: str) -> None:
    op = ops.REGISTRY["all_gather"]
    one, same, other = (OpSpec("all_gather", 4, dtype, (8,), seed=seed) for seed in (1, 1, 2))
    assert inputs(op, one) == inputs(op, same)
    assert inputs(op, one) != inputs(op, other)
    assert inputs(op, one) != inputs(op, OpSpec("all_gather", 4, dtype, (8,)))


def test_with_a_seed_every_rank_has_the_largest_number_somewhere() -> None:
    # Counting has a blind spot there: the largest is always the last rank's.
    op, spec = ops.REGISTRY["all_reduce"], OpSpec("all_reduce", 4, shape=(64,), seed=7)
    columns = zip(*(pieces[0] for pieces in inputs(op, spec)), strict=True)
    assert {column.index(max(column)) for column in columns} == {0, 1, 2, 3}


# --------------------------------------------------------------------------------- the buffers


def every_tensor(buffers: Buffers) -> list[torch.Tensor]:
    return [*buffers.send, *buffers.recv]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(("op", "form"), TENSORS, ids=lambda each: each.name)
def test_what_lies_in_a_single_tensor_are_its_parts_in_their_order(
    op: Op, form: Any, n: int
) -> None:
    if n < op.smallest_world:
        return
    spec = example(op, form, n, **({"shape": (2, 3)} if "plits" not in form.flags else {}))
    buffers = make_buffers(op, n - 1, spec, "cpu")
    single = spec.variant == "single"
    assert (buffers.send_joined is not None) == (single and op.list_before)
    assert (buffers.recv_joined is not None) == (single and op.list_after)
    for whole, parts in (
        (buffers.send_joined, buffers.send),
        (buffers.recv_joined, buffers.recv),
    ):
        if whole is not None:
            assert whole.is_contiguous()
            assert torch.equal(whole, torch.cat(parts)) or whole.isnan().all()
            end = whole.data_ptr()
            for part in parts:
                assert part.numel() == 0 or part.data_ptr() == end
                end += part.nbytes


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_separate_buffers_are_as_many_as_the_results_and_share_no_memory(dtype: str) -> None:
    buffers = make_buffers(ops.REGISTRY["all_gather"], 1, OpSpec("all_gather", 3, dtype), "cpu")
    every = [*buffers.send, *buffers.recv]
    assert len(buffers.recv) == 3
    assert len({tensor.data_ptr() for tensor in every}) == 4
    assert {(tensor.dtype, tensor.shape) for tensor in every} == {(getattr(torch, dtype), (4,))}


@pytest.mark.parametrize("numel", [1, 28, 128, 300])
@pytest.mark.parametrize("n", [1, 6])
@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"bool"}))
def test_no_default_value_looks_like_a_buffer_that_was_never_written(
    dtype: str, n: int, numel: int
) -> None:
    op, spec = ops.REGISTRY["all_gather"], OpSpec("all_gather", n, dtype, (numel,))
    unwritten = make_buffers(op, 0, spec, "cpu").recv
    wanted = expected(op, 0, spec)
    assert wanted is not None
    assert verify(unwritten, wanted).wrong == n * numel
