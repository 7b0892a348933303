"""Check the parts of all views: consoles, numbers, tables, failed worlds, progress, terminals."""

from __future__ import annotations

import io
import math
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from forked import in_a_child
from golden import drawn, golden
from processes import ESCAPES
from rich.color import Color, ColorSystem
from rich.text import Text

from distdemo.launcher.records import (
    CodeLine,
    Died,
    Lost,
    Outcome,
    Phase,
    Position,
    Raised,
    Returned,
    Stopped,
    TimedOut,
    UserProgram,
    Verdict,
    WorldReport,
    WorldSpec,
)
from distdemo.view import foreign, progress
from distdemo.view import format as fmt
from distdemo.view.blocks import Block, Facts, Fitted, Paragraph, show_blocks
from distdemo.view.code import STYLES, highlighted
from distdemo.view.colours import of_rank
from distdemo.view.console import Signs, in_memory, output, show, signs
from distdemo.view.failure import failure
from distdemo.view.progress import Progress
from distdemo.view.tables import NARROW, Column, Grid, select

GOLDEN = Path(__file__).parent / "golden"
ENTERED = Phase(2, "entered all_reduce")


def stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


def world(outcomes: tuple[Outcome, ...], verdict: Verdict | None) -> WorldReport:
    return WorldReport(WorldSpec(len(outcomes)), outcomes, verdict, 0.5, "fork", "fast")


def script(outcomes: tuple[Outcome, ...], last_call: str = "") -> WorldReport:
    """Return the report of a user's program, whose last ranks left without returning or crashed."""
    where = Position("", CodeLine("train.py", 20, "step"))
    ends = (
        Returned(rank=len(outcomes), at=0.8, left=True),
        Died(rank=len(outcomes) + 1, at=0.9, exit_code=0),
        Died(rank=len(outcomes) + 2, at=1.0, signal=11, where=where),
    )
    every = (*outcomes, *ends)
    if last_call:  # the first rank made none
        line = CodeLine("train.py", 12, "step")
        made = [replace(outcome, last_call=last_call, last_line=line) for outcome in every[1:]]
        every = (every[0], *made)
    program = WorldSpec(len(every), user_program=UserProgram(group=False))
    return replace(world(every, VERDICT), world=program)


# --------------------------------------------------------------------------------------- consoles


def test_what_an_encoding_lacks_is_written_in_another_way_and_never_raises() -> None:
    assert signs(output(stream("UTF-16"))) == Signs()
    file = stream("latin-1")
    console = output(file)
    show(console, Text(f"{signs(console).right} 2(n−1)/n × 16 B in 850 µs, … 雪 \udcff"))
    file.flush()
    text = file.buffer.getvalue().decode("latin-1")  # type: ignore[attr-defined]  # BytesIO
    assert text.startswith("ok 2(n-1)/n")


# ------------------------------------------------------------------------------- numbers as text

CASES: dict[Callable[..., object], list[tuple[Any, object]]] = {
    fmt.number: [(True, "True"), (0.1 + 0.2, "0.3"), (1e20, "1e+20"), (1 - 2j, "1-2j")],
    fmt.duration: [(0.0, "0 µs"), (7020.0, "1.95 h"), (math.inf, "—")],
    fmt.exact_size: [(65532, "65,532 B"), (3 << 19, "1.5 MiB")],
    fmt.percent: [(0.001, "<1%"), (0.0, "0%")],
    fmt.plus_minus: [(0.031, "±3.1%"), (3.0, ">±100%")],
    fmt.digits: [(0.0012, "0.0012"), (0.0, "0.00")],
    fmt.ranks_text: [([], ""), ([0, 2, 3, 5, 4], "0, 2-5")],
    foreign.lines_of: [
        ("a\r\nb\n", ["a", "b"]),
        ("10%\r20%\r", ["20%"]),
        ("\x1b[31mred\x1b[0m\x07", ["red\\x07"]),
        ("", []),
    ],
}
"""Edges that no golden file shows."""


def test_edges_of_numbers_as_text() -> None:
    for function, cases in CASES.items():
        for value, text in cases:
            assert function(value) == text, (function, value)


@pytest.mark.parametrize("longest_s", [0.00057, 0.0138, 0.5, 7.0])
def test_differences_of_times_in_a_column_fit(longest_s: float) -> None:
    unit = fmt.unit_of(longest_s)
    early, late = unit.ticks(0.0749 * longest_s), unit.ticks(0.9996 * longest_s)
    texts = [unit.text(ticks) for ticks in (early, late, late - early)]
    first, last, between = (float(text.split()[0]) for text in texts)
    assert last - first == pytest.approx(between)
    assert {text.split()[1] for text in texts} == {unit.name}


