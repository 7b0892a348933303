from __future__ import annotations

import io
import math
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdemo import ops
from distdemo.demo.values import check_fit, misfit, parse_number, parse_values, roomier
from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.buffers import held_before
from distdemo.ops.spec import Number, OpSpec


def refused(given_values: list[str]) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_values(given_values)
    error = caught.value
    for line in (error.what, error.why, error.hint):
        assert line.strip()
        assert "\n" not in line
    return error


# ------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3),
        (" -3 ", -3),
        ("3.0", 3.0),
        ("-1.5", -1.5),
        ("1e-3", 1e-3),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
        ("1+2j", 1 + 2j),
        ("true", True),
        ("False", False),
    ],
)
def test_a_number_is_written_as_people_write_it(text: str, number: Number) -> None:
    parsed = parse_number(text)
    assert parsed == number
    assert type(parsed) is type(number)


@pytest.mark.parametrize("text", ["", "x", "1,2", "0x10", "--1", "yes", "1 2"])
def test_what_is_no_number_is_none(text: str) -> None:
    assert parse_number(text) is None


# ---------------------------------------------------------------------------------------- rows


def test_without_the_flag_there_are_no_rows() -> None:
    assert parse_values(None) is None
    assert parse_values([]) is None


def test_a_row_is_separated_by_commas_or_spaces() -> None:
    assert parse_values(["1,2, 3", "4 5 6"]) == [(1, 2, 3), (4, 5, 6)]
    assert parse_values(["7"]) == [(7,)]


def test_a_file_has_a_row_a_line_with_comments_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_text("# rank 0 first\n1,2\n\n   # indented\n 3 4 \r\n")
    assert parse_values([str(file)]) == [(1, 2), (3, 4)]


def test_a_file_written_on_windows_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_bytes("1,2\r\n3,4\r\n".encode("utf-8-sig"))
    assert parse_values([str(file)]) == [(1, 2), (3, 4)]


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("1 2\n3 4\n"))
    assert parse_values(["-"]) == [(1, 2), (3, 4)]


def test_an_empty_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "standard input holds no line of numbers" in refused(["-"]).what


def test_a_wrong_word_is_named_with_the_line_that_it_is_in(tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_text("# two ranks\n1,2\n3,four\n")
    assert refused([str(file)]).what.endswith("line 3: 'four' is no number.")


def test_neither_numbers_nor_a_file_is_refused() -> None:
    error = refused(["1,2,tree"])
    assert "neither numbers nor a file" in error.what
    assert "'tree' is no number" in error.why


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing\n", " \n"])
def test_a_file_without_numbers_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_text(content)
    assert "holds no line of numbers" in refused([str(file)]).what


def test_a_file_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    assert "can't be read" in refused([str(tmp_path)]).what
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    assert "can't be read" in refused([str(binary)]).what


@pytest.mark.parametrize("given_values", [["1", "x"], ["1", ""], ["x", "1"], [""], [" "], [","]])
def test_rows_that_are_none_are_refused(given_values: list[str]) -> None:
    refused(given_values)


# ------------------------------------------------------------------------------------- fitting


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (1.5, "int32"),
        (math.nan, "int32"),
        (math.inf, "int64"),
        (128, "int8"),
        (-129, "int8"),
        (-1, "uint8"),
        (2**63, "int64"),
        (2, "bool"),
        (0.5, "bool"),
        (math.nan, "bool"),
        (1j, "float32"),
        (1j, "int8"),
        (2**24 + 1, "float32"),
        (2**53 + 1, "float64"),
        (2049, "float16"),
        (1e5, "float16"),
        (1e39, "float32"),
        (10**400, "float64"),
        (complex(1e300, 0), "complex64"),
        (complex(0, -1e300), "complex64"),
    ],
)
def test_a_number_that_the_type_can_not_hold_is_refused_with_a_reason(
    number: Number, dtype: str
) -> None:
    reason = misfit(number, DTYPES[dtype])
    assert reason is not None
    assert reason.endswith(".")
    assert roomier(number).startswith("Try --dtype ")
    with pytest.raises(UsageError, match="in row 1"):
        check_fit([(1,), (number,)], dtype)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (1.0, "int32"),
        (True, "int8"),
        (127, "int8"),
        (-128, "int8"),
        (1, "bool"),
        (0.0, "bool"),
        (0.1, "bfloat16"),
        (math.nan, "float16"),
        (-math.inf, "float16"),
        (2**24 + 2, "float32"),
        (2**70, "float64"),
        (1.5, "complex64"),
        (1j, "complex128"),
        (complex(math.inf, math.nan), "complex64"),
    ],
)
def test_a_number_that_the_type_can_hold_fits(number: Number, dtype: str) -> None:
    assert misfit(number, DTYPES[dtype]) is None
    check_fit([(number,)], dtype)


@settings(deadline=None, max_examples=300)
@given(
    number=st.one_of(
        st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.complex_numbers()
    ),
    dtype=st.sampled_from(sorted(DTYPES)),
)
def test_whatever_fits_torch_takes_and_keeps(number: Number, dtype: str) -> None:
    # What is let through here is put into a tensor by a rank, where it is too late to complain.
    if misfit(number, DTYPES[dtype]) is not None:
        return
    spec = OpSpec("p2p", 2, dtype, (1,), values=((number,), (number,)))
    held = held_before(ops.REGISTRY["p2p"], 0, spec)[0].item()
    if isinstance(number, int) or DTYPES[dtype].kind in ("int", "bool"):
        assert held == number


def test_rows_of_unequal_length_are_refused_by_number() -> None:
    with pytest.raises(UsageError, match="row 0 has 2 numbers, row 2 has 1 number"):
        check_fit([(1, 2), (3, 4), (5,)], "float32")


def test_with_uneven_tensors_they_are_not_and_a_row_may_be_empty() -> None:
    assert parse_values(["1,2", "", "3"], uneven=True) == [(1, 2), (), (3,)]
    check_fit([(1, 2), (), (3,)], "float32", uneven=True)
    with pytest.raises(UsageError, match="300 in row 2"):
        check_fit([(1, 2), (), (300,)], "uint8", uneven=True)


def test_a_row_that_is_no_number_is_refused_with_uneven_tensors_too() -> None:
    with pytest.raises(UsageError, match="'x' is no number"):
        parse_values(["1,2", "x"], uneven=True)
