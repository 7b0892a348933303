"""The pictures of algorithms side by side, and their page."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("matplotlib")

from arenas import contest

from distdemo.bench.fitting import Crossover
from distdemo.trace.contending import CompareReport
from distdemo.trace.view_plot import plot

CROSSED = (
    Crossover(31_234.5, "doubling", "halving-doubling"),
    Crossover(62_000.0, "halving-doubling", "ring"),
    Crossover(1e12, "ring", "naive"),
)
SIZES = (1 << 10, 1 << 16, 1 << 24)
BEGINNINGS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "html": b"<!DOCTYPE html>"}


def words(picture: bytes) -> list[str]:
    """Each text in the picture."""
    root = ET.fromstring(picture)  # noqa: S314 - our own
    return ["".join(node.itertext()) for node in root.iter() if node.tag.endswith("}text")]


@cache
def drawn(kind: str) -> bytes:
    return plot(contest(sizes=SIZES, crossovers=CROSSED, refused="naive"), kind)


@pytest.mark.parametrize("kind", BEGINNINGS)
def test_it_is_drawn_in_the_format_of_its_ending(kind: str) -> None:
    assert drawn(kind).startswith(BEGINNINGS[kind])


def test_lines_are_named_and_crossovers_within_the_sizes_are_marked() -> None:
    text = words(drawn("svg"))
    for name in (
        *("all_reduce · 4 ranks · float32 sum · gloo · cpu", "gloo's own", "ring", "naive"),
        *("halving-doubling", "α–β model", "equally fast, by the model", "30.5 KiB", "60.5 KiB"),
        *("1 KiB", "64 KiB", "16 MiB", "1 ms", "Size", "Time"),
    ):
        assert name in text
    assert "931 GiB" not in text
    assert any(each.startswith("Fastest by the α–β model: doubling up to") for each in text)


def test_one_size_makes_bars_with_both_times() -> None:
    text = words(plot(contest(sizes=(1 << 24,), refused="naive"), "svg"))
    for name in ("16.6 ms", "12.8 ms", "not run", "halving-doubling", "α–β model"):
        assert name in text
    assert any("16 MiB" in each for each in text)


def test_a_simulation_is_marked_as_one() -> None:
    report = contest(n=1000, sizes=SIZES, simulated=True)
    text = words(plot(report, "svg"))
    assert "SIMULATION · all_reduce · 1,000 ranks · float32 sum" in text
    assert "α–β model" not in text  # of what was not measured it is the only line
    one = words(plot(replace(report, arenas=report.arenas[:1]), "svg"))
    assert "α–β model" in one
    assert any(each.startswith("SIMULATION · ") for each in one)


def test_a_crossover_beyond_the_sizes_is_not_in_the_legend() -> None:
    text = words(plot(contest(sizes=SIZES[:2], crossovers=CROSSED[2:]), "svg"))
    assert "equally fast, by the model" not in text


def test_without_alpha_and_beta_bytes_are_drawn() -> None:
    text = words(plot(contest(n=100, sizes=SIZES[:2], simulated=True, link=None), "svg"))
    assert "Bytes through the busiest rank" in text
    assert "Time" not in text


def test_nothing_measured_is_drawn_as_nothing() -> None:
    assert plot(CompareReport(4, (), None), "png").startswith(BEGINNINGS["png"])


def test_the_page_needs_nothing_else_and_holds_every_number() -> None:
    report = contest(sizes=SIZES, notes=("<script>alert(1)</script>",))
    text = plot(report, "html").decode()
    assert "prefers-color-scheme: dark" in text
    assert "<script" not in text
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org)", text)
    cells = re.findall("<td>([^<]*)</td>", text)
    assert {"★ doubling", "gloo&#x27;s own", "192 MiB", "235 µs", "✓"} <= set(cells)
    assert text.count("<table>") == len(SIZES)


@pytest.mark.parametrize("kind", ["svg", "html"])
def test_the_same_figures_make_the_same_file(kind: str) -> None:
    report = contest(sizes=SIZES, crossovers=CROSSED, refused="naive")
    assert plot(report, kind) == drawn(kind)
