from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from distdemo.errors import UsageError
from distdemo.view.document import dumps, error_document


def written(document: Any) -> Any:
    """The document as a reader gets it: every parser has to take it."""

    def reject(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(dumps(document), parse_constant=reject)


TEXT = st.one_of(
    st.text(), st.text(alphabet='[]{},:\n\t "\\0123456789.eE+-'), st.just("[\n  1,\n  2\n]")
)
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXT,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=20,
)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(TEXT, JSON, max_size=5))
def test_whatever_goes_in_comes_out(document: dict[str, Any]) -> None:
    assert json.loads(dumps(document)) == document


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(max_size=3), st.lists(st.one_of(st.floats(), st.complex_numbers()))))
def test_no_number_breaks_the_document(document: dict[str, Any]) -> None:
    written(document)


def test_nan_infinities_and_complex_numbers_are_strings() -> None:
    document = {
        "a": [math.nan, math.inf, -math.inf, 1.5],
        "b": 1 - 2j,
        "c": (1j,),
    }
    assert written(document) == {
        "a": ["NaN", "Infinity", "-Infinity", 1.5],
        "b": "1-2j",
        "c": ["1j"],
    }


def test_an_array_of_numbers_is_one_line_and_one_of_arrays_is_not() -> None:
    text = dumps({"held": [[1, 2.5], [-3e-9, 4]], "empty": [], "words": ["a", "b"]})
    assert "[1, 2.5]" in text
    assert "[-3e-09, 4]" in text
    assert '"words": [\n' in text


def test_line_breaks_and_brackets_in_a_text_are_no_arrays() -> None:
    text = dumps({"why": "lost [\n1,\n2]"})
    assert "lost [\\n1,\\n2]" in text


def test_a_document_can_be_written_whatever_the_encoding() -> None:
    text = dumps({"why": "2(n−1)/n × 雪"})
    assert text.isascii()
    assert json.loads(text) == {"why": "2(n−1)/n × 雪"}


def test_a_name_that_is_no_text_still_makes_a_document_that_can_be_written() -> None:
    # A file name on the command line may hold any bytes; Python smuggles them as surrogates.
    document = error_document("all-reduce", UsageError("--values \udcff: no such file"))
    assert json.loads(dumps(document).encode("utf-8"))["ok"] is False
