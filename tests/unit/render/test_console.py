from __future__ import annotations

import dataclasses
import io

import pytest
from rich.box import MINIMAL
from rich.panel import Panel
from rich.text import Text

from distdemo.view.console import ASCII_SIGNS, Signs, output, show, signs


def stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


def test_what_is_no_terminal_is_80_columns_wide_and_has_no_colours() -> None:
    console = output(io.StringIO())
    assert console.width == 80
    assert console.color_system is None


def test_the_user_may_say_how_wide_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert output(io.StringIO()).width == 120


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-16", "utf-8-sig"])
def test_unicode_gets_the_fine_signs(encoding: str) -> None:
    assert signs(output(stream(encoding))) == Signs()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_everything_else_gets_plain_ones(encoding: str) -> None:
    plain = signs(output(stream(encoding)))
    assert plain == ASCII_SIGNS
    words = dataclasses.astuple(plain)
    assert all(word.isascii() for word in words)


def test_brackets_in_numbers_and_messages_are_no_markup() -> None:
    text = io.StringIO()
    output(text).print("[red]1[/red] :smile:")
    assert text.getvalue() == "[red]1[/red] :smile:\n"


def test_a_file_gets_no_blanks_at_the_ends_of_its_lines() -> None:
    text = io.StringIO()
    show(output(text), Panel("one\n\nthree", box=MINIMAL))
    assert "three" in text.getvalue()
    assert all(line == line.rstrip() for line in text.getvalue().split("\n"))
    assert text.getvalue().endswith("\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_an_encoding_lacks_is_written_in_another_way_and_never_raises(encoding: str) -> None:
    file = stream(encoding)
    show(output(file), Text("2(n−1)/n × 16 B in 850 µs, … 雪"))
    file.flush()
    written = file.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]  # BytesIO
    assert "(n-1)/n" in written
    assert "16 B in 850" in written


def test_a_name_that_is_no_text_can_still_be_shown() -> None:
    # A file name on the command line may hold any bytes; Python smuggles them as surrogates.
    file = stream("utf-8")
    show(output(file), Text("--values \udcff: no such file"))
    file.flush()
    assert b"no such file" in file.buffer.getvalue()  # type: ignore[attr-defined]  # BytesIO
