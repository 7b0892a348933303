from __future__ import annotations

import io
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from distdemo.demo.reports import CaseResult, CheckReport, Status

from distdemo.check.view_grid import check_grid, verdict_line
from distdemo.dtypes import DTYPES, short
from distdemo.view.console import ASCII_SIGNS, Signs, output, show

Make = Callable[..., Any]

MANY = (*DTYPES, "none", "object")
NASTY = "[bold]one\n\x1b[31mtwo\x1b[0m\rthree \udcff\x07 雪"


def case(number: int, status: Status = "passed", **more: Any) -> CaseResult:
    fields: dict[str, Any] = {
        "id": f"all_gather/single/int32/n3/{number}",
        "op": "all_gather",
        "form": "single",
        "dtype": "int32",
        "world_size": 3,
        **more,
    }
    return CaseResult(status=status, **fields)


def report(*results: CaseResult, **more: Any) -> CheckReport:
    fields: dict[str, Any] = {
        "backend": "gloo",
        "device": "cpu",
        "scope": "quick",
        "seed": 7,
        "results": results,
        "seconds": 12.34,
        "worlds": 6,
        "versions": {"distdemo": "1.2.3"},
        **more,
    }
    return CheckReport(**fields)


def matrix(*dtypes: str) -> list[CaseResult]:
    ops = [("all_reduce", "tensor"), ("reduce_scatter", "single"), ("barrier", "tensor")]
    return [
        case(0, id=f"{op}/{form}/{dtype}", op=op, form=form, dtype=dtype)
        for op, form in ops
        for dtype in dtypes
    ]


def drawn_at(width: int, made: CheckReport, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    console = output(stream)
    show(console, check_grid(made, console))
    assert max(map(len, stream.getvalue().splitlines())) <= width
    return stream.getvalue()


def row(text: str, name: str) -> list[str]:
    """The cells of this row of the grid."""
    line = next(line for line in text.splitlines() if line.startswith(name))
    return line.removeprefix(name).split("  ")[1:]


# ------------------------------------------------------------------------------------ the matrix


def test_the_heading_says_what_was_checked_and_where(draw: Make) -> None:
    text = draw(lambda console: check_grid(report(case(1), case(2)), console))
    assert text.splitlines()[0] == "check · quick · 2 cases · gloo · cpu"


@pytest.mark.parametrize(
    ("statuses", "cell"),
    [
        (["passed"] * 12, "✓ 12"),
        (["passed"] * 10 + ["failed"] * 2, "✗ 2/12"),
        (["failed"] * 3, "✗ 3"),
        (["not supported"] * 4, "—"),
        (["passed", "not supported", "not supported"], "✓ 1/3"),
        (["not run"] * 2, "? 2"),
        (["passed", "not run"], "? 1/2"),
    ],
)
def test_a_cell_counts_what_is_wrong_else_what_passed(
    statuses: list[Status], cell: str, draw: Make
) -> None:
    results = [case(number, status) for number, status in enumerate(statuses)]
    text = draw(lambda console: check_grid(report(*results), console))
    assert row(text, "all_gather single") == [cell]


def test_a_cell_with_failures_tells_of_cases_that_did_not_run_too(draw: Make) -> None:
    results = [case(1, "failed"), case(2, "not run"), case(3)]
    lines = draw(lambda console: check_grid(report(*results), console)).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("all_gather single"))
    assert lines[at].endswith("✗ 1/3")
    assert lines[at + 1].strip() == "? 1/3"


def test_dtypes_have_short_names_in_the_order_of_their_table(draw: Make) -> None:
    results = matrix("object", "int64", "bool", "bfloat16", "float32")
    text = draw(lambda console: check_grid(report(*results), console))
    assert text.splitlines()[1].split() == ["f32", "bf16", "i64", "bool", "object"]
    assert short("bool") == "bool"  # its alias is longer
    assert short("none") == "none"


def test_the_legend_explains_every_sign(draw: Make) -> None:
    text = draw(lambda console: check_grid(report(case(1)), console))
    for sign in ("✓ passed", "✗ failed", "? not run", "— not supported"):
        assert sign in text


