"""Calls that are bound beforehand: what they are made of, and what they give."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from strategies import FORMS, example

from distdemo.ops.buffers import make_buffers
from distdemo.ops.contract import Buffers, Form, Op, Outsider, at_once, handles, in_turn, nothing

# The others ask the group who they are, or make several calls.
SINGLE = [
    each
    for each in FORMS
    if each[0].name not in ("p2p", "barrier") and "twice" not in each[1].calls
]


class Handle:
    """As good as a Work."""

    def wait(self) -> None:
        """At once."""


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize(("op", "form"), SINGLE, ids=lambda each: each.name)
def test_nothing_of_ours_is_between_a_bound_call_and_torch_s(
    op: Op, form: Form, async_op: bool
) -> None:
    spec = example(op, form, 2)
    call = op.bind(make_buffers(op, 1, spec, "cpu"), spec, None, async_op=async_op)
    assert isinstance(call, partial)
    assert call.func.__module__.startswith("torch.distributed")
    assert call.keywords.get("async_op", async_op) == async_op


@pytest.mark.parametrize(
    ("made", "given"),
    [(None, 0), (3, 0), ((), 0), (Handle(), 1), ([Handle(), Handle()], 2), ((Handle(),), 1)],
    ids=["nothing", "sender of recv", "no handles", "a handle", "a list", "a tuple"],
)
def test_whatever_torch_gives_there_are_handles_to_wait_on(made: Any, given: int) -> None:
    assert len(handles(made)) == given
    for handle in handles(made):
        handle.wait()


def test_calls_in_turn_are_made_in_this_order_and_give_nothing() -> None:
    made: list[int] = []
    both = in_turn(partial(made.append, 1), partial(made.append, 2))
    assert both() is None
    both()
    assert made == [1, 2, 1, 2]
    assert in_turn() is nothing
    assert in_turn(nothing) is nothing


def test_calls_at_once_give_the_handles_of_all() -> None:
    first, second = Handle(), Handle()
    assert at_once(lambda: first, lambda: None, lambda: [second])() == [first, second]
    assert handles(at_once()()) == []
    assert at_once(nothing) is nothing


def test_a_bystander_has_nothing_to_call() -> None:
    spec = example(FORMS[0][0], FORMS[0][1], 1)
    assert Outsider().bind(Buffers(), spec, None, async_op=False)() is None
