"""Views of a trace and of a comparison: one golden file per report, and the page's content."""

from __future__ import annotations

import html
import io
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from golden import drawn, golden
from rich.console import Console
from traces import real

from distdemo import schedules
from distdemo.schedules.count import CostModel, infos
from distdemo.trace.page import page, page_data, to_html
from distdemo.trace.records import AlgorithmList, TraceReport
from distdemo.trace.report import costs_on, with_times
from distdemo.trace.view import costs_view, list_view, play, trace_text, trace_view
from distdemo.view.blocks import show_blocks
from distdemo.view.console import signs

GOLDEN = Path(__file__).parent / "golden"
RUNS = {
    "ring": lambda: real("all_reduce", "ring", 4, 4),
    "unequal": lambda: real("all_reduce", "ring", 3, 4),
    "naive-ring": lambda: real("all_reduce", "naive-ring", 3, 3),
    "wrong": lambda: real("all_reduce", "ring", 4, 4, wrong_chunk=(2, 0)),
    "list": lambda: real("all_to_all", "bruck", 3, 1),
    "gone": lambda: real("scatter", "tree", 5, 1),
    "many": lambda: real("all_gather", "ring", 42, 1),
    "chain": lambda: real("broadcast", "chain", 3, 6, root=1, chunks=2),
    "alone": lambda: real("all_reduce", "ring", 1, 1),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_view_of_a_trace_is_unchanged(name: str) -> None:
    golden(GOLDEN / f"{name}.txt", partial(trace_view, RUNS[name]()))


def test_requested_ranks_and_all_rounds_are_shown() -> None:
    report = RUNS["many"]()
    lines = drawn(partial(trace_view, report, ranks=frozenset({7}))).splitlines()
    assert {line[:7] for line in lines if line.startswith("rank ")} == {"rank 7 "}
    assert len(re.findall("^Round ", trace_text(report), re.MULTILINE)) == 41


def test_rounds_are_played_on_a_terminal() -> None:
    memory = io.StringIO()
    memory.isatty = lambda: True  # type: ignore[method-assign]
    console = Console(file=memory, force_terminal=True, width=80)
    show_blocks(
        console, trace_view(RUNS["unequal"](), signs(console), player=partial(play, speed=1e4))
    )
    title, end = memory.getvalue().index("all_reduce"), memory.getvalue().index("Verified")
    rounds = [memory.getvalue().index(f"Round {number} of 4") for number in range(1, 5)]
    assert [title, *rounds, end] == sorted([title, *rounds, end])
    assert "4/4" in memory.getvalue()


def test_the_view_of_the_list_is_unchanged() -> None:
    record = AlgorithmList(infos(schedules.REGISTRY))
    golden(GOLDEN / "algorithms.txt", partial(list_view, record))


def test_the_view_of_costs_is_unchanged() -> None:
    algorithms = schedules.of_op("all_reduce")[:4]
    counted = costs_on(100_000, algorithms, (1 << 10, 1 << 30))
    link = CostModel(5e-6, 1e-10, ("run.json",), "p2p over gloo on 2 ranks, taken for message")
    timed = with_times(counted, {"all_reduce": link})
    golden(GOLDEN / "counted.txt", partial(costs_view, counted))
    golden(GOLDEN / "predicted.txt", partial(costs_view, timed))


# ---------------------------------------------------------------------------------------- the page


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def test_a_page_is_self_contained_and_runs_no_other_script() -> None:
    text = page(RUNS["ring"]())
    assert not re.findall(r'(?:src|href)="(?!data:,)', text)
    assert "default-src 'none'" in text
    heads = re.findall(r"<thead><tr>(.*?)</tr>", text)
    assert heads
    assert all("<td>" not in each and "<th scope" in each for each in heads)  # each has a heading


def test_no_text_can_break_out_of_the_page() -> None:
    evil = '</script><img src=x onerror="alert(1)">\x1b[2J\u202e'
    report = RUNS["ring"]()
    info = replace(report.algorithm, name=evil, summary=evil, source=evil)
    hostile: TraceReport = replace(report, algorithm=info, versions={evil: evil})
    text = page(hostile)
    assert "<img" not in text
    assert data_of(text)["algorithm"] == evil
    assert to_html("a\x1b[2Jb\u202ec") == "a\\x1b[2Jb\\u202ec"
    assert html.unescape(to_html("<&>")) == "<&>"


def test_rounds_are_described_in_sentences() -> None:
    words = page_data(RUNS["naive-ring"]())["words"]
    assert words[1][1].startswith("rank 0 sends its original chunk 0 to rank 1, rank 1 sends")
    assert "the last received chunk 0" in words[2][1]
    assert words[2][2].startswith("Complete: 3 of 3 chunks; new: chunk 0 on rank 0")
