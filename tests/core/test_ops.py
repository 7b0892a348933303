"""What the operations declare: names, forms, words, sources of every piece, and traffic."""

from __future__ import annotations

import inspect
import json
import pickle
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch.distributed as dist
from strategies import FORMS, OPS, example, specs_of

from distdemo import ops
from distdemo.dtypes import DTYPES
from distdemo.ops.buffers import make_buffers
from distdemo.ops.contract import (
    Buffers,
    Op,
    Outsider,
    Source,
    Undefined,
    at_once,
    handles,
    in_turn,
    nothing,
)
from distdemo.ops.spec import OpSpec

each_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)


# ----------------------------------------------------------------------------- names and words


@each_op
def test_an_operation_is_found_by_every_spelling_of_its_name(op: Op) -> None:
    assert ops.REGISTRY[op.name] is op
    for name in (op.name, op.command, op.command.upper(), op.name.replace("_", "")):
        assert ops.find(name) is op
        assert ops.resolve(name) == (op, ())


def test_torch_s_own_calls_lead_to_their_form() -> None:
    for typed, found in {
        "isend": ("p2p", ("--nonblocking",)),
        "recv": ("p2p", ()),
        "monitored-barrier": ("barrier", ("--monitored",)),
        "all_gather_into_tensor": ("all_gather", ("--variant", "single")),
        "broadcast_object_list": ("broadcast", ("--objects",)),
        "all-reduse": None,
    }.items():
        resolved = ops.resolve(typed)
        assert (resolved and (resolved[0].name, resolved[1])) == found
        assert ops.find(typed) is None


@each_op
def test_its_words_are_whole_sentences_and_its_call_is_torch_s(op: Op) -> None:
    words = op.words
    for sentence in (words.summary, words.when, words.mistake):
        assert sentence.endswith(".")
        assert sentence == " ".join(sentence.split()), "a line break or two spaces in it"
    assert words.call.startswith("dist.")
    assert ("{OP}" in words.call) == ("reduce_op" in op.takes)
    assert bool(op.root_is) == ("root" in op.takes)
    if op.root_is:
        assert op.root_is in inspect.signature(getattr(dist, op.name)).parameters
        assert f"{op.root_is}=root" in words.call
    assert op.default_world >= op.smallest_world >= 1


@each_op
def test_its_forms_can_be_told_apart_and_called(op: Op) -> None:
    names = [form.name for form in op.all_forms]
    assert len(set(names)) == len(names)
    for form in op.all_forms:
        usual = form == op.all_forms[0]
        assert bool(form.flags) == (not usual)
        assert usual or form.summary.endswith(".")
        assert not form.lacks & set(form.settings) - {"pattern"}
        assert op.form(example(op, form, 3)) == form
        for name in form.calls.removesuffix(", twice").split("/"):
            assert callable(getattr(dist, name))


# --------------------------------------------------------------------------- pieces and results


def results(op: Op, spec: OpSpec) -> list[tuple[Source, ...]]:
    """What every rank gets; nothing where it is undefined."""
    made = (op.result(rank, spec) for rank in range(spec.group_size))
    return [() if isinstance(each, Undefined) else each for each in made]


@each_op
def test_every_source_of_a_result_is_a_piece_that_some_rank_holds(op: Op) -> None:
    for spec in specs_of(op):
        for source in (source for each in results(op, spec) for source in each):
            assert source.ranks
            assert len(set(source.ranks)) == len(source.ranks)
            assert source.reduced or len(source.ranks) == 1
            cuts = set()
            for giver in source.ranks:
                assert 0 <= giver < spec.group_size
                assert 0 <= source.piece < op.pieces(giver, spec)
                cut = op.cut(giver, source.piece, spec)
                cuts.add((cut.shape, cut.start))
            assert len(cuts) == 1, "what is reduced has one shape and one place in its row"


@each_op
def test_every_number_of_every_row_is_in_one_piece(op: Op) -> None:
    for spec in specs_of(op):
        filled: dict[int, set[int]] = {label: set() for label in op.value_labels(spec)}
        for rank in range(spec.group_size):
            for cut in (op.cut(rank, piece, spec) for piece in range(op.pieces(rank, spec))):
                places = set(range(cut.start, cut.start + cut.numel))
                assert not places & filled[cut.label]
                filled[cut.label] |= places
        assert filled == {label: set(range(op.row(label, spec))) for label in filled}
        assert op.lone_label(spec) in (None, *filled)


@each_op
def test_lists_places_and_parts_are_as_declared(op: Op) -> None:
    for spec in specs_of(op):
        ranks = range(spec.group_size)
        got = results(op, spec)
        assert any(got) != op.meets, "somebody holds a defined result unless they only meet"
        assert any(op.takes_part(rank, spec) for rank in ranks)
        for rank in ranks:
            assert op.list_before or op.pieces(rank, spec) == (0 if op.meets else 1)
            assert op.meets or op.is_listed(spec) or len(got[rank]) <= 1
            if op.is_in_place(spec):
                assert op.pieces(rank, spec) == 1
                assert len(got[rank]) <= 1
            if not op.takes_part(rank, spec):
                assert [source.ranks for source in got[rank]] == [(rank,)], "it keeps what it held"
            both = op.overlay(rank, spec)
            if both is not None:  # what lies there is what comes there, or is reduced to it
                source = got[rank][both[1]]
                assert rank in source.ranks
                assert source.piece == both[0]
        assert not (op.has_both(spec) and op.is_in_place(spec)), "it leaves no choice"


