from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from strategies import FORMS, example, name_of, requests

from distdemo import ops
from distdemo.demo.explain import RANKS, SHOWN, UNPICKLING, explain
from distdemo.demo.holdings import Holding, Piece, Thing
from distdemo.dtypes import DTYPES
from distdemo.ops.buffers import expected, expected_objects, held_before
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

PAIR: dict[str, Any] = {"src": 2, "dst": 0, "pattern": "pair"}


def numbers(holding: Holding) -> list[Any] | None:
    """The first numbers of each piece, or its object."""
    if holding.undefined:
        return None
    return [list(each.head) if isinstance(each, Piece) else each.value for each in holding.pieces]


def run_before(op: Op, rank: int, spec: OpSpec) -> list[Any]:
    held = held_before(op, rank, spec)
    return held if spec.objects else [tensor.flatten()[:SHOWN].tolist() for tensor in held]


def run_after(op: Op, rank: int, spec: OpSpec) -> list[Any] | None:
    if spec.objects:
        return expected_objects(op, rank, spec)
    wanted = expected(op, rank, spec)
    return wanted and [piece.tensor.flatten()[:SHOWN].tolist() for piece in wanted]


def assert_shows_what_a_run_would_hold(spec: OpSpec) -> None:
    op = ops.REGISTRY[spec.op]
    drawn = explain(op, spec)
    assert drawn.ranks == (spec.members or tuple(range(spec.group_size)))
    assert len(drawn.before) == len(drawn.after) == spec.group_size
    for rank in range(spec.group_size):
        assert numbers(drawn.before[rank]) == run_before(op, rank, spec)
        assert numbers(drawn.after[rank]) == run_after(op, rank, spec)


@settings(deadline=None, max_examples=300)
@given(requests())
def test_the_picture_shows_the_numbers_of_a_run(request: tuple[Op, OpSpec]) -> None:
    _, spec = request
    # Averages and fractions are not rounded to the dtype in a picture.
    rounded = spec.values is not None and DTYPES[spec.dtype].kind in ("float", "complex")
    assume(spec.reduce_op != "avg" and not (rounded and spec.reduce_op))
    assert_shows_what_a_run_would_hold(spec)


@pytest.mark.parametrize(
    "spec",
    [
        OpSpec("p2p", 3, **PAIR),
        OpSpec("all_reduce", 3, reduce_op="sum", fill="rank"),
        OpSpec("all_reduce", 2, reduce_op="sum", fill="rank", members=(1, 3)),
        OpSpec("all_reduce", 2, reduce_op="premul_sum", factor=3.0),
        OpSpec("broadcast", 2, shape=(2,), root=1, values=(None, (5.0, -6.0))),
        OpSpec("all_reduce", 2, "int8", (2,), "sum", fill=100),
        OpSpec("all_reduce", 2, "uint8", (1,), "product", values=((20,), (20,))),
    ],
    ids=[
        "pair",
        "fill-rank",
        "fill-rank-of-a-group",
        "premul",
        "values-of-the-root",
        "wraps-in-int8",
        "wraps-in-uint8",
    ],
)
def test_the_picture_shows_the_user_s_own_numbers_as_a_run_would(spec: OpSpec) -> None:
    assert_shows_what_a_run_would_hold(spec)


def test_an_average_is_shown() -> None:
    drawn = explain(ops.REGISTRY["all_reduce"], OpSpec("all_reduce", 4, reduce_op="avg"))
    assert numbers(drawn.after[0]) == [[15, 16, 17, 18]]


ALL_TO_ALL = {(source, target) for source in range(3) for target in range(3) if source != target}
EDGES: dict[str, tuple[dict[str, Any], set[tuple[int, int]]]] = {
    "broadcast": ({"root": 1}, {(1, 0), (1, 2)}),
    "reduce": ({"root": 1, "reduce_op": "sum"}, {(0, 1), (2, 1)}),
    "all_reduce": ({"reduce_op": "sum"}, ALL_TO_ALL),
    "scatter": ({"root": 1}, {(1, 0), (1, 2)}),
    "gather": ({"root": 1}, {(0, 1), (2, 1)}),
    "all_gather": ({}, ALL_TO_ALL),
    "reduce_scatter": ({"reduce_op": "sum"}, ALL_TO_ALL),
    "all_to_all": ({}, ALL_TO_ALL),
    "barrier": ({"shape": ()}, ALL_TO_ALL),
    "p2p": ({"pattern": "ring"}, {(0, 1), (1, 2), (2, 0)}),
}


@pytest.mark.parametrize("name", ops.REGISTRY)
def test_the_arrows_go_from_who_gives_to_who_gets(name: str) -> None:
    more, edges = EDGES[name]
    assert explain(ops.REGISTRY[name], OpSpec(name, 3, **more)).edges == edges


@pytest.mark.parametrize(("op", "form"), FORMS, ids=lambda each: each.name)
def test_every_form_has_arrows_and_none_from_a_rank_to_itself(op: Op, form: Any) -> None:
    edges = explain(op, example(op, form, 3)).edges
    assert edges
    assert all(giver != getter for giver, getter in edges)


