from __future__ import annotations

import json

import pytest

from distdemo.launcher.failures import excerpt

HERE = f'File "{__file__}"'


def told(work):
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it is
        work()
    return excerpt(caught.value)


def test_the_frames_of_libraries_are_left_out():
    def load():
        json.loads("[1,")

    text = told(load)
    assert HERE in text
    assert "json.loads" in text  # the user's line
    assert "decoder.py" not in text
    assert text.strip().endswith("Expecting value: line 1 column 4 (char 3)")


def test_also_of_what_it_came_from():
    def load():
        try:
            json.loads("[1,")
        except ValueError as error:
            raise KeyError("no data") from error

    text = told(load)
    assert text.count(HERE) >= 2
    assert "direct cause" in text
    assert "decoder.py" not in text


def test_also_of_what_came_while_it_was_handled():
    def load():
        try:
            json.loads("[1,")
        except ValueError:
            [].pop()

    text = told(load)
    assert "During handling" in text
    assert "decoder.py" not in text


def test_an_error_without_a_line_of_the_users_keeps_all():
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("[1,")
    trace = caught.value.__traceback__
    assert trace is not None
    caught.value.__traceback__ = trace.tb_next  # as if a library had called it
    assert "decoder.py" in excerpt(caught.value)


def test_thousands_of_errors_that_came_from_each_other_end():
    error: BaseException = ValueError("the first")
    for number in range(3000):
        later = KeyError(number)
        later.__cause__ = error
        error = later
    assert "KeyError: 2999" in excerpt(error)


def test_errors_that_hold_each_other_end():
    error = ValueError("one")
    error.__context__ = KeyError("two")
    error.__context__.__context__ = error
    assert "ValueError: one" in excerpt(error)
