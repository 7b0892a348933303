from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from distdemo import ops
from distdemo.backends.gloo import Gloo
from distdemo.dtypes import DTYPES
from distdemo.model import Holding, OpSpec
from distdemo.ops.buffers import expected, held_before
from distdemo.ops.reduction import REDUCTIONS
from distdemo.programs.explain import RANKS, SHOWN, explain

PAIR: dict[str, Any] = {"src": 2, "dst": 0, "pattern": "pair"}


def numbers(holding: Holding) -> list[list[Any]] | None:
    return None if holding.undefined else [list(piece.head) for piece in holding.pieces]


def assert_shows_what_a_run_would_hold(spec: OpSpec) -> None:
    op = ops.REGISTRY[spec.op]
    drawn = explain(op, spec)
    assert drawn.ranks == tuple(range(spec.world_size))
    assert len(drawn.before) == len(drawn.after) == spec.world_size
    for rank in range(spec.world_size):
        before = [tensor.tolist() for tensor in held_before(op, rank, spec)]
        wanted = expected(op, rank, spec)
        after = None if wanted is None else [piece.tensor.tolist() for piece in wanted]
        assert numbers(drawn.before[rank]) == before
        assert numbers(drawn.after[rank]) == after


@settings(deadline=None, max_examples=150)
@given(
    name=st.sampled_from(sorted(ops.REGISTRY)),
    n=st.integers(1, 6),
    dtype=st.sampled_from(sorted(DTYPES)),
    reduce_op=st.sampled_from(sorted(set(REDUCTIONS) - {"avg"})),
    numel=st.integers(1, SHOWN),
    data=st.data(),
)
def test_the_picture_shows_the_numbers_of_a_run(
    *, name: str, n: int, dtype: str, reduce_op: str, numel: int, data: st.DataObject
) -> None:
    op = ops.REGISTRY[name]
    assume(n >= op.smallest_world)
    more: dict[str, Any] = {}
    if "reduce_op" in op.takes:
        more["reduce_op"] = reduce_op
    if "root" in op.takes:
        more["root"] = data.draw(st.integers(0, n - 1))
    if "pattern" in op.takes:
        more["pattern"] = "ring"
    assume(Gloo().refuses(name, dtype, more.get("reduce_op")) is None)
    assert_shows_what_a_run_would_hold(OpSpec(name, n, dtype, (numel,), **more))


@pytest.mark.parametrize(
    "spec",
    [
        OpSpec("p2p", 3, **PAIR),
        OpSpec("all_reduce", 3, reduce_op="sum", fill="rank"),
        OpSpec("broadcast", 2, shape=(2,), root=1, values=(None, (5.0, -6.0))),
        OpSpec("all_reduce", 2, "int8", (2,), "sum", fill=100),
        OpSpec("all_reduce", 2, "uint8", (1,), "product", values=((20,), (20,))),
    ],
    ids=["pair", "fill-rank", "values-of-the-root", "wraps-in-int8", "wraps-in-uint8"],
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
    "p2p": ({"pattern": "ring"}, {(0, 1), (1, 2), (2, 0)}),
}


@pytest.mark.parametrize("name", ops.REGISTRY)
def test_the_arrows_go_from_who_gives_to_who_gets(name: str) -> None:
    more, edges = EDGES[name]
    assert explain(ops.REGISTRY[name], OpSpec(name, 3, **more)).edges == edges


def test_the_arrow_of_a_pair_goes_from_src_to_dst_alone() -> None:
    assert explain(ops.REGISTRY["p2p"], OpSpec("p2p", 4, **PAIR)).edges == {(2, 0)}


def test_with_one_rank_nothing_moves() -> None:
    assert explain(ops.REGISTRY["all_reduce"], OpSpec("all_reduce", 1)).edges == frozenset()


def test_of_a_large_request_a_few_ranks_and_elements_are_drawn_but_the_costs_are_its_own() -> None:
    spec = OpSpec("all_gather", 64, shape=(1000, 10))
    drawn = explain(ops.REGISTRY["all_gather"], spec)
    assert len(drawn.before) == RANKS
    assert {piece.shape for piece in drawn.before[0].pieces} == {(SHOWN,)}
    assert drawn.traffic.payload == 64 * 10000 * 4
    assert drawn.spec == spec


def test_a_root_far_up_stays_in_the_picture() -> None:
    drawn = explain(ops.REGISTRY["reduce"], OpSpec("reduce", 64, root=20, reduce_op="sum"))
    assert drawn.ranks == (*range(RANKS), 20)
    assert numbers(drawn.after[-1]) is not None
    assert (0, 20) in drawn.edges


@pytest.mark.parametrize("shape", [(1000,), (50, 7), ()])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "scatter"])
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
