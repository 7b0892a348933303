from __future__ import annotations

import inspect
import json
import pickle
from fractions import Fraction

import pytest
import torch.distributed as dist
from strategies import FORMS, OPS, example, name_of, specs_of

from distdemo import ops
from distdemo.dtypes import DTYPES
from distdemo.ops.contract import Form, Op, Undefined
from distdemo.ops.spec import OpSpec

ROOTED = [op for op in OPS if "root" in op.takes]
CASES = [pytest.param(op, spec, id=name_of(spec)) for op in OPS for spec in specs_of(op)]


# ------------------------------------------------------------------------------ names and words


def test_the_registry_holds_these_operations() -> None:
    assert {
        "broadcast",
        "reduce",
        "all_reduce",
        "scatter",
        "gather",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "barrier",
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


@pytest.mark.parametrize(("op", "form"), FORMS, ids=lambda each: each.name)
def test_the_functions_that_a_form_is_said_to_call_are_torch_s(op: Op, form: Form) -> None:
    for name in form.calls.removesuffix(", twice").split("/"):
        assert callable(getattr(dist, name))


@pytest.mark.parametrize(("op", "form"), FORMS, ids=lambda each: each.name)
def test_a_form_other_than_the_usual_one_says_how_to_get_it_and_what_it_does(
    op: Op, form: Form
) -> None:
    usual = form == op.all_forms[0]
    assert bool(form.flags) == (not usual)
    assert usual or form.summary.endswith(".")


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_the_forms_of_an_operation_have_names_of_their_own(op: Op) -> None:
    names = [form.name for form in op.all_forms]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("op", "form"), FORMS, ids=lambda each: each.name)
def test_a_form_is_found_by_the_request_that_asks_for_it(op: Op, form: Form) -> None:
    assert op.form(example(op, form, 3)) == form
    assert op.form(OpSpec(op.name, 3)) in op.all_forms


@pytest.mark.parametrize(("op", "form"), FORMS, ids=lambda each: each.name)
def test_a_form_lacks_nothing_that_chooses_it(op: Op, form: Form) -> None:
    assert not form.lacks & set(form.settings) - {"pattern"}


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_its_words_are_whole_sentences(op: Op) -> None:
    words = op.words
    for sentence in (words.summary, words.when, words.mistake):
        assert sentence.endswith(".")
        assert sentence == " ".join(sentence.split()), "a line break or two spaces in it"
    assert "dist." in words.call
    assert words.call.replace("{OP}", "").count("{") == 0
    assert ("{OP}" in words.call) == ("reduce_op" in op.takes)
    assert words.call.startswith("dist.")


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
    for rank in range(spec.group_size):
        result = op.result(rank, spec)
        for source in () if isinstance(result, Undefined) else result:
            assert source.ranks
            assert len(set(source.ranks)) == len(source.ranks)
            assert source.reduced or len(source.ranks) == 1
            for giver in source.ranks:
                assert 0 <= giver < spec.group_size
                assert 0 <= source.piece < op.pieces(giver, spec)


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_every_number_of_every_row_is_in_one_piece(op: Op, spec: OpSpec) -> None:
    filled: dict[int, set[int]] = {label: set() for label in op.value_labels(spec)}
    for rank in range(spec.group_size):
        cuts = [op.cut(rank, piece, spec) for piece in range(op.pieces(rank, spec))]
        for cut in cuts:
            places = set(range(cut.start, cut.start + cut.numel))
            assert not places & filled[cut.label]
            filled[cut.label] |= places
    assert filled == {label: set(range(op.row(label, spec))) for label in filled}
    assert op.lone_label(spec) in (None, *filled)


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_what_is_reduced_has_one_shape_and_one_place_in_its_row(op: Op, spec: OpSpec) -> None:
    for rank in range(spec.group_size):
        result = op.result(rank, spec)
        for source in () if isinstance(result, Undefined) else result:
            cuts = [op.cut(giver, source.piece, spec) for giver in source.ranks]
            assert len({(cut.shape, cut.start) for cut in cuts}) == 1


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_a_result_in_place_is_one_tensor_where_one_was(op: Op, spec: OpSpec) -> None:
    if not op.is_in_place(spec):
        return
    for rank in range(spec.group_size):
        result = op.result(rank, spec)
        assert op.pieces(rank, spec) == 1
        assert isinstance(result, Undefined) or len(result) == 1


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_what_may_be_one_memory_is_a_piece_given_and_one_got(op: Op, spec: OpSpec) -> None:
    shared = {rank: op.overlay(rank, spec) for rank in range(spec.group_size)}
    assert op.has_both(spec) == any(shared.values())
    assert not (op.has_both(spec) and op.is_in_place(spec)), "it leaves no choice"
    for rank, both in shared.items():
        if both is None:
            continue
        give, take = both
        result = op.result(rank, spec)
        assert not isinstance(result, Undefined)
        source = result[take]
        cut = op.cut(rank, give, spec)
        assert cut.shape == op.cut(source.ranks[0], source.piece, spec).shape
        # What lies there is what comes there, or a part of what is reduced to it.
        assert rank in source.ranks
        assert source.piece == give


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_nccl_tests_know_these_in_place_and_out_of_place(op: Op) -> None:
    # Their others are in place in torch, always; all_to_all and send/recv never.
    chosen = {"all_gather", "reduce_scatter", "gather", "scatter"}
    assert op.has_both(example(op, op.all_forms[0], 3)) == (op.name in chosen)


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_lists_are_only_where_the_op_says_so(op: Op, spec: OpSpec) -> None:
    for rank in range(spec.group_size):
        result = op.result(rank, spec)
        assert op.list_before or op.pieces(rank, spec) == (0 if op.meets else 1)
        if op.meets:
            continue
        assert isinstance(result, Undefined) or op.is_listed(spec) or len(result) == 1
        assert not spec.is_joined or op.list_before or op.list_after


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_a_rank_without_a_part_keeps_what_it_held(op: Op, spec: OpSpec) -> None:
    taking_part = [rank for rank in range(spec.group_size) if op.takes_part(rank, spec)]
    assert taking_part
    for rank in set(range(spec.group_size)) - set(taking_part):
        result = op.result(rank, spec)
        assert not isinstance(result, Undefined)
        assert [source.ranks for source in result] == [(rank,)]


