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
from traces import VERSIONS, paper, real, spec_of

from distdemo import schedules
from distdemo.launcher.records import WorldSpec
from distdemo.schedules.count import CostModel, infos
from distdemo.trace.compare.compare import simulate
from distdemo.trace.compare.records import Candidate, Comparison, ComparisonSpec, Timing
from distdemo.trace.compare.view import comparison_view, name_of, plot
from distdemo.trace.page import page, page_data, to_html
from distdemo.trace.records import AlgorithmList, TraceReport
from distdemo.trace.view import list_view, trace_text, trace_view
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
    "paper": lambda: paper("broadcast", "chain", 3, 6, root=1, chunks=2),
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
    show_blocks(console, trace_view(RUNS["unequal"](), signs(console), speed=1e4))
    title, end = memory.getvalue().index("all_reduce"), memory.getvalue().index("Verified")
    rounds = [memory.getvalue().index(f"Round {number} of 4") for number in range(1, 5)]
    assert [title, *rounds, end] == sorted([title, *rounds, end])
    assert "4/4" in memory.getvalue()


def compared(*, run: bool, link: CostModel | None = None) -> Comparison:
    """Return a comparison of two sizes; in the made-up timings each row is faster than the last."""
    specs = tuple(spec_of("all_reduce", 4, size // 4) for size in (1 << 10, 1 << 20))
    names = ("ring", "naive-ring", "doubling")
    found = replace(simulate(ComparisonSpec(specs, names, link=link)), versions=VERSIONS)
    if not run:
        return found
    sizes = []
    for size in found.sizes:
        rows = [Candidate("all_reduce", own=True), *size.candidates]
        timed = [
            replace(
                each,
                timing=Timing(1e-3 * (4 - i), 9e-4 * (4 - i), 1.2e-3 * (4 - i), 20, 0, 1024),
                handed_bytes=each.counts.total_bytes if each.counts else None,
            )
            for i, each in enumerate(rows)
        ]
        sizes.append(replace(size, candidates=tuple(timed)))
    measured = replace(GIVEN, origin="measured", message_bytes=(64, 1 << 20), runs=7)
    return replace(
        found,
        sizes=tuple(sizes),
        link=measured,
        settings=WorldSpec(4),
        cores=2.0,
    )


GIVEN = CostModel(5e-6, 1e-10)


def with_faults() -> Comparison:
    """Return a comparison interrupted after a size with several errors."""
    found = compared(run=True, link=GIVEN)
    own, ring, naive, doubling = found.sizes[0].candidates
    assert ring.timing is not None
    assert naive.counts is not None
    rows = (
        replace(own, timing=None, refused="gloo has no such thing."),
        replace(ring, timing=replace(ring.timing, wrong=3)),
        replace(naive, handed_bytes=7, checks=(replace(naive.checks[0], counted=9, same=False),)),
        doubling,
    )
    return replace(found, sizes=(replace(found.sizes[0], candidates=rows),), interrupted=True)


@pytest.mark.parametrize(
    ("name", "report"),
    [
        ("compared", compared(run=True, link=GIVEN)),
        ("simulated", compared(run=False, link=GIVEN)),
        ("counted", compared(run=False)),
        ("faulty", with_faults()),
    ],
)
def test_the_view_of_a_comparison_is_unchanged(name: str, report: Comparison) -> None:
    golden(GOLDEN / f"{name}.txt", partial(comparison_view, report))


def test_the_view_of_the_list_is_unchanged() -> None:
    record = AlgorithmList(infos(schedules.REGISTRY))
    golden(GOLDEN / "algorithms.txt", partial(list_view, record))


def test_a_plot_names_every_row() -> None:
    pytest.importorskip("matplotlib")

    assert plot(replace(compared(run=False), sizes=()), None).startswith(b"\x89PNG")
    for report in (compared(run=True, link=GIVEN), compared(run=False), with_faults()):
        text = plot(report, Path("it.svg")).decode()
        for size in report.sizes:
            assert all(name_of(row, report) in text for row in size.candidates)


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