def test_nccl_tests_know_these_in_place_and_out_of_place() -> None:
    # Their others are in place in torch, always; all_to_all and send/recv never.
    both = {op.name for op in OPS if op.has_both(example(op, op.all_forms[0], 3))}
    assert both == {"all_gather", "reduce_scatter", "gather", "scatter"}


# ------------------------------------------------------------------------------------- traffic

ALL_BUT_OWN = (lambda n: Fraction(n - 1, n), "(n−1)/n")
ONE = (lambda n: Fraction(1), "1")
TRAFFIC: dict[str, tuple[int, Any]] = {
    # After nccl-tests, doc/PERFORMANCE.md: tensors in S (0: none, 1, or all n), and the factor.
    "all_reduce": (1, (lambda n: Fraction(2 * (n - 1), n), "2(n−1)/n")),
    **dict.fromkeys(("reduce_scatter", "all_gather", "all_to_all"), (2, ALL_BUT_OWN)),
    **dict.fromkeys(("gather", "scatter"), (2, ALL_BUT_OWN)),
    **dict.fromkeys(("broadcast", "reduce", "p2p"), (1, ONE)),
    "barrier": (0, ONE),
}


@each_op
def test_traffic_follows_the_table_of_nccl_tests(op: Op) -> None:
    for dtype, n in product(("bfloat16", "complex128"), range(op.smallest_world, 7)):
        tensors, (factor, formula) = TRAFFIC[op.name]
        traffic = op.traffic(OpSpec(op.name, n, dtype, (3, 5)))
        each = 15 * DTYPES[dtype].itemsize
        assert traffic.payload_bytes == each * (n if tensors == 2 else tensors)
        assert traffic.busbw_factor == pytest.approx(float(factor(n)), abs=1e-15)
        assert traffic.busbw_formula == formula


def test_the_payload_of_uneven_tensors_and_parts_is_that_of_the_largest() -> None:
    rows = ((1, 0, 2), (4, 4, 0), (1, 1, 1))
    parts = OpSpec("all_to_all", 3, shape=(8, 5), variant="single", splits=rows)
    assert ops.REGISTRY["all_to_all"].traffic(parts).payload_bytes == 8 * 5 * 4
    gather = ops.REGISTRY["all_gather"]
    padded = OpSpec("all_gather", 3, shape=(7,), variant="uneven", sizes=(3, 0, 7))
    assert gather.traffic(padded).payload_bytes == 3 * 7 * 4
    assert gather.notes(padded)[0].startswith("Padding: 44 of 84 bytes (52%)")


def test_objects_count_as_their_pickles() -> None:
    texts = ('"a"', "[1, 2, 3, 4, 5, 6, 7, 8, 9]", "null")
    sizes = [len(pickle.dumps(json.loads(text))) for text in texts]
    for name in ("scatter", "gather", "all_gather", "broadcast", "p2p"):
        given: dict[str, Any] = {"root": 0, "src": 0, "dst": 1, "pattern": "pair"}
        traffic = ops.REGISTRY[name].traffic(
            OpSpec(name, 3, objects=True, objects_json=texts, **given)
        )
        one = name in ("broadcast", "p2p")
        assert traffic.payload_bytes == (sizes[0] if one else 3 * max(sizes)), name


# --------------------------------------------------------------------------------------- calls


class Handle:
    """As good as a Work."""

    def wait(self) -> None:
        """At once."""


def test_nothing_of_ours_is_between_a_bound_call_and_torch_s() -> None:
    for (op, form), async_op in product(FORMS, (False, True)):
        if "pattern" in op.takes or op.meets or "twice" in form.calls:
            continue  # these ask the group who they are, or make several calls
        spec = example(op, form, 2)
        call = op.bind(make_buffers(op, 1, spec, "cpu"), spec, None, async_op=async_op)
        assert isinstance(call, partial)
        assert call.func.__module__.startswith("torch.distributed")
        assert call.keywords.get("async_op", async_op) == async_op


def test_calls_are_made_in_turn_or_at_once_and_give_handles() -> None:
    first, second = Handle(), Handle()
    made: list[Any] = [None, 3, (), first, [first, second], (first,)]
    assert [len(handles(each)) for each in made] == [0, 0, 0, 1, 2, 1]
    calls: list[int] = []
    in_turn(partial(calls.append, 1), partial(calls.append, 2))()
    assert calls == [1, 2]
    assert in_turn() is nothing
    assert at_once(lambda: first, lambda: None, lambda: [second])() == [first, second]
    assert Outsider().bind(Buffers(), OpSpec("x", 1), None, async_op=False)() is None
