from __future__ import annotations

import math

import pytest
from distdemo.demo.holdings import Piece
from hypothesis import given, settings
from hypothesis import strategies as st

from distdemo.ops.spec import Number
from distdemo.view.console import ASCII_SIGNS, Signs
from distdemo.view.numbers import distinct, duration, number, piece_text, plural, shape_text, size


def shown(piece: Piece, signs: Signs | None = None, room: int = 60) -> str:
    return piece_text(piece, signs or Signs(), "", room).plain


def row(*numbers: Number) -> Piece:
    return Piece((len(numbers),), numbers)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (-(2**63), "-9223372036854775808"),
        (3.0, "3"),
        (-0.5, "-0.5"),
        (1 / 3, "0.333333"),
        (1234567.0, "1234567"),
        (1.5e30, "1.5e+30"),
        (1e-8, "1e-08"),
        (True, "True"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (1 + 2j, "1+2j"),
        (0.5 - 2j, "0.5-2j"),
        (complex(math.nan, -math.inf), "nan-infj"),
        (complex(0, -0.0), "0-0j"),
    ],
)
def test_a_number_is_short_and_whole_where_it_is_whole(value: Number, text: str) -> None:
    assert number(value) == text


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.floats(), st.integers(-(2**63), 2**63), st.complex_numbers(), st.booleans()))
def test_every_number_has_a_text_that_reads_back_as_nearly_the_same(value: Number) -> None:
    text = number(value)
    if isinstance(value, bool):
        assert text == str(value)
        return
    again = complex(text)
    for mine, theirs in ((again.real, complex(value).real), (again.imag, complex(value).imag)):
        both_nan = math.isnan(mine) and math.isnan(theirs)
        assert both_nan or mine == theirs or math.isclose(mine, theirs, rel_tol=1e-5)


def test_a_tensor_is_nested_like_its_shape() -> None:
    assert shown(row(1.0, 2.0)) == "[1 2]"
    assert shown(Piece((), (5.0,))) == "5"
    assert shown(Piece((2, 2), (0, 1, 2, 3))) == "[[0 1] [2 3]]"
    assert shown(Piece((2, 1, 2), (0, 1, 2, 3))) == "[[[0 1]] [[2 3]]]"
    assert shown(row()) == "[]"


def test_a_long_tensor_shows_its_ends() -> None:
    assert shown(row(*range(7, 24))) == "[7 8 … 22 23]"
    assert shown(row(*range(17)), ASCII_SIGNS) == "[0 1 ... 15 16]"
    cut = Piece((5000,), tuple(range(16)), tuple(range(4984, 5000)))
    assert shown(cut) == "[0 1 … 4998 4999]"


def test_a_short_tensor_that_is_too_wide_shows_its_ends_too() -> None:
    assert shown(row(*range(10)), room=60) == "[0 1 2 3 4 5 6 7 8 9]"
    assert shown(row(*range(10)), room=17) == "[0 1 2 … 7 8 9]"
    assert shown(row(*range(10)), room=0) == "[0 … 9]"


def test_a_number_is_never_cut_however_little_room_there_is() -> None:
    assert shown(row(*[-1.23456e-30] * 20)) == "[-1.23456e-30 … -1.23456e-30]"
    assert shown(row(-1.23456e-30, 2.0), room=0) == "[-1.23456e-30 2]"
    assert shown(row(123456789), room=0) == "[123456789]"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (0.00085, "850 µs"),
        (0.0123, "12.3 ms"),
        (0.5, "500 ms"),
        (1.2, "1.20 s"),
        (90.0, "90.0 s"),
        (300.0, "300 s"),
    ],
)
def test_a_duration_is_in_the_unit_that_people_read(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("seconds", [0.0009996, 0.99996, 0.9996])
def test_a_duration_that_is_rounded_up_takes_the_next_unit(seconds: float) -> None:
    assert not duration(seconds).startswith("1000")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (16, "16 B"),
        (1000, "1 kB"),
        (1024, "1.024 kB"),
        (1.5e6, "1.5 MB"),
        (2e9, "2 GB"),
    ],
)
def test_a_size_is_in_decimal_units(count: float, text: str) -> None:
    assert size(count) == text


def test_shapes_and_plurals_are_words() -> None:
    assert shape_text("float32", (2, 3)) == "float32[2, 3]"
    assert shape_text("float32", ()) == "float32[]"
    assert plural(1, "rank") == "1 rank"
    assert plural(1024, "rank") == "1,024 ranks"


def test_two_numbers_have_the_digits_that_tell_them_apart_and_texts_stay() -> None:
    assert distinct(1.0, 2.0) == ("1", "2")
    one, other = distinct(0.3333333333, 0.3333333334)
    assert one != other
    assert distinct('"a"', "1") == ('"a"', "1")


def test_an_empty_tensor_is_a_pair_of_brackets_however_little_room_there_is() -> None:
    for room in (60, 17, 0):
        assert shown(Piece((0,), ()), room=room) == "[]"
    assert shown(Piece((2, 0), ())) == "[[] []]"
    assert shown(Piece((0, 3), ())) == "[]"
