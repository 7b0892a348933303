"""Encode records as JSON, decode them, and validate them with their schema."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import jsonschema
import pytest
from json_schema import document_schema

from distdemo.encoding import SCHEMA_VERSION, decode, derived, dumps, encode, loads


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
    ratios: tuple[float, ...]
    pair: tuple[int, str]
    pets: tuple[Cat | Dog, ...] = ()
    colour: Colour | None = None
    by_rank: dict[int, str] = field(default_factory=dict)
    way: Literal["in", "out"] = "in"
    anything: Any = None
    times_s: tuple[float, ...] = ()
    secret: object = field(default=None, metadata={"json": False})

    @derived
    def total(self) -> float:
        """Of all times."""
        return sum(self.ratios)


VALID = jsonschema.Draft202012Validator(document_schema(Box, "a box"))


def test_an_encoded_record_is_valid_and_decodes_to_the_same() -> None:
    for box in (
        Box(True, (), (0, "")),
        Box(False, (math.inf, -0.0, 1e-300, 2.0), (-(2**63), "ü\n\ud800")),
        Box(True, (-math.inf,), (1, "a"), (Cat(3), Dog(), Cat()), Colour.RED, {2: "x", -1: ""}),
        Box(True, (1.5,), (1, "a"), way="out", anything=[1, [None, "NaN"]]),
    ):
        data = json.loads(dumps(encode(box)))
        assert decode(Box, data) == box
        VALID.validate({"schema_version": SCHEMA_VERSION, "command": "box", "errors": [], **data})


def test_the_document() -> None:
    box = Box(True, (math.inf, -math.inf), (1, "a"), (Dog(),), secret=object())
    assert encode(box) == {
        "ok": True,
        "ratios": ["Infinity", "-Infinity"],
        "pair": [1, "a"],
        "pets": [{"kind": "dog"}],
        "total": "NaN",
    }


def test_other_data_is_refused() -> None:
    for kind, data in (
        (Box, []),
        (Box, {}),
        (Box, {"ok": "yes", "ratios": [], "pair": [1, "a"]}),
        (Box, {"ok": True, "ratios": ["1"], "pair": [1, "a"]}),
        (Box, {"ok": True, "ratios": [], "pair": [1]}),
        (Box, {"ok": True, "ratios": [], "pair": [2**64, "a"]}),
        (Box, {"ok": True, "ratios": [10**400], "pair": [1, "a"]}),
        (Box, {"ok": True, "ratios": [], "pair": [1, "a"], "times_s": [1.0, "NaN"]}),
        (Cat | Dog, {"kind": "cow"}),
        (int, True),
        (Colour, "blue"),
        (Literal["in"], "out"),
    ):
        with pytest.raises(ValueError, match=r"."):
            decode(kind, data)  # type: ignore[arg-type]  # any type will do
    with pytest.raises(TypeError):
        encode({"a": object()})


def test_bad_json_is_refused() -> None:
    deep = "[" * 100_000, '{"a":' * 100_000
    for text in ("", "nul", *deep, "1e400", "NaN", "[-Infinity]", "1" * 5000, "\ufeff1"):
        with pytest.raises(ValueError, match=r"."):
            loads(text, max_bytes=10**6)
    with pytest.raises(ValueError, match=r"."):
        loads(b"[1]", max_bytes=2)


def test_depth_is_limited_in_records_too() -> None:
    nested: Any = "x"
    for _ in range(5_000):
        nested = [nested]
    deep: Any = tuple[int, ...]
    for _ in range(900):
        deep = tuple[deep, ...]
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(deep, nested)
