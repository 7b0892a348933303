"""Check that text from outside never controls the terminal, wherever it comes from."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from processes import Command
from rich.console import Console
from rich.table import Table
from rich.text import Text

from distdemo.encoding import dumps
from distdemo.errors import UsageError
from distdemo.launcher.records import (
    CodeLine,
    Died,
    Lost,
    Phase,
    Position,
    Raised,
    TimedOut,
    Verdict,
    WorldReport,
    WorldSpec,
)
from distdemo.view.blocks import show_blocks
from distdemo.view.console import as_text, output, show, signs
from distdemo.view.failure import failure, show_error
from distdemo.view.foreign import lines_of, one_line, printable

# CSI, OSC 52 and OSC 8, their C1 forms, what moves the cursor, what reorders, what ends a line.
HOSTILE = (
    "a\x1b[2J\x1b]52;c;cm0=\x07b\x1b]8;;http://x\x1b\\c\x9b2Jd\x9d0;t\x9ce\x08\rf\x00\x7f"
    "\u202eg\u2066h\u2028i\u2029j\udc80k\ufffe\uffff[red]l[/red][link=http://x]m"
)
SEEN = "[red]l[/red][link=http://x]m"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Written again, not imported: newline and tab are all that may control a terminal.
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def controls(text: str) -> list[str]:
    return CONTROLS.findall(text)


class Stream(io.TextIOWrapper):
    """Stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return the text that a colour terminal of 100 columns gets, without the colours."""

    def text_of(draw: Callable[[Console], Any]) -> str:
        stream = Stream(io.BytesIO(), encoding="utf-8")
        console = output(stream)
        view = draw(console)
        if isinstance(view, Iterator):
            show_blocks(console, view)
        else:
            show(console, view)
        stream.flush()
        return COLOURS.sub("", stream.buffer.getvalue().decode())  # type: ignore[attr-defined]  # BytesIO

    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return text_of


# --------------------------------------------------------------------------------- the function


@given(st.text(st.characters()))
@example(HOSTILE)
def test_printable_text_controls_nothing_and_is_not_changed_again(text: str) -> None:
    shown = printable(text)
    assert controls(shown) == []
    assert printable(shown) == shown
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert shown.count("\n") == text.count("\n")
    assert shown.count("\t") == text.count("\t")
    if not controls(text) and not set("\u061c\u200e\u200f") & set(text):
        assert shown == text
    assert len(one_line(text).splitlines()) <= 1
    assert not any(controls(line) for line in lines_of(text))


@given(st.text(st.characters()))
@example(HOSTILE)
def test_json_is_exact_and_controls_nothing(text: str) -> None:
    written = dumps({"text": text, text: 1})
    assert json.loads(written) == {"text": text, text: 1}
    assert controls(written) == []


# ----------------------------------------------------------------------------------- the consoles


def test_styles_stay_where_they_are_and_tables_keep_their_columns(on_a_terminal: Any) -> None:
    def draw(_):
        table = Table(title=HOSTILE, caption=Text(HOSTILE))
        table.add_column(HOSTILE)
        table.add_column("then")
        table.add_row(HOSTILE, Text(HOSTILE, style="red"))
        table.add_row("1", Text("\x1b") + Text("b", style="bold"))
        return table

    text = on_a_terminal(draw)
    assert controls(text) == []
    rows = [line for line in text.splitlines() if line.startswith(("│", "┃", "├", "└"))]
    assert len({len(line) for line in rows}) == 1
    assert "\\x1bb" in text
    assert controls(as_text(draw)) == []


# ------------------------------------------------------------------------------- errors and ranks


def failed_world(world: WorldSpec) -> WorldReport:
    verdict = Verdict(HOSTILE, HOSTILE, HOSTILE, (0,), (1,), HOSTILE)
    all_of_them: dict[str, Any] = {"at": 0.1, "phase": Phase(0, HOSTILE), "output": HOSTILE}
    outcomes = (
        Raised(rank=0, type=HOSTILE, message=HOSTILE, traceback=HOSTILE, **all_of_them),
        Died(rank=1, exit_code=1, message=HOSTILE, **all_of_them),
        TimedOut(rank=2, where=Position(HOSTILE, CodeLine(HOSTILE, 1, HOSTILE)), **all_of_them),
        Lost(rank=3, why=HOSTILE, hint=HOSTILE, **all_of_them),
    )
    return WorldReport(world, outcomes, verdict, 0.5, "fork", HOSTILE, hosts=(HOSTILE,) * 4)


def test_a_failed_world(on_a_terminal: Any) -> None:
    report = failed_world(WorldSpec(4))
    text = on_a_terminal(lambda console: failure(report, signs(console), traceback=True))
    assert controls(text) == []
    assert SEEN in text
    assert controls(on_a_terminal(lambda _: HOSTILE)) == []


def test_an_error_has_three_lines_whatever_it_says(capfd) -> None:
    assert one_line("a\n  b\tc\r\x9b\udc80\u202e") == "a b c\\r\\x9b\\udc80\\u202e"
    show_error(UsageError("a\nb\x1b[2J", "c\r\nd", "e\u2028f\n"))
    assert capfd.readouterr().err == "a b\\x1b[2J\nc\\r d\ne\\u2028f\n"


@pytest.mark.processes
def test_a_program_of_the_user(tmp_path: Path, command: Command) -> None:
    file = tmp_path / "evil\x1b[2J\u202e.py"
    file.write_text(
        f"import sys\nWORDS = {HOSTILE!r}\n"
        "def wörk():\n    print(WORDS, file=sys.stderr)\n    raise ValueError(WORDS)\n"
        "def left():\n    sys.exit(WORDS)\n",
        encoding="utf-8",
    )
    for function, line in (("wörk", ["--traceback"]), ("left", ["--format", "json"])):
        code, out, err = command("run", f"{file}:{function}", "-n", "1", *line)
        assert code == 1
        assert controls(out + err) == [], line
        assert SEEN in out


# ---------------------------------------------------------------------- command lines, documents


LINES = (
    [HOSTILE],
    ["all-reduce", HOSTILE],
    ["all-reduce", f"--{HOSTILE}"],
    ["all-reduce", "-n", HOSTILE, "--format", "json"],
    ["bench", "--sizes", HOSTILE],
    ["bench", "compare", f"{HOSTILE}.json", "other.json"],
    ["run", HOSTILE.replace("\0", "")],
    ["run", "-m", HOSTILE],
    ["run", "x.py:work", HOSTILE],
    ["all-reduce", "--output", f"{HOSTILE}.json".replace("\0", "")],
)


@pytest.mark.usefixtures("no_rank_starts")
def test_words_of_the_command_line(command: Command) -> None:
    for line in LINES:
        code, out, err = command(*line)
        assert code == 2, line
        assert controls(out + err) == []
        if "json" not in line:
            assert err.count("\n") >= 2
