from __future__ import annotations

from collections.abc import Callable

import pytest
from strategies import FORMS, example, name_of

from distdemo import ops
from distdemo.demo.explain import explain
from distdemo.demo.view_op_list import op_list
from distdemo.demo.view_picture import picture
from distdemo.ops.spec import OpSpec

Draw = Callable[..., str]


SPECS = [
    example(op, form, n, **({"reduce_op": "product"} if "reduce_op" in op.takes else {}))
    for op, form in FORMS
    for n in (2, 4, 64)
    if n <= 4 or not form.name.startswith("uneven")
]


def drawn(spec: OpSpec, draw: Draw, encoding: str = "utf-8") -> str:
    explanation = explain(ops.REGISTRY[spec.op], spec)
    return draw(lambda console: picture(explanation, console), encoding)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_every_op_is_drawn_with_its_words_in_80_columns(
    spec: OpSpec, encoding: str, draw: Draw
) -> None:
    text = drawn(spec, draw, encoding)
    flat = " ".join(text.split())
    op = ops.REGISTRY[spec.op]
    words = explain(op, spec).words
    assert text.startswith(spec.op)
    for rank in range(min(spec.group_size, 8)):
        assert f"rank {rank}" in text
    for fact in ("Call", "Used to", "Mistake"):
        assert fact in flat
    assert ("Costs" in flat and "busbw factor" in flat) == (not op.meets)
    assert words.summary in flat
    if encoding == "utf-8":
        assert words.mistake in flat


def test_the_arms_say_who_gives_and_who_gets(draw: Draw) -> None:
    text = drawn(OpSpec("broadcast", 3, root=1), draw)
    arms = {line.split()[1]: line for line in text.splitlines() if line.startswith(" rank ")}
    assert "  ┌──▶" in arms["0"]
    assert "──┤   " in arms["1"]
    assert "  └──▶" in arms["2"]
    text = drawn(OpSpec("all_reduce", 3, reduce_op="sum"), draw)
    assert [sign in text for sign in ("──┬──▶", "──┼──▶", "──┴──▶")] == [True] * 3


def test_without_unicode_the_arms_are_plain(draw: Draw) -> None:
    text = drawn(OpSpec("all_reduce", 3, reduce_op="sum"), draw, "ascii")
    assert "--+-->" in text


def test_of_many_ranks_the_hidden_ones_are_counted(draw: Draw) -> None:
    assert "56 ranks more" in drawn(OpSpec("all_gather", 64), draw)


def test_costs_are_those_of_the_request(draw: Draw) -> None:
    flat = " ".join(drawn(OpSpec("all_reduce", 4, shape=(1000,), reduce_op="sum"), draw).split())
    assert "2(n−1)/n × 4 kB = 6 kB over the busiest link" in flat
    assert "(S is one rank's tensor; busbw factor 2(n−1)/n = 1.5 at n = 4)" in flat


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_list_of_operations_names_all(encoding: str, draw: Draw) -> None:
    entries = [
        (op.command, form.flags, form.calls, form.summary or op.words.summary) for op, form in FORMS
    ]
    text = draw(lambda console: op_list(entries, console), encoding)
    assert all(op.command in text for op in ops.REGISTRY.values())
    assert all(form.flags in text for _, form in FORMS)
