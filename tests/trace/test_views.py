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
from distdemo.trace.page import page, to_html
from distdemo.trace.records import AlgorithmList, TraceReport
from distdemo.trace.report import costs_on, info
from distdemo.trace.view import costs_view, list_view, trace_view

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
    text = page(hostile)
    assert "<img" not in text
    assert data_of(text)["chunks"][0] == evil
    assert to_html("a\x1b[2Jb\u202ec") == "a\\x1b[2Jb\\u202ec"
    assert html.unescape(to_html("<&>")) == "<&>"
