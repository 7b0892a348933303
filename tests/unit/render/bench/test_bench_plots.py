"""The pictures of a measurement, and its page."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("matplotlib")

from measurements import SIZES, made_report, made_row, made_series, made_setup

from distdemo.bench.old_records import BenchReport
from distdemo.bench.view_plot import plot
from distdemo.bench.yardsticks import Limit

BEGINNINGS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "html": b"<!DOCTYPE html>"}
VOID = {"meta", "br", "img", "link"}


def words(picture: bytes) -> str:
    """All text in the picture."""
    root = ET.fromstring(picture)  # noqa: S314 - our own
    return " ".join("".join(node.itertext()) for node in root.iter() if node.tag.endswith("}text"))


def backends() -> BenchReport:
    limit = Limit("shared memory", (0, 1), at_once=False, bandwidth=9e9, size=1 << 20)
    return made_report(
        made_series(both=True),
        made_series(both=True, in_place=True),
        made_series(backend="mpi", both=True),
        setups={"gloo": made_setup(), "mpi": made_setup("mpi", bound=limit)},
    )


@cache
def drawn(kind: str) -> bytes:
    """A picture of the usual measurement."""
    return plot(made_report(), kind)


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_it_is_drawn_in_the_format_of_its_ending(kind: str) -> None:
    assert drawn(kind).startswith(BEGINNINGS[kind])


def test_it_names_what_was_measured_its_axes_its_lines_and_limits() -> None:
    text = words(plot(backends(), "svg"))
    for name in (
        *("all-reduce · gloo, mpi · 2 ranks · float32 · sum", "box · Imaginary CPU <2> & more"),
        *("Size", "Time, median", "Bus bandwidth", "32 MiB", "1 ms", "1 GB/s"),
        *("gloo out of place", "gloo in place", "mpi out of place"),
        *("TCP stream 4.00 GB/s (gloo)", "shared memory 9.00 GB/s (mpi)"),
    ):
        assert name in text


def test_dollar_signs_in_a_name_are_no_formula() -> None:
    report = made_report(made_series(rows=(made_row(8),)))
    named = replace(report, environment={**report.environment, "host": "a$_$b"})
    assert "a$_$b" in words(plot(named, "svg"))


def test_the_points_lie_where_the_numbers_say() -> None:
    """Read back from the picture: equal ratios are equal distances on both axes."""
    report = made_report(setups={})
    root = ET.fromstring(plot(report, "svg"))  # noqa: S314 - our own
    paths = [node.get("d", "") for node in root.iter() if node.tag.endswith("}path")]
    lines = [p for p in paths if len(re.findall("[ML]", p)) == len(SIZES) and "z" not in p]
    points = [[*map(float, pair)] for pair in re.findall(r"[ML] ([\d.]+) ([\d.]+)", lines[0])]
    rows = report.series[0].rows
    steps = {round(b[0] - a[0], 2) for a, b in pairwise(points)}
    assert max(steps) - min(steps) < 0.1
    scale = [
        (points[0][1] - point[1]) / math.log(row.median / rows[0].median)
        for point, row in zip(points[4:], rows[4:], strict=True)
    ]
    assert max(scale) == pytest.approx(min(scale), rel=0.01)


@pytest.mark.parametrize("rows", [(), (made_row(8),), tuple(map(made_row, SIZES[:2]))])
def test_any_number_of_sizes_is_drawn(rows: tuple[()]) -> None:
    report = made_report(made_series(rows=rows))
    assert "Bus bandwidth" in words(plot(report, "svg"))
    assert plot(report, "html")


def test_ten_series_and_rows_without_interval_or_limit_are_drawn() -> None:
    rows = tuple(made_row(size, interval=None, judgement=None) for size in SIZES)
    report = made_report(*(made_series(f"op-{n}", rows=rows) for n in range(10)), setups={})
    text = words(plot(report, "svg"))
    assert all(f"op-{n}" in text for n in range(10))


def test_what_took_no_time_leaves_a_gap() -> None:
    rows = (made_row(8), replace(made_row(32), median=0.0), made_row(128))
    assert plot(made_report(made_series(rows=rows)), "png")


class Page(HTMLParser):
    """What a page refers to, the text of its cells, and whether its elements are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.links: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.links += [v or "" for name, v in attrs if name.split(":")[-1] in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


def test_the_page_needs_nothing_else_and_holds_every_number() -> None:
    report = made_report(made_series(), environment={"host": "<script>alert(1)</script>"})
    text = plot(report, "html").decode()
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert "svg" in page.seen
    assert not page.seen & {"script", "link", "img", "iframe"}
    assert all(link.startswith("#") for link in page.links)
    assert not re.search(r"url\((?!#)|@import", text)
    assert "prefers-color-scheme: dark" in text
    for row in report.series[0].rows:
        assert f"{row.size:,}" in page.cells
    assert "latency-bound" in page.cells
    assert "<script>alert(1)</script>" in page.cells


@pytest.mark.parametrize("kind", ["svg", "html"])
def test_the_same_figures_make_the_same_file(kind: str) -> None:
    assert plot(made_report(), kind) == drawn(kind)


def test_no_window_and_no_global_state_is_needed() -> None:
    assert drawn("png")
    assert "matplotlib.pyplot" not in sys.modules
