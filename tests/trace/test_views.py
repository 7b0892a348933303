"""Views of a trace: one golden file per report, and the page's content."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from golden import golden
from traces import real

from distdemo import schedules
from distdemo.launcher.records import Verdict
from distdemo.schedules.contract import Algorithm
from distdemo.trace.page import page, to_html
from distdemo.trace.records import AlgorithmList, TraceReport
from distdemo.trace.report import costs_on, info
from distdemo.trace.view import costs_view, list_view, trace_view
from distdemo.trace.view_picture import Picture
from distdemo.view.console import in_memory, show

GOLDEN = Path(__file__).parent / "golden"
RUNS = {
    "ring": lambda: real("all_reduce", "ring", 4, 4),
    "unequal": lambda: real("all_reduce", "ring", 3, 4),
    "naive-ring": lambda: real("all_reduce", "naive-ring", 3, 3),
    "wrong": lambda: real("all_reduce", "ring", 3, 3, wrong_rank=2),
    "list": lambda: real("all_to_all", "bruck", 3, 1),
    "gone": lambda: real("scatter", "tree", 5, 1),
    "many": lambda: real("all_gather", "bruck", 42, 1),
    "chain": lambda: real("broadcast", "chain", 3, 6, root=1),
    "alone": lambda: real("all_reduce", "ring", 1, 1),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_view_of_a_trace_is_unchanged(name: str) -> None:
    golden(GOLDEN / f"{name}.txt", partial(trace_view, RUNS[name]()))


def test_the_views_of_the_lists_are_unchanged() -> None:
    infos = tuple(map(info, schedules.REGISTRY))
    golden(GOLDEN / "algorithms.txt", partial(list_view, AlgorithmList(infos)))
    counted = costs_on(100_000, schedules.of_op("all_reduce")[:4], (1 << 10, 1 << 30))
    golden(GOLDEN / "counted.txt", partial(costs_view, counted))


def drawn_at(width: int, report: TraceReport) -> list[str]:
    console = in_memory(width)
    show(console, Picture(report, console).draw())
    text: str = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    return text.splitlines()


def test_eight_ranks_are_a_matrix_of_values_in_80_columns() -> None:
    lines = drawn_at(80, real("all_reduce", "ring", 8, 8))
    assert "│    7 │   70  │   71  │   72  │   73  │   74  │   75  │ +142  │   77  │" in lines
    assert "│    7 │  280✓ │ ▸288✓ │  296✓ │  304✓ │  312✓ │  320✓ │  328✓ │  336✓ │" in lines
    assert "--output trace.html draws every chunk, and whose data it contains." in lines


def test_a_list_names_the_chunks_that_changed() -> None:
    lines = drawn_at(60, real("all_reduce", "ring", 8, 8))
    assert [line for line in lines if line.startswith("rank 3 ")][:2] == [
        "rank 3  holds: 0–7",
        "rank 3  +2: 54",
    ]


def test_narrow_rounds_are_side_by_side() -> None:
    lines = drawn_at(80, real("broadcast", "tree", 4, 4))
    assert any(
        line.split() == ["Before", "the", "first", "round", "0", "───▶", "2"] for line in lines
    )


@pytest.mark.parametrize("algorithm", schedules.REGISTRY, ids=lambda each: f"{each.op}-{each.name}")
def test_a_legend_has_each_sign_once_and_no_line_is_too_long(algorithm: Algorithm) -> None:
    for n, width in ((3, 60), (5, 80), (8, 120)):
        report = real(algorithm.op, algorithm.name, n, n)
        legend, *rounds = "\n".join(drawn_at(width, report)).split("\n\n")
        signs = [
            re.split(r"  +", line)[0] for line in legend.splitlines() if not line.startswith(" ")
        ]
        assert len(signs) == len({*signs})
        assert all(len(line) <= width for line in "\n".join(rounds).splitlines())
        used = set("+▸") & set("".join(rounds))
        assert used == set("+▸") & {*signs}


# ---------------------------------------------------------------------------------------- the page


def data_of(text: str) -> dict[str, Any]:
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    return dict(json.loads(data[1]))


def test_a_page_is_self_contained_and_runs_no_other_script() -> None:
    text = page(RUNS["ring"]())
    assert not re.findall(r'(?:src|href)="(?!data:,)', text)
    assert "default-src 'none'" in text


def test_no_text_can_break_out_of_the_page() -> None:
    evil = '</script><img src=x onerror="alert(1)">\x1b[2J\u202e'
    report = RUNS["ring"]()
    hostile: TraceReport = replace(
        report,
        algorithm=replace(report.algorithm, name=evil, summary=evil, source=evil),
        versions={evil: evil},
        chunk_names=(evil, *report.chunk_names[1:]),
    )
    failed = replace(report.world, verdict=Verdict(evil, evil, evil, traceback=evil))
    for text in (page(hostile), page(replace(hostile, world=failed))):
        assert "<img" not in text
        assert not {"\x1b", "\u202e"} & {*text}
        assert data_of(text)["chunks"][0] == evil
    assert to_html("a\x1b[2Jb\u202ec") == "a\\x1b[2Jb\\u202ec"
    assert html.unescape(to_html("<&>")) == "<&>"
