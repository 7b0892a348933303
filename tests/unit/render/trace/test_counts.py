"""Formula, count, and what was handed over, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import paper

from distdemo.trace.algorithms import REGISTRY
from distdemo.trace.scheduling import Checked, Fault
from distdemo.trace.tracing import TraceReport
from distdemo.trace.view_amounts import (
    exact,
    few_bytes,
    letters_line,
    said,
    short_bytes,
    times,
    took,
    whole_bytes,
)
from distdemo.trace.view_counts import busiest_words, checks_table
from distdemo.view.console import ASCII_SIGNS, Signs

MIB = 1 << 20
Draw = Callable[..., str]


def table(report: TraceReport) -> Any:
    return lambda console: checks_table(report, console)


def cells(text: str) -> dict[str, list[str]]:
    """The rows of a table by their first cell."""
    rows = [line.strip("│").split("│") for line in text.splitlines() if line.startswith("│")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


@pytest.mark.parametrize(
    ("algorithm", "bytes_of", "printed"),
    [
        ("naive", ("12 MiB", "24 MiB", "48 MiB"), "(n−1)²B = 36 MiB, 12 MiB less than was counted"),
        ("aggregator", ("12 MiB", "24 MiB", "24 MiB"), "2nB = 32 MiB, 8 MiB more than was counted"),
        ("ring", ("6 MiB", "12 MiB", "24 MiB"), "2nB = 32 MiB, 8 MiB more than was counted"),
    ],
)
def test_three_schemes_of_four_ranks_and_4_mib(
    draw: Draw, algorithm: str, bytes_of: tuple[str, str, str], printed: str
) -> None:
    sent, busiest, total = bytes_of
    text = draw(table(paper("all_reduce", algorithm, 4, MIB, real=True)))
    rows = cells(text)
    assert rows["Sent by a rank"][1:] == [sent, f"{sent} ✓", f"{sent} ✓"]
    assert rows["Busiest rank"][1:] == [busiest, f"{busiest} ✓", "—"]
    assert rows["In all"][1:] == [total, f"{total} ✓", f"{total} ✓"]
    assert f"Also in print, in all: {printed}" in " ".join(text.split())
    assert "B: 4 MiB, one rank's tensor; n: ranks." in text


def test_small_numbers_are_exact_and_on_paper_nothing_is_handed_over(draw: Draw) -> None:
    text = draw(table(paper("scatter", "tree", 8, 1)))
    rows = cells(text)
    assert rows["Rounds"] == ["lg n", "3", "3 ✓"]
    assert rows["Sent by a rank"][1:] == ["28 B", "28 B ✓"]
    assert "Handed over" not in text


def test_unequal_chunks_are_no_fault_of_the_formula(draw: Draw) -> None:
    text = draw(table(paper("all_reduce", "ring", 4, 10, real=True)))
    rows = cells(text)
    assert rows["Sent by a rank"] == ["2(n−1)/n·B", "60 B", "64 B ≈", "64 B ✓"]
    assert "here they have 2 to 3 elements" in " ".join(text.split())
    assert "≠" not in text


def test_a_count_that_is_not_its_formula_s_stands_out(draw: Draw) -> None:
    report = paper("all_reduce", "ring", 4, 8)
    wrong = Checked("total", "2(n−1)B", Fraction(95), 96)
    text = draw(table(replace(report, checks=(*report.checks[:3], wrong))))
    assert cells(text)["In all"] == ["2(n−1)B", "95 B", "96 B ≠"]
    assert "≠: the schedule does not do what its formula says." in text


def test_a_message_that_was_dropped_is_missed_in_what_was_handed_over(draw: Draw) -> None:
    fault = Fault("drop", 1, 0)
    text = draw(table(paper("all_reduce", "ring", 4, 8, fault=fault, real=True)))
    assert cells(text)["In all"][1:] == ["192 B", "192 B ✓", "184 B ≠"]
    assert "≠: 184 B were handed to the backend, and 192 B is" in " ".join(text.split())


def test_the_busiest_is_named() -> None:
    said_of = {
        name: busiest_words(paper("all_reduce", name, n, 8).counts).rpartition(": ")[2]
        for name, n in (("ring", 4), ("aggregator", 4), ("binary-tree", 6))
    }
    assert said_of["ring"] == "all ranks alike."
    assert said_of["aggregator"] == "rank 0."
    assert said_of["binary-tree"].startswith("rank ")


@pytest.mark.parametrize("columns", [80, 40])
def test_every_algorithm_reads_on_any_terminal(draw: Draw, columns: int) -> None:
    for each in REGISTRY:
        report = paper(each.op, each.name, 6, 6, real=True)
        text = draw(table(report), "ascii", columns)
        assert "?" not in text
        assert f"{whole_bytes(report.counts.total)} ok" in text


# ----------------------------------------------------------------------------------------- words


@given(st.integers(0, 1 << 70))
def test_a_whole_number_of_bytes_is_written_exactly(count: int) -> None:
    number, unit = whole_bytes(count).replace(",", "").split()
    scale = 1 << 10 * ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)
    assert Fraction(number) * scale == count


@pytest.mark.parametrize(
    ("count", "whole", "short", "few"),
    [
        (0, "0 B", "0 B", "0 B"),
        (24, "24 B", "24 B", "24 B"),
        (65_532, "65,532 B", "64 KiB", "65,532 B"),
        (Fraction(27, 2), "13.50 B", "13.5 B", "13.50 B"),
        (131_070 << 30, "131,070 GiB", "128 TiB", "131,070 GiB"),
        ((1 << 60) - 4096, "1,125,899,906,842,620 KiB", "1 EiB", "1 EiB"),
        (5000 << 60, "5,000 EiB", "5,000 EiB", "5,000 EiB"),
    ],
)
def test_bytes_in_words(count: Fraction | int, whole: str, short: str, few: str) -> None:
    assert (whole_bytes(count), short_bytes(float(count)), few_bytes(count)) == (whole, short, few)


def test_numbers_of_a_document_are_whole_or_fractions() -> None:
    assert exact(Fraction(12, 3)) == 4
    assert exact(Fraction(27, 2)) == "27/2"


def test_long_times_and_ratios() -> None:
    assert [took(s) for s in (0.00085, 3599.0, 3600.0, 7037.0, 70_372.0, 1e7)] == [
        "850 µs",
        "3599 s",
        "1.00 h",
        "1.95 h",
        "19.5 h",
        "2,778 h",
    ]
    assert [times(r) for r in (0.6, 12.34, 340.2, float("inf"))] == ["0.60×", "12.3×", "340×", "—"]


def test_letters_are_explained_where_they_are_used() -> None:
    report = paper("all_gather", "doubling", 6, 5)
    text = letters_line(report.checks, report.traffic)
    for letter in ("n: ranks", "lg: logarithm", "p: largest power of 2", "e = n − p"):
        assert letter in text
    assert "C: chunks" not in text
    chain = paper("broadcast", "chain", 3, 6, chunks=2)
    assert "C: chunks" in letters_line(chain.checks, chain.traffic)


def test_formulas_can_be_said_in_ascii() -> None:
    words = [
        formula.words
        for each in REGISTRY
        for formula in (each.formulas.rounds, each.formulas.sent, each.formulas.total)
    ]
    for text in (*words, *(each.source for each in REGISTRY)):
        assert said(text, Signs()) == text
        plain = said(text, ASCII_SIGNS)
        assert plain.isascii()
        assert len(plain) >= len(text)
    assert said("4⌊lg n⌋ − ½n·B", ASCII_SIGNS) == "4floor(lg n) - 1/2 n*B"