def test_many_dtypes_are_spread_over_several_grids_of_80_columns(draw: Make) -> None:
    text = draw(lambda console: check_grid(report(*matrix(*MANY)), console))
    assert 2 <= text.count("all_reduce tensor") <= 3
    shown = [word for line in text.splitlines() if line.startswith(" ") for word in line.split()]
    assert shown == [short(d) for d in [*DTYPES, *sorted(set(MANY) - set(DTYPES))]]


def test_a_grid_leaves_out_the_rows_that_have_no_case_in_it(draw: Make) -> None:
    alone = case(0, op="barrier", form="tensor", dtype="none")
    results = [*matrix(*MANY[:16])[:32], alone]
    text = draw(lambda console: check_grid(report(*results), console))
    assert text.count("all_reduce tensor") == 2
    assert text.count("barrier tensor") == 1


def test_a_wide_terminal_gets_one_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn_at(200, report(*matrix(*MANY)), monkeypatch)
    assert text.count("all_reduce tensor") == 1


def test_a_narrow_terminal_gets_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [*matrix(*MANY), case(1, "failed"), case(2), case(3, "not run")]
    lines = drawn_at(40, report(*results), monkeypatch).splitlines()
    at = lines.index("all_gather single")
    assert lines[at + 1 : at + 4] == ["  ✓ 1/3: i32", "  ✗ 1/3: i32", "  ? 1/3: i32"]
    assert "  ✓ 1: f32, f64, f16, bf16, i8, u8, i16," in lines


def test_a_terminal_too_narrow_for_one_column_gets_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reduce_scatter single\n  ✓ 1: i32\n" in drawn_at(
        24, report(*matrix("int32")), monkeypatch
    )


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_nothing_is_wider_than_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = case(
        1, "failed", why="it was " * 40 + NASTY, command="distdemo check", details=(NASTY * 30,)
    )
    drawn_at(width, report(*matrix(*MANY), bad), monkeypatch)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_plain_encodings_get_plain_signs(encoding: str, draw: Make) -> None:
    results = [case(1), case(2, "failed", dtype="int8"), case(3, "not supported", dtype="bool")]
    text = draw(lambda console: check_grid(report(*results), console), encoding)
    assert row(text.replace("|", " "), "all_gather single")
    for cell in ("WRONG 1", "ok 1", "ok passed", "WRONG 1 of 2 cases failed."):
        assert cell in text
    assert "? failed" not in text


# ------------------------------------------------------------------------------- under the matrix


def test_reasons_are_told_once_with_their_ops_and_dtypes_the_commonest_first(draw: Make) -> None:
    results = [
        case(0),
        case(1, "not supported", why="gloo has no AVG.", op="reduce"),
        case(2, "not supported", why="no such kernel", dtype="bool"),
        case(3, "not supported", why="no such kernel", dtype="int8"),
        case(4, "not run", why="its world died"),
    ]
    text = draw(lambda console: check_grid(report(*results), console))
    lines = [
        "— 2 cases not supported: no such kernel (all_gather; i8, bool)",
        "— 1 case not supported: gloo has no AVG (reduce; i32)",
        "? 1 case not run: its world died (all_gather; i32)",
    ]
    assert "\n".join(lines) in text


def test_long_lists_of_dtypes_and_of_reasons_are_cut(draw: Make) -> None:
    results = [case(0)]
    results += [case(n, "not supported", why="no", dtype=d) for n, d in enumerate(MANY)]
    results += [case(n, "not supported", why=f"reason {n}") for n in range(20)]
    text = draw(lambda console: check_grid(report(*results), console))
    assert "(all_gather; f32, f64, f16, bf16, i8, u8, … 13 more)" in text.replace("\n", " ")
    assert "… 9 more reasons" in text