def test_no_line_ends_within_a_formula_or_before_a_unit() -> None:
    cost = "At least 2(n−1)/n × S = 24 B, sent and received by each rank; S = 16 B, one tensor."
    for columns in range(30, 90):
        text = shown(columns, Paragraph(cost), Facts((("Costs", cost),)))
        assert text.count("2(n−1)/n × S = 24 B,") == text.count("S = 16 B,") == 2, text
    too_long = shown(20, Paragraph("a = b + c + d + e + f + g"))
    assert too_long.split() == ["a", "=", "b", "+", "c", "+", "d", "+", "e", "+", "f", "+", "g"]


def shown(columns: int, *blocks: Block) -> str:
    """Return blocks as our own console of this width shows them."""
    console = in_memory(columns)
    show_blocks(console, blocks)
    return cast("io.StringIO", console.file).getvalue()


def test_different_numbers_look_different() -> None:
    assert fmt.distinct(1.0, 2.0) == ("1", "2")
    assert fmt.distinct(0.1, 0.10000001) == ("0.1", "0.10000001")
    assert fmt.distinct("a", 1) == ("a", "1")


# ----------------------------------------------------------------------------------------- tables


def grid(room: int) -> Grid:
    made = Grid([Column("Rank", right=True), Column("Holds", folds=True), Column("Then")])
    for rank in range(2):
        text = Text("\n".join("x" * min(max(room, 9), 30) for _ in range(2)))
        made.rows.append([str(rank), text, "" if rank else "done"])
    return made


def test_the_roomiest_table_that_fits_is_taken() -> None:
    for columns, longest in ((80, 30), (47, 28), (36, 17)):
        text = drawn(lambda _: [Fitted(grid)], columns)
        assert f" {'x' * longest} " in text
        assert "│" in text


def test_where_none_fits_it_becomes_a_list_with_a_line_a_cell() -> None:
    lines = drawn(lambda _: [Fitted(grid)], 26).splitlines()
    holds = [f"  Holds  {'x' * 17}", f"         {'x' * 17}"]
    assert lines[:5] == ["Rank 0", *holds, "  Then   done", "Rank 1"]
    assert len(lines) == 7, "an empty cell has no line"


def test_a_table_that_can_not_fold_becomes_a_list_rather_than_lose_the_end_of_a_number() -> None:
    wide = Grid([Column("Rank"), *(Column(f"Time {place}") for place in range(8))])
    wide.rows.append(["0", *(f"{place}.123456 ms" for place in range(8))])
    text = drawn(lambda _: [wide], NARROW + 10)
    assert all(f"{place}.123456 ms" in text for place in range(8))


def test_of_many_ranks_the_ends_and_the_odd_ones_are_shown() -> None:
    ranks = [Returned(rank=rank) for rank in range(20)]

    items = select(ranks, lambda outcome: outcome.rank == 9)
    shown = [-item if isinstance(item, int) else item.rank for item in items]
    assert shown == [0, 1, 2, 3, -5, 9, -6, 16, 17, 18, 19], "negative: the number left out"


# ---------------------------------------------------------------------------------------- failure

