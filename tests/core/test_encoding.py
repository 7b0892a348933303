"""Records to JSON and back, and the schema that describes it."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jsonschema
import pytest

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


VALID = jsonschema.Draft202012Validator(document_schema(Box, "a box"))


def test_what_is_encoded_is_valid_and_decodes_to_the_same() -> None:
    for box in (
        Box(True, (), (0, "")),
        Box(False, (math.inf, -0.0, 1e-300, 2.0), (-(2**70), "ü\n\ud800")),
        Box(True, (-math.inf,), (1, "a"), (Cat(3), Dog(), Cat()), Colour.RED, {2: "x", -1: ""}),
        Box(True, (1.5,), (1, "a"), way="out", anything=[1, [None, "NaN"]]),
    ):
        data = json.loads(dumps(encode(box)))
        assert decode(Box, data) == box
        VALID.validate({"schema_version": 2, "command": "box", "errors": [], **data})


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


def test_other_data_is_refused() -> None:
    for kind, data in (
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
    ):
        with pytest.raises(ValueError, match=r"."):
            decode(kind, data)  # type: ignore[arg-type]  # any type will do
    with pytest.raises(TypeError):
        encode({"a": object()})