def test_in_a_group_the_ranks_and_arrows_are_the_world_s() -> None:
    spec = OpSpec("broadcast", 3, root=1, members=(0, 4, 7))
    drawn = explain(ops.REGISTRY["broadcast"], spec)
    assert drawn.ranks == (0, 4, 7)
    assert drawn.edges == {(4, 0), (4, 7)}
    assert {piece.source for holding in drawn.after for piece in holding.pieces} == {4}


def test_the_arrows_of_an_exchange_go_to_both_neighbours() -> None:
    drawn = explain(ops.REGISTRY["p2p"], OpSpec("p2p", 4, pattern="exchange"))
    assert drawn.edges == {(r, (r + step) % 4) for r in range(4) for step in (1, 3)}


def test_the_arrow_of_a_pair_goes_from_src_to_dst_alone() -> None:
    assert explain(ops.REGISTRY["p2p"], OpSpec("p2p", 4, **PAIR)).edges == {(2, 0)}


def test_with_one_rank_nothing_moves() -> None:
    assert explain(ops.REGISTRY["all_reduce"], OpSpec("all_reduce", 1)).edges == frozenset()


def test_of_a_large_request_a_few_ranks_and_elements_are_drawn_but_the_costs_are_its_own() -> None:
    spec = OpSpec("all_gather", 64, shape=(1000, 10))
    drawn = explain(ops.REGISTRY["all_gather"], spec)
    assert len(drawn.before) == RANKS
    (piece,) = drawn.before[0].pieces
    assert isinstance(piece, Piece)
    assert piece.shape == (SHOWN,)
    assert drawn.traffic.payload_bytes == 64 * 10000 * 4
    assert drawn.spec == spec


def test_a_root_far_up_stays_in_the_picture() -> None:
    drawn = explain(ops.REGISTRY["reduce"], OpSpec("reduce", 64, root=20, reduce_op="sum"))
    assert drawn.ranks == (*range(RANKS), 20)
    assert numbers(drawn.after[-1]) is not None
    assert (0, 20) in drawn.edges


@pytest.mark.parametrize("shape", [(1000,), (50, 7), ()])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize(
    "name", ["all_reduce", "all_gather", "scatter", "reduce_scatter", "all_to_all"]
)
def test_the_part_that_is_drawn_of_a_large_request_shows_its_numbers(
    name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    op = ops.REGISTRY[name]
    reduce_op = "sum" if "reduce_op" in op.takes else None
    root = 20 if "root" in op.takes else None
    spec = OpSpec(name, 64, dtype, shape, reduce_op, root)
    drawn = explain(op, spec)
    for rank, holding in zip(drawn.ranks, drawn.after, strict=True):
        wanted = expected(op, rank, spec)
        assert wanted is not None
        assert numbers(holding) == [p.tensor.reshape(-1)[:SHOWN].tolist() for p in wanted]


def test_the_call_names_the_reduce_op() -> None:
    drawn = explain(ops.REGISTRY["all_reduce"], OpSpec("all_reduce", 2, reduce_op="max"))
    assert "ReduceOp.MAX" in drawn.words.call


@pytest.mark.parametrize("spec", [example(*each, 3) for each in FORMS], ids=name_of)
def test_the_words_are_those_of_the_form(spec: OpSpec) -> None:
    op = ops.REGISTRY[spec.op]
    form, words = op.form(spec), explain(op, spec).words
    usual = form == op.all_forms[0]
    assert words.summary == (op.words.summary if usual else form.summary)
    assert words.call.startswith("dist.")
    assert usual or words.call == f"dist.{form.calls}"
    assert (UNPICKLING in words.mistake) == spec.objects


def test_objects_are_drawn_with_the_bytes_of_their_pickles() -> None:
    import pickle

    texts = ('{"a": [1, {"b": null}]}', '"text"')
    spec = OpSpec("all_gather", 2, objects=True, objects_json=texts)
    drawn = explain(ops.REGISTRY["all_gather"], spec)
    things = [json.loads(text) for text in texts]
    assert drawn.after[1].pieces == tuple(
        Thing(thing, len(pickle.dumps(thing)), rank) for rank, thing in enumerate(things)
    )


def test_who_meets_holds_nothing() -> None:
    drawn = explain(ops.REGISTRY["barrier"], OpSpec("barrier", 3, shape=()))
    assert drawn.meets
    assert set(drawn.before) == set(drawn.after) == {Holding()}


def test_a_single_tensor_is_drawn_as_one_and_a_list_as_a_list() -> None:
    op = ops.REGISTRY["all_gather"]
    single = explain(op, OpSpec("all_gather", 2, variant="single")).after[0]
    assert (single.joined, single.listed) == (True, False)
    listed = explain(op, OpSpec("all_gather", 2, variant="list")).after[0]
    assert listed == replace(single, joined=False, listed=True)