def test_a_failure_is_told_with_the_command_that_repeats_it_and_its_details(draw: Make) -> None:
    bad = case(
        1,
        "failed",
        why="rank 1 holds 2 wrong elements",
        command="distdemo check --only all_gather/single/int32/n3/1",
        details=("rank 1, index 0: got 1, expected 2\n  and more",),
    )
    text = draw(lambda console: check_grid(report(bad), console))
    lines = [
        "✗ all_gather/single/int32/n3/1: rank 1 holds 2 wrong elements",
        "  distdemo check --only all_gather/single/int32/n3/1",
        "    rank 1, index 0: got 1, expected 2",
        "      and more",
    ]
    assert "\n".join(lines) in text


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_long_command_can_be_copied_to_a_shell(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "distdemo check --only all_gather/single --reason 'a b' --world-size 3 --seed 12345"
    text = drawn_at(width, report(case(1, "failed", command=command)), monkeypatch)
    copied = text[text.index("distdemo check") : text.index("12345") + 5]
    assert shlex.split(copied.replace("\\\n", " ")) == shlex.split(command)
    assert copied.count("\n") == copied.count(" \\\n")


def test_a_command_quoted_in_a_strange_way_loses_nothing(draw: Make) -> None:
    bad = case(1, "failed", command="distdemo check --only it\\'s")
    text = draw(lambda console: check_grid(report(bad), console))
    assert "\n  distdemo check --only it\\'s\n" in text


def test_of_many_failures_and_details_the_first_are_told_and_the_rest_counted(draw: Make) -> None:
    results = [case(n, "failed", why="wrong") for n in range(32)]
    results[0] = case(0, "failed", details=tuple(f"line {n}" for n in range(15)))
    text = draw(lambda console: check_grid(report(*results), console))
    assert text.count(": wrong") == 19
    assert "… 12 more failures; --format json lists all" in text
    assert "line 9" in text
    assert "line 10" not in text
    assert "    … 5 more lines" in text


def test_foreign_text_neither_moves_the_cursor_nor_becomes_markup(draw: Make) -> None:
    bad = case(1, "failed", why=NASTY, command=NASTY, details=(NASTY,))
    unsupported = case(2, "not supported", why=NASTY)
    text = draw(lambda console: check_grid(report(bad, unsupported), console))
    assert "[bold]one [31mtwo[0m three" in text
    assert not set(text) & {"\x1b", "\r", "\x07"}


def test_the_end_counts_everything_and_gives_time_seed_and_versions(draw: Make) -> None:
    results = [case(1), case(2, "failed"), case(3, "not supported"), case(4, "not run")]
    text = draw(lambda console: check_grid(report(*results), console))
    assert text.splitlines()[-4:] == [
        "1 passed, 1 failed, 1 not supported, 1 not run.",
        "6 worlds started, 12.3 s, seed 7.",
        "distdemo 1.2.3",
        "✗ 1 of 3 cases failed; 1 not run.",
    ]


# ------------------------------------------------------------------------------------ the verdict


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        (["passed"], "✓ 1 case passed."),
        (["passed"] * 1200, "✓ 1,200 cases passed."),
        (["passed", "passed", "not supported"], "✓ 2 cases passed. 1 not supported."),
        (["passed", "failed", "not supported"], "✗ 1 of 2 cases failed."),
        (["passed", "not run"], "✗ 1 of 2 cases not run."),
        (["failed", "not run"], "✗ 1 of 2 cases failed; 1 not run."),
        ([], "✗ No case ran: none was selected."),
        (
            ["not supported"] * 2,
            "✗ No case ran: gloo on cpu supports none of the 2 selected cases.",
        ),
        (["not run", "not supported"], "✗ No case ran: the world died."),
    ],
)
def test_the_verdict_is_one_line_and_no_case_that_did_not_run_is_a_pass(
    statuses: list[Status], verdict: str
) -> None:
    results = [case(n, status, why="the world died.") for n, status in enumerate(statuses)]
    made = report(*results)
    assert verdict_line(made, Signs()).plain == verdict
    assert verdict.startswith("✓") == made.ok


def test_an_interrupted_check_says_so_and_names_no_reason_that_it_lacks() -> None:
    made = report(case(1), case(2, "not run"), interrupted=True)
    assert verdict_line(made, ASCII_SIGNS).plain == "WRONG Interrupted: 1 of 2 cases not run."
    made = report(case(2, "not run"), interrupted=True)
    expected = "✗ Interrupted: No case ran: no reason was given."
    assert verdict_line(made, Signs()).plain == expected


def test_an_empty_check_is_drawn_without_a_matrix(draw: Make) -> None:
    text = draw(lambda console: check_grid(report(), console))
    assert "passed  " not in text
    assert text.splitlines()[-1] == "✗ No case ran: none was selected."
