from __future__ import annotations

import enum
import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from distdemo.run.value import DEEPEST, LONGEST, MOST, value_of


class Level(enum.IntEnum):
    HIGH = 3


class Broken:
    def tolist(self):
        raise OSError("no")


@dataclass
class Point:
    x: int


class Mute:
    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("returned", "text", "plain"),
    [
        (3, "3", 3),
        (True, "True", True),
        (0.5, "0.5", 0.5),
        ("text", "'text'", "text"),
        (Level.HIGH, "<Level.HIGH: 3>", 3),
        ((1, [2, None]), "(1, [2, None])", [1, [2, None]]),
        ({1: "a", "b": (2,)}, "{1: 'a', 'b': (2,)}", {"1": "a", "b": [2]}),
        (torch.tensor([[1.0, 2.0]]), "tensor([[1., 2.]])", [[1.0, 2.0]]),
        (torch.tensor(7), "tensor(7)", 7),
        (np.arange(3), "array([0, 1, 2])", [0, 1, 2]),
        (Point(3), "Point(x=3)", "Point(x=3)"),
        ({"loss": torch.tensor(0.5)}, "{'loss': tensor(0.5000)}", {"loss": 0.5}),
        ({1: "a", "1": "b"}, "{1: 'a', '1': 'b'}", "{1: 'a', '1': 'b'}"),  # one key in JSON
        (1 << 70, str(1 << 70), hex(1 << 70)),
        (np.array([Point(1), 2], dtype=object), None, ["Point(x=1)", 2]),
        (np.array(["2020-01-02"], dtype="datetime64[D]"), None, ["datetime.date(2020, 1, 2)"]),
    ],
)
def test_values_as_text_and_as_json_has_them(returned, text, plain):
    value = value_of(returned)
    assert value is not None
    assert value.text == (repr(returned) if text is None else text)
    assert value.plain == plain
    assert type(value.plain) is type(plain)
    json.dumps(value.plain)


def test_nothing_is_no_value():
    assert value_of(None) is None


def test_a_value_that_can_not_be_shown_says_so():
    value = value_of(Mute())
    assert value is not None
    assert value.text == "(Mute: its text can't be shown: RuntimeError)"


def test_long_texts_are_cut_in_the_middle():
    value = value_of("x" * 100_000)
    assert value is not None
    assert len(value.text) < LONGEST + 100
    assert "characters more" in value.text
    assert value.plain == "x" * 100_000


def test_large_tensors_are_text():
    value = value_of(torch.zeros(MOST + 1))
    assert value is not None
    assert value.plain == value.text


@pytest.mark.parametrize("times", [1, 2])
def test_lists_that_hold_themselves_are_text(times):
    deep: list[object] = []
    deep += [deep] * times
    value = value_of(deep)
    assert value is not None
    assert value.plain == value.text == repr(deep)


def test_lists_that_are_too_deep_or_too_long_are_text():
    nested: list[object] = []
    for _ in range(DEEPEST + 1):
        nested = [nested]
    for large in (nested, [0] * 3 * MOST, [[0] * MOST] * 3):
        value = value_of(large)
        assert value is not None
        assert value.plain == value.text


@pytest.mark.parametrize(
    "returned",
    [torch.ones(3, device="meta"), torch.eye(3).to_sparse(), Broken(), 10**5000],
    ids=["meta", "sparse", "broken", "digits"],
)
def test_what_json_has_no_form_for_is_no_error(returned):
    value = value_of(returned)
    assert value is not None
    json.dumps(value.plain)