TRACE = "Traceback (most recent call last):\n  line 1\nValueError: [no] such batch\n"
OUTCOMES: tuple[Outcome, ...] = (
    Raised(
        rank=0,
        phase=ENTERED,
        at=0.2,
        type="RuntimeError",
        message="Connection closed by peer\nmore",
        traceback="",
        consequence=True,
    ),
    Raised(
        rank=1,
        phase=ENTERED,
        at=0.1,
        type="ValueError",
        message="[no] such batch" + " very" * 60,
        traceback=TRACE,
        output="one\ntwo\nthree\nfour\nfive\nsix\n",
    ),
    Died(rank=2, phase=ENTERED, at=0.3, signal=9),
    Stopped(rank=3, phase=ENTERED, at=0.4),
    TimedOut(
        rank=4,
        phase=ENTERED,
        at=0.5,
        where=Position("all_reduce", CodeLine("train.py", 12, "step")),
    ),
    Returned(rank=5, at=0.6),
    Died(rank=6, at=0.7, exit_code=3),
)
VERDICT = Verdict(
    "Rank 1 raised ValueError: [no] such batch",
    "It had got as far as: entered all_reduce.",
    "",
    (1,),
    (0, 2, 3, 4),
    TRACE,
)
MANY = tuple(Died(rank=r, at=0.1, signal=9) if r == 200 else Stopped(rank=r) for r in range(256))
AFAR = (
    Stopped(rank=0, phase=ENTERED, at=9.0),
    Lost(rank=1, at=8.9, why="no sign of life on node-b for 8 s", hint="Try."),
)
FAILURES = {
    "failure": world(OUTCOMES, VERDICT),
    "failure_of_many": world(
        MANY, Verdict("Rank 200 was killed by SIGKILL.", "Why.", "Hint.", (200,))
    ),
    "failure_afar": replace(
        world(AFAR, Verdict("Rank 1: no sign of life.", "Why.", "Try.", (1,), (0,))),
        hosts=("node-a", "node-b"),
    ),
    "failure_of_a_script": script(OUTCOMES, "all_reduce at train.py:12 in step (call 2)"),
    "failure_of_a_script_without_calls": script(OUTCOMES),
    "deadlock": world(
        tuple(TimedOut(rank=r, phase=ENTERED, where=Position("send", CodeLine())) for r in (0, 1)),
        Verdict("Timed out: Ranks 0, 1 wait for each other.", "Why.", "A deadlock.", (), (0, 1)),
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_world(name: str) -> None:
    golden(GOLDEN / f"{name}.txt", lambda sign: failure(FAILURES[name], sign))


def test_the_traceback_is_shown_where_it_was_asked_for() -> None:
    text = drawn(lambda sign: failure(FAILURES["failure"], sign, traceback=True))
    assert "Traceback (most recent call last):" in text
    assert "Add --traceback" not in text


# --------------------------------------------------------------------------------------- progress


def written(block: Callable[[], None]) -> str:
    """Return what a function writes to standard error, in a process of its own."""

    def run() -> str:
        reader, writer = os.pipe()
        os.dup2(writer, 2)
        block()
        os.dup2(1, 2)
        os.close(writer)
        with os.fdopen(reader, newline="") as file:
            return file.read()

    return str(in_a_child(run))


def wait_for_signal() -> None:
    """Wait for a signal: the timer that draws."""
    signal.pause()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make progress take standard error for a terminal and draw immediately."""
    monkeypatch.setattr(progress, "visible", lambda: True)
    monkeypatch.setattr(progress, "DELAY_S", 0.01)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.processes
@pytest.mark.usefixtures("terminal")
def test_progress_is_drawn_without_a_thread_and_wiped_also_after_an_error() -> None:
    def block() -> None:
        before = os.listdir("/proc/self/task")
        with suppress(KeyboardInterrupt), Progress(4000) as bar:
            bar.advance(1200, 3, "all_gather/[b]single" + "/long" * 60)
            wait_for_signal()
            assert os.listdir("/proc/self/task") == before
            raise KeyboardInterrupt

    text = written(block)
    assert "1200/4000, 3 failed: all_gather/[b]single/long" in text
    assert "\n" not in text
    assert max(map(len, text.split("\r\x1b[2K"))) <= 80  # cut, not broken
    assert text.endswith("\r\x1b[2K")


@pytest.mark.processes
@pytest.mark.usefixtures("terminal")
def test_a_forked_rank_draws_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    def block() -> None:
        with Progress(40) as bar:
            monkeypatch.setattr(os, "getpid", lambda: -1)
            bar.advance(1, 0, "scatter")
            wait_for_signal()

    assert "scatter" not in written(block)


# ------------------------------------------------------------------------------ real terminals


@pytest.mark.processes
def test_a_terminal_gets_a_spinner_while_it_takes_long_and_colours_for_the_ranks(start):
    words = ("barrier", "-n", "2", "--straggler", "1:0.8")
    terminal = start.terminal("distdemo", *words, env={"COLORTERM": ""})
    assert terminal.end() == 0, terminal.raw
    text = terminal.raw
    of_256 = Color.parse(of_rank(0)).downgrade(ColorSystem.EIGHT_BIT)
    assert f"\x1b[{';'.join(of_256.get_ansi_codes())}m" in text
    assert "2 ranks over gloo (" in text
    assert text.index("2 ranks over gloo (") < text.rindex("\x1b[2K") < text.index("Verified")


@pytest.mark.processes
def test_no_line_is_wider_than_the_terminal_and_no_color_is_respected(start):
    words = ["all-gather", "-n", "2"]
    env = {"COLUMNS": "40", "NO_COLOR": "1"}
    terminal = start.terminal("distdemo", *words, env=env)
    assert terminal.end() == 0, terminal.raw
    assert "\x1b[3" not in terminal.raw
    shown = ESCAPES.sub("", terminal.raw.rpartition("\x1b[2K")[2])
    assert max(map(len, shown.splitlines())) <= 40


@pytest.mark.parametrize(
    "code",
    [
        "for i in x:\n    y  # why\n\n",
        "",
        "\n\nx\n",
        '"""a\nb"""\n',
        "x = 1 +",
        "\tif x",
        "é\x1b[1m'",
    ],
)
def test_highlighted_code_is_the_same_text(code: str) -> None:
    text = highlighted(code)
    assert text.plain == code
    assert {span.style for span in text.spans} <= {*STYLES.values()}
    assert bool(text.spans) == any(word in code for word in ("for", '"', "1", "if"))
