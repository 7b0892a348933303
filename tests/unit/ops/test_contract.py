from __future__ import annotations

import inspect
from collections.abc import Iterator
from fractions import Fraction

import pytest
import torch.distributed as dist

from distdemo import ops
from distdemo.dtypes import DTYPES
from distdemo.model import OpSpec
from distdemo.ops.contract import Op, Undefined

OPS = list(ops.REGISTRY.values())
ROOTED = [op for op in OPS if "root" in op.takes]


def specs_of(op: Op) -> Iterator[OpSpec]:
    """Every world size from 1 to 6 with every root, or every pair and the ring."""
    for n in range(op.smallest_world, 7):
        reduce_op = "sum" if "reduce_op" in op.takes else None
        if "pattern" in op.takes:
            yield OpSpec(op.name, n, pattern="ring")
            pairs = [(src, dst) for src in range(n) for dst in range(n) if src != dst]
            yield from (OpSpec(op.name, n, src=s, dst=d, pattern="pair") for s, d in pairs)
        else:
            for root in range(n) if "root" in op.takes else (None,):
                yield OpSpec(op.name, n, reduce_op=reduce_op, root=root)


CASES = [
    pytest.param(op, spec, id=f"{op.name}-{spec.world_size}-{spec.root}-{spec.src}-{spec.dst}")
    for op in OPS
    for spec in specs_of(op)
]


# ------------------------------------------------------------------------------ names and words


def test_the_registry_holds_these_operations() -> None:
    assert {
        "broadcast",
        "reduce",
        "all_reduce",
        "scatter",
        "gather",
        "all_gather",
        "p2p",
    } <= set(ops.REGISTRY)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_an_operation_is_found_by_both_spellings_of_its_name(op: Op) -> None:
    assert ops.REGISTRY[op.name] is op
    assert "_" not in op.command
    assert ops.find(op.name) is op
    assert ops.find(op.command) is op
    assert ops.find(op.command.upper()) is op


def test_an_unknown_operation_is_not_found() -> None:
    assert ops.find("all-reduse") is None


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_functions_that_it_is_said_to_call_are_torch_s(op: Op) -> None:
    for name in op.torch_names.replace("/", ",").split(","):
        assert callable(getattr(dist, name.strip()))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_its_words_are_whole_sentences(op: Op) -> None:
    words = op.words
    for sentence in (words.summary, words.when, words.mistake):
        assert sentence.endswith(".")
        assert sentence == " ".join(sentence.split()), "a line break or two spaces in it"
    assert "dist." in words.call
    assert words.call.replace("{OP}", "").count("{") == 0
    assert ("{OP}" in words.call) == ("reduce_op" in op.takes)


@pytest.mark.parametrize("op", ROOTED, ids=lambda op: op.name)
def test_the_root_has_the_name_that_torch_gives_it(op: Op) -> None:
    assert op.root_is in inspect.signature(getattr(dist, op.name)).parameters
    assert f"{op.root_is}=root" in op.words.call


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_a_name_for_the_root_goes_with_having_one(op: Op) -> None:
    assert bool(op.root_is) == ("root" in op.takes)


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_default_world_is_large_enough(op: Op) -> None:
    assert op.default_world >= op.smallest_world >= 1


# ------------------------------------------------------------------------- pieces and results


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_every_source_of_a_result_is_a_piece_that_some_rank_holds(op: Op, spec: OpSpec) -> None:
    for rank in range(spec.world_size):
        result = op.result(rank, spec)
        for source in () if isinstance(result, Undefined) else result:
            assert source.ranks
            assert len(set(source.ranks)) == len(source.ranks)
            assert source.reduced or len(source.ranks) == 1
            for giver in source.ranks:
                assert 0 <= giver < spec.world_size
                assert 0 <= source.piece < op.pieces(giver, spec)


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_every_piece_has_a_row_of_values_and_every_row_fills_a_piece(op: Op, spec: OpSpec) -> None:
    labels = op.value_labels(spec)
    used = {
        op.label(rank, piece, spec)
        for rank in range(spec.world_size)
        for piece in range(op.pieces(rank, spec))
    }
    assert used == set(labels)
    assert op.lone_label(spec) in (None, *labels)


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_a_result_in_place_is_one_tensor_where_one_was(op: Op, spec: OpSpec) -> None:
    if not op.is_in_place(spec):
        return
    for rank in range(spec.world_size):
        result = op.result(rank, spec)
        assert op.pieces(rank, spec) == 1
        assert isinstance(result, Undefined) or len(result) == 1


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_lists_are_only_where_the_op_says_so(op: Op, spec: OpSpec) -> None:
    for rank in range(spec.world_size):
        result = op.result(rank, spec)
        assert op.list_before or op.pieces(rank, spec) == 1
        assert isinstance(result, Undefined) or op.list_after or len(result) == 1


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_a_rank_without_a_part_keeps_what_it_held(op: Op, spec: OpSpec) -> None:
    taking_part = [rank for rank in range(spec.world_size) if op.takes_part(rank, spec)]
    assert taking_part
    for rank in set(range(spec.world_size)) - set(taking_part):
        result = op.result(rank, spec)
        assert not isinstance(result, Undefined)
        assert [source.ranks for source in result] == [(rank,)]


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_somebody_holds_a_defined_result(op: Op, spec: OpSpec) -> None:
    results = [op.result(rank, spec) for rank in range(spec.world_size)]
    assert any(not isinstance(result, Undefined) and result for result in results)


# ------------------------------------------------------------------------------------ traffic

ONE, ALL = "one tensor", "n tensors"
TRAFFIC = {
    # DESIGN's table, after nccl-tests: what S is, the factor and how that is written.
    "all_reduce": (ONE, lambda n: Fraction(2 * (n - 1), n), "2(n−1)/n"),
    "reduce_scatter": (ALL, lambda n: Fraction(n - 1, n), "(n−1)/n"),
    "all_gather": (ALL, lambda n: Fraction(n - 1, n), "(n−1)/n"),
    "all_to_all": (ALL, lambda n: Fraction(n - 1, n), "(n−1)/n"),
    "gather": (ALL, lambda n: Fraction(n - 1, n), "(n−1)/n"),
    "scatter": (ALL, lambda n: Fraction(n - 1, n), "(n−1)/n"),
    "broadcast": (ONE, lambda n: Fraction(1), "1"),
    "reduce": (ONE, lambda n: Fraction(1), "1"),
    "p2p": (ONE, lambda n: Fraction(1), "1"),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex128"])
@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_traffic_follows_the_table_of_nccl_tests(op: Op, n: int, dtype: str) -> None:
    if n < op.smallest_world:
        pytest.skip("this op needs more ranks")
    spec = OpSpec(op.name, n, dtype, (3, 5))
    amount, factor, formula = TRAFFIC[op.name]
    traffic = op.traffic(spec)
    assert traffic.payload == 15 * DTYPES[dtype].itemsize * (n if amount is ALL else 1)
    assert traffic.factor == pytest.approx(float(factor(n)), abs=1e-15)
    assert traffic.formula == formula
    assert traffic.bus_bytes == traffic.payload * traffic.factor


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "gather", "scatter"])
def test_with_one_rank_nothing_crosses_a_bus(name: str) -> None:
    assert ops.REGISTRY[name].traffic(OpSpec(name, 1)).factor == 0