@pytest.mark.parametrize(("op", "spec"), CASES)
def test_somebody_holds_a_defined_result_unless_they_only_meet(op: Op, spec: OpSpec) -> None:
    results = [op.result(rank, spec) for rank in range(spec.group_size)]
    assert any(not isinstance(result, Undefined) and result for result in results) != op.meets


# ------------------------------------------------------------------------------------ traffic

ONE, ALL, NO = "one tensor", "n tensors", "nothing"
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
    "barrier": (NO, lambda n: Fraction(1), "1"),
}
COUNT = {ONE: lambda n: 1, ALL: lambda n: n, NO: lambda n: 0}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex128"])
@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_traffic_follows_the_table_of_nccl_tests(op: Op, n: int, dtype: str) -> None:
    if n < op.smallest_world:
        pytest.skip("this op needs more ranks")
    spec = OpSpec(op.name, n, dtype, (3, 5))
    amount, factor, formula = TRAFFIC[op.name]
    traffic = op.traffic(spec)
    assert traffic.payload_bytes == 15 * DTYPES[dtype].itemsize * COUNT[amount](n)
    assert traffic.busbw_factor == pytest.approx(float(factor(n)), abs=1e-15)
    assert traffic.busbw_formula == formula
    assert traffic.bus_bytes == traffic.payload_bytes * traffic.busbw_factor


def test_the_payload_of_uneven_parts_is_that_of_the_rank_with_most() -> None:
    rows = ((1, 0, 2), (4, 4, 0), (1, 1, 1))
    spec = OpSpec("all_to_all", 3, shape=(8, 5), variant="single", splits=rows)
    assert ops.REGISTRY["all_to_all"].traffic(spec).payload_bytes == 8 * 5 * 4


def test_the_payload_of_uneven_tensors_is_padded_and_a_note_says_how_much_is_wasted() -> None:
    op = ops.REGISTRY["all_gather"]
    spec = OpSpec("all_gather", 3, shape=(7,), variant="uneven", sizes=(3, 0, 7))
    assert op.traffic(spec).payload_bytes == 3 * 7 * 4
    assert op.notes(spec) == (
        "Padding: 44 of 84 bytes (52%) of what every rank gathers are thrown away again.",
    )
    empty = OpSpec("all_gather", 2, shape=(0,), variant="uneven", sizes=(0, 0))
    assert "0 of 0 bytes" in op.notes(empty)[0]


THINGS = ('"a"', "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "null")


def objects_of(name: str) -> OpSpec:
    return OpSpec(name, 3, objects=True, objects_json=THINGS, root=0, src=0, dst=1, pattern="pair")


@pytest.mark.parametrize("name", ["scatter", "gather", "all_gather"])
def test_where_many_objects_travel_each_takes_as_much_as_the_largest_pickle(name: str) -> None:
    largest = max(len(pickle.dumps(json.loads(thing))) for thing in THINGS)
    assert ops.REGISTRY[name].traffic(objects_of(name)).payload_bytes == 3 * largest


@pytest.mark.parametrize("name", ["broadcast", "p2p"])
def test_where_one_object_travels_its_own_pickle_counts(name: str) -> None:
    assert ops.REGISTRY[name].traffic(objects_of(name)).payload_bytes == len(pickle.dumps("a"))


@pytest.mark.parametrize(
    "name", ["all_reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all"]
)
def test_with_one_rank_nothing_crosses_a_bus(name: str) -> None:
    assert ops.REGISTRY[name].traffic(OpSpec(name, 1)).busbw_factor == 0
