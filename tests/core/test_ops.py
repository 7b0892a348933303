"""Check what the ops declare against torch and nccl-tests: forms, words, traffic, calls."""

from __future__ import annotations

import inspect
import json
import pickle
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch.distributed as dist
from plain import facts_of
from strategies import FORMS, OPS, example

from distdemo import ops, versions
from distdemo.dtypes import DTYPES
from distdemo.ops import contract
from distdemo.ops.buffers import make_buffers
from distdemo.ops.contract import Op
from distdemo.ops.spec import OpSpec

for_every_op = pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)


@for_every_op
def test_its_words_and_forms_are_what_torch_has(op: Op) -> None:
    assert op.doc.call.startswith("dist.")
    assert ("{OP}" in op.doc.call) == ("reduce_op" in op.takes)
    assert bool(op.root_is) == ("root" in op.takes)
    if op.root_is:
        call = op.all_forms[0].functions[0]
        assert op.root_is in inspect.signature(getattr(dist, call)).parameters
    assert op.default_size(None) >= op.smallest_world >= 1
    assert len({form.name for form in op.all_forms}) == len(op.all_forms)
    for form in op.all_forms:
        assert bool(form.flags) == (form != op.all_forms[0])
        assert not form.lacks & set(form.settings) - {"pattern", "variant"}
        assert op.form(example(op, form, 3)) == form
        for name in form.functions:
            assert callable(getattr(dist, name, None)) == (form.lacking() is None)


# ------------------------------------------------------------------------------------- traffic


@for_every_op
def test_traffic_and_in_place_forms_are_those_of_nccl_tests(op: Op) -> None:
    facts = facts_of(op.name)
    # torch has the other ops in place only; all_to_all and send/recv never.
    assert op.has_both(example(op, op.all_forms[0], 3)) == facts.both
    for dtype, n in product(("bfloat16", "complex128"), range(op.smallest_world, 7)):
        traffic = op.traffic(OpSpec(op.name, n, dtype, (3, 5)))
        tensors = n if facts.tensors == "n" else facts.tensors
        assert traffic.payload_bytes == 15 * DTYPES[dtype].itemsize * tensors
        assert traffic.busbw_factor == pytest.approx(float(facts.busbw(n)), abs=1e-15)
        assert traffic.busbw_formula == facts.formula


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
        one = facts_of(name).tensors == 1
        assert traffic.payload_bytes == (sizes[0] if one else 3 * max(sizes)), name


# --------------------------------------------------------------------------------------- calls


def test_nothing_of_ours_is_between_a_bound_call_and_torch_s() -> None:
    for (op, form), async_op in product(FORMS, (False, True)):
        if "pattern" in op.takes or op.is_barrier or len(form.calls) > 1 or form.lacking():
            continue  # these ask the group who they are, or make several calls
        spec = example(op, form, 2)
        call = op.bind(make_buffers(op, 1, spec, "cpu"), spec, None, async_op=async_op)
        assert isinstance(call, partial)
        assert call.func.__module__.startswith("torch.distributed")
        assert call.keywords.get("async_op", async_op) == async_op


def test_a_form_has_the_name_that_the_installed_torch_prefers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = {"all_gather_into_tensor", "reduce_scatter_tensor"}
    new = {"all_gather_single", "reduce_scatter_single"}
    for installed, calls, lacks in (
        ("2.12.1+cu130", old, True),
        ("2.13.0", new, True),
        ("2.14.0a0", new, False),
        ("not installed", new, False),
    ):
        monkeypatch.setattr(versions, "torch_version", lambda version=installed: version)
        monkeypatch.setattr(contract, "torch_version", lambda version=installed: version)
        assert {form.call for _, form in FORMS if form.older} == calls
        (missing,) = {form.lacking() for _, form in FORMS if form.calls == ("gather_single",)}
        told = f"gather_single requires torch 2.14; this is torch {installed}."
        assert missing == (told if lacks else None)
        assert {form.lacking() for _, form in FORMS if form.calls != ("gather_single",)} == {None}
        for op, form in FORMS:
            if form.older:
                meaning = (op, form)
                assert ops.resolve(form.older) == ops.resolve(form.calls[0]) == meaning
