"""Two measurements side by side, as text and as a document."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from distdemo.bench.comparing import (
    ComparedRow,
    ComparedSeries,
    Comparison,
    Difference,
    GaugeShift,
    Lonely,
    Overall,
    Rule,
)
from distdemo.bench.recorded import SeriesKey
from distdemo.bench.view_compare_document import compare_document
from distdemo.bench.view_compare_table import bar, compare_table, verdict_line
from distdemo.bench.view_compare_words import ratio, series_words, verdict
from distdemo.view.console import ASCII_SIGNS, Signs, signs
from distdemo.view.document import dumps

KEY = SeriesKey("gloo", "all-reduce", "tensor", False, True, 2, "float32", "sum")


def row(size: int, found: float, verdict: str = "no change", **more) -> ComparedRow:
    fields = {
        "size": size,
        "old": 31.4e-6,
        "new": 31.4e-6 * found,
        "ratio": found,
        "interval": (found * 0.9, found * 1.1),
        "verdict": verdict,
        "fails": verdict == "slower",
        "launches": (6, 8),
    }
    return ComparedRow(**{**fields, **more})


def overall(found: float, verdict: str = "no change", **more) -> Overall:
    fields = {
        "ratio": found,
        "interval": (found * 0.97, found * 1.03),
        "verdict": verdict,
        "fails": verdict == "slower",
        "launches": (6, 8),
    }
    return Overall(**{**fields, **more})


ROWS = (
    row(8, 1.01),
    row(65536, 1.31, "slower"),
    row(1 << 20, 0.62, "faster"),
    row(65_532, 12.5, "cannot be told", interval=None, launches=(1, 8)),
)
WORSE = Comparison(
    old="old.json",
    new="new.json",
    rule=Rule(0.1, 0.1),
    series=(ComparedSeries(KEY, ROWS, overall(1.04)),),
    confidence=0.95,
    lonely=(Lonely("old", replace(KEY, in_place=True), (8, 32), whole=True),),
    differences=(
        Difference("host", "box", "other", weighty=True),
        Difference("OMP_NUM_THREADS", "not set", "1"),
    ),
    warnings=("host: box in the old file, other in the new one.",),
    notes=("new.json was interrupted: it has what was measured by then.",),
)
SAME = replace(
    WORSE,
    rule=Rule(),
    series=(ComparedSeries(KEY, (row(8, 1.0),), overall(1.0)),),
    warnings=(),
    differences=(),
    lonely=(),
    notes=(),
)


CORES = GaugeShift("mpi", "core to core", 0.21e-6, 0.33e-6, 1.57, (1.5, 1.64), moved=True)


def without_suspects(rows: tuple[ComparedRow, ...]) -> tuple[ComparedRow, ...]:
    return tuple(replace(each, suspect=False) for each in rows)


def table(found: Comparison):
    return lambda console: compare_table(found, console)


def test_a_row_says_both_times_their_ratio_and_what_to_think(draw):
    text = draw(table(WORSE))
    line = next(each for each in text.splitlines() if "64 KiB" in each)
    cells = [cell.strip() for cell in line.strip("│").split("│ ")]
    assert cells[:4] == ["64 KiB", "31.4 µs", "41.1 µs", "1.31 (1.18–1.44)"]
    assert "slower ✗" in line
    assert "65,532 B" in text
    assert "can't tell" in text
    assert "All sizes: 1.04 (1.01–1.07) no change (from 6 and 8 launches)" in text
    assert "! host: box in the old file, other in the new one." in text
    assert "Differs: OMP_NUM_THREADS: not set → 1" in text
    assert "Only in the old file: gloo all-reduce async in place" in " ".join(text.split())
    assert "was interrupted" in text
    assert "95.0% confidence" in text
    flat = " ".join(text.split())
    assert flat.endswith("than 10 %: 1 size. 1 warning that the runs differ in more than the code.")


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_it_is_readable_on_any_terminal(encoding, columns, draw):
    text = draw(table(WORSE), encoding, columns)
    assert "…" not in text
    assert "?" not in text, "a sign that ASCII lacks"
    dash = "-" if encoding == "ascii" else "–"
    assert f"1.31 (1.18{dash}1.44)" in text
    assert "1.31 (" in text
    if columns < 60:
        assert re.search(r"^Size +64 KiB$", text, re.MULTILINE)


def test_quiet_is_one_line(draw):
    text = draw(lambda console: verdict_line(SAME, signs(console)))
    assert text == "✓ No change beyond 10 % (1 size compared).\n"


@pytest.mark.parametrize(
    ("rows", "whole", "limit", "text"),
    [
        ([row(8, 1.0)], overall(1.0), None, "No change beyond 10 % (1 size compared)."),
        (
            [row(8, 1.3, "slower", fails=False), row(9, 0.5, "faster")],
            overall(1.0),
            None,
            "Changed by more than 10 %: 1 slower, 1 faster (2 sizes compared).",
        ),
        (
            [row(8, 1.0), row(9, 1.0, "cannot be told", interval=None)],
            overall(1.0),
            0.1,
            "1 series and 1 size unchanged within 10 %, 1 size cannot be told.",
        ),
        (
            [row(8, 1.0), row(9, 2.05, "cannot be told"), row(9, 1.01, "cannot be told")],
            overall(1.09, "cannot be told"),
            None,
            (
                "1 size unchanged within 10 %, 1 series and 2 sizes cannot be told (up to 2.05 "
                "times as long)."
            ),
        ),
        (
            [row(8, 1.5, "cannot be told", explained_by=CORES)],
            overall(1.3, "cannot be told", explained_by=CORES),
            None,
            (
                "It cannot be told whether anything changed: the machine itself may explain what "
                "did."
            ),
        ),
        (
            [row(9, 1.0, "cannot be told", interval=None)],
            overall(1.0, "cannot be told", interval=None),
            None,
            (
                "It cannot be told whether anything changed: the launches are too few, or scatter "
                "too widely."
            ),
        ),
        (
            [row(8, 1.3, "slower"), row(9, 1.3, "slower")],
            overall(1.3, "slower"),
            0.025,
            "Slower by more than 2.5 %: 1 series and 2 sizes.",
        ),
    ],
)
def test_the_verdict_says_what_came_of_it(rows, whole, limit, text):
    series = ComparedSeries(KEY, tuple(rows), whole)
    found = replace(SAME, series=(series,), rule=Rule(fail_over=limit))
    assert verdict(found) == text


def test_what_looks_like_a_failure_is_told_wherever_the_verdict_is(draw):
    rows = (row(8, 10.0, "cannot be told", interval=None, suspect=True), row(32, 1.0))
    series = ComparedSeries(KEY, rows, overall(1.3, suspect=True))
    found = replace(SAME, series=(series,), rule=Rule(fail_over=0.1))
    words = (
        "1 series and 1 size may be slower by more than 10 %, up to 10.0 times as long, but not "
        "clearly apart from noise: more --launches would tell."
    )
    assert words in verdict(found)
    assert found.ok
    quiet = draw(lambda console: verdict_line(found, signs(console)))
    lead = "! 1 series and 1 size unchanged within 10 %, 1 size cannot be told."
    assert " ".join(quiet.split()) == f"{lead} {words}"
    shown = draw(table(found))
    assert "can't tell !" in shown
    assert "no change ! (from" in shown
    entry = compare_document(found)
    assert (entry["ok"], entry["suspects"]) == (True, 2)
    assert words in entry["verdict"]
    assert [each["suspect"] for each in entry["rows"]] == [True, False]
    assert entry["overall"][0]["suspect"] is True


def test_what_the_machine_may_explain_is_not_called_noise(draw):
    rows = (
        row(8, 1.5, "cannot be told", suspect=True, explained_by=CORES),
        row(32, 1.0),
    )
    series = ComparedSeries(KEY, rows, overall(1.0))
    found = replace(SAME, series=(series,), rule=Rule(fail_over=0.1), gauges=(CORES,))
    assert verdict(found) == (
        "1 series and 1 size unchanged within 10 %, 1 size cannot be told. 1 size may be slower by "
        "more than 10 %, up to 1.50 times as long, but not clearly apart from what the machine "
        "itself did: measure both again, in turn."
    )
    unasked = replace(found, series=(ComparedSeries(KEY, without_suspects(rows), overall(1.0)),))
    assert verdict(unasked) == (
        "1 series and 1 size unchanged within 10 %, 1 size cannot be told (up to 1.50 times as "
        "long; the machine itself may have a part in it)."
    )
    assert "can't tell !" in draw(table(found))
    entry = json.loads(dumps(compare_document(found)))
    expected = {
        "backend": "mpi",
        "kind": "core to core",
        "old_seconds": 0.21e-6,
        "new_seconds": 0.33e-6,
        "ratio": 1.57,
        "interval": [1.5, 1.64],
        "moved": True,
    }
    assert entry["gauges"] == [expected]
    assert [each["explained_by"] for each in entry["rows"]] == [expected, None]


def test_that_all_intervals_hold_together_seldom_is_said(draw):
    many = replace(SAME, confidence=0.571, each=0.998)
    flat = " ".join(draw(table(many)).split())
    assert "holds with 99.8% confidence, all of them together with 57% at least" in flat
    assert compare_document(many)["each_confidence"] == 0.998


def test_the_bar_shows_where_one_lies():
    sign = Signs()
    assert bar(row(8, 1.0, interval=(1.0, 1.0)), sign) == "    ●    "
    assert bar(row(8, 1.2, interval=(1.0, 1.5)), sign) == "    │━●━━"
    assert bar(row(8, 0.5, interval=(0.1, 0.9)), sign) == "●━━━│    "[:4] + "│    "
    assert bar(row(8, 99.0, interval=(50.0, 200.0)), sign) == "    │   ●"
    assert bar(row(8, 1.3, interval=None), sign)[4] == "│"
    assert bar(row(8, 1.2, interval=(1.0, 1.5)), ASCII_SIGNS) == "    |-o--"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.00"), (9.996, "10.0"), (99.96, "100"), (0.004, "0.00"), (1e6, "1e+06")],
)
def test_ratios_are_short(value, text):
    assert ratio(value) == text


def test_a_series_is_named_by_all_that_makes_it():
    assert series_words(KEY) == "gloo all-reduce async out of place, 2 ranks, float32 sum"
    pair = replace(KEY, command="p2p", reduce_op=None, pattern="pair", src=2, dst=3)
    assert series_words(pair) == "gloo p2p async, 2 ranks, float32, 2 to 3"
    meeting = replace(KEY, command="barrier", dtype="", reduce_op=None, asynchronous=False)
    assert series_words(meeting) == "gloo barrier, 2 ranks"
    other = SeriesKey("mpi", "broadcast", "list", True, False, 3, "int64", None, 2)
    assert series_words(other) == "mpi broadcast list in place, 3 ranks, int64, root 2"


def test_the_document_has_every_figure():
    found = json.loads(dumps(compare_document(WORSE)))
    assert (found["command"], found["ok"], found["schema_version"]) == ("bench compare", False, 1)
    assert (found["threshold"], found["fail_over"], found["confidence"]) == (0.1, 0.1, 0.95)
    slow = found["rows"][1]
    assert slow["command"] == "all-reduce"
    assert slow["async"] is True
    assert (slow["bytes"], slow["ratio"], slow["verdict"]) == (65536, 1.31, "slower")
    assert slow["interval"] == pytest.approx([1.179, 1.441])
    assert found["rows"][3]["interval"] is None
    assert found["overall"][0]["ratio"] == 1.04
    assert found["only"][0]["bytes"] == [8, 32]
    assert [each["name"] for each in found["differences"]] == ["host", "OMP_NUM_THREADS"]
    (error,) = found["errors"]
    assert "65536 B: 1.31 times as long as before" in error["what"]
    assert "1.18 and 1.44" in error["why"]
    same = compare_document(SAME)
    assert (same["ok"], same["errors"]) == (True, [])
