"""Records to JSON and back, and the schema that describes it."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdemo.encoding import decode, derived, document_schema, dumps, encode


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Cat:
    kind: ClassVar[str] = "cat"
    lives: int = 9


@dataclass(frozen=True)
class Dog:
    kind: ClassVar[str] = "dog"
    lives: int = 1


@dataclass(frozen=True, slots=True)
class Box:
    """A box.

    All kinds of fields.
    """

    ok: bool
    times_s: tuple[float, ...]
    pair: tuple[int, str]
    pets: tuple[Cat | Dog, ...] = ()
    colour: Colour | None = None
    by_rank: dict[int, str] = field(default_factory=dict)
    way: Literal["in", "out"] = "in"
    anything: Any = None
    secret: object = field(default=None, metadata={"json": False})

    @derived
    def total_s(self) -> float:
        """Of all times."""
        return sum(self.times_s)


@given(
    st.builds(
        Box,
        ok=st.booleans(),
        times_s=st.lists(st.floats(allow_nan=False), max_size=4).map(tuple),
        pair=st.tuples(st.integers(), st.text()),
        pets=st.lists(st.builds(Cat, st.integers()) | st.builds(Dog), max_size=3).map(tuple),
        colour=st.none() | st.just(Colour.RED),
        by_rank=st.dictionaries(st.integers(), st.text(), max_size=3),
        way=st.sampled_from(["in", "out"]),
        anything=st.none() | st.text() | st.lists(st.integers(), max_size=3),
    )
)
def test_what_is_encoded_is_valid_and_decodes_to_the_same(box: Box) -> None:
    data = json.loads(dumps(encode(box)))
    assert decode(Box, data) == box
    document = {"schema_version": 2, "command": "box", "errors": [], **data}
    jsonschema.validate(document, document_schema(Box, "a box"))


def test_the_document() -> None:
    box = Box(True, (math.inf, -math.inf), (1, "a"), (Dog(),), secret=object())
    assert encode(box) == {
        "ok": True,
        "times_s": ["Infinity", "-Infinity"],
        "pair": [1, "a"],
        "pets": [{"kind": "dog", "lives": 1}],
        "colour": None,
        "by_rank": {},
        "way": "in",
        "anything": None,
        "total_s": "NaN",
    }


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Box, []),
        (Box, {}),
        (Box, {"ok": "yes", "times_s": [], "pair": [1, "a"]}),
        (Box, {"ok": True, "times_s": ["1"], "pair": [1, "a"]}),
        (Box, {"ok": True, "times_s": [], "pair": [1]}),
        (Cat | Dog, {"kind": "cow"}),
        (int, True),
        (int, 1.5),
        (str, None),
        (Colour, "blue"),
        (Literal["in"], "out"),
    ],
)
def test_other_data_is_refused(kind: Any, data: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(kind, data)


def test_what_has_no_place_in_a_document_is_refused() -> None:
    with pytest.raises(TypeError):
        encode({"a": object()})
