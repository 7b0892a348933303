"""Formulas beside what was counted, beside what the run handed to the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from rich.console import Console, Group
from rich.text import Text

from distdemo.trace.scheduling import Checked, Counts, Misprint
from distdemo.trace.tracing import TraceReport
from distdemo.trace.view_amounts import few_bytes, letters_line, mark, said, sameness, whole_bytes
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.grid import Cell, Column, Grid, fitting
from distdemo.view.numbers import plural

NAMES = {
    "rounds": "Rounds",
    "sent": "Sent by a rank",
    "busiest": "Busiest rank",
    "total": "In all",
}
"""What ``Checked.name`` reads as; in this order."""
STYLES = {"same": "", "different": colours.WRONG, "unequal": "yellow"}
Handed = dict[str, int]


def checks_table(report: TraceReport, console: Console) -> Group:
    """Rounds and bytes: the formula, what it gives, what was counted, and what was handed over.

    Args:
        report: of a run, or on paper: then nothing was handed to a backend.
        console: that it will be printed on.
    """
    sign = signs(console)
    handed = handed_over(report)
    heads = [Column("Cost"), Column("Formula", folds=True), Column("Gives", right=True)]
    heads += [Column("Counted", right=True)]
    heads += [Column("Handed over", right=True)] if handed else []
    rows = [_row(check, handed, sign) for check in report.checks]
    told = [Text(said(text, sign), style=style) for text, style in _below(report)]
    return Group(fitting(console, lambda _: Grid(heads, rows)), *told)


def handed_over(report: TraceReport) -> Handed:
    """Bytes that the backend was really given, by the name of the check; empty on paper."""
    if not report.handed:
        return {}
    return {"sent": max(report.handed), "total": sum(report.handed)}


def _row(check: Checked, handed: Handed, sign: Signs) -> list[Cell]:
    how = sameness(check)
    counted = f"{_amount(check, check.counted)} {mark(how, sign)}"
    cells: list[Cell] = [
        NAMES.get(check.name, check.name),
        said(check.formula, sign),
        _amount(check, check.value),
        Text(counted, style=STYLES[how]),
    ]
    if not handed:
        return cells
    if check.name not in handed:
        return [*cells, Text(sign.none, style=colours.QUIET)]
    given = handed[check.name]
    same = "same" if given == check.counted else "different"
    text = f"{whole_bytes(given)} {mark(same, sign)}"
    return [*cells, Text(text, style=STYLES[same])]


def _amount(check: Checked, value: Fraction | int) -> str:
    """Rounds are a number, all else bytes."""
    return f"{int(value):,}" if check.name == "rounds" else whole_bytes(value)


# ------------------------------------------------------------------------------------------- below


def _below(report: TraceReport) -> Iterator[tuple[str, str]]:
    """Sentences under the table, each with its style."""
    yield letters_line(report.checks, report.traffic), colours.QUIET
    yield f"Sent: by the rank that sends most. {busiest_words(report.counts)}", colours.QUIET
    if any(sameness(check) == "unequal" for check in report.checks):
        yield unequal_words(report.chunk_elements), STYLES["unequal"]
    if any(sameness(check) == "different" for check in report.checks):
        yield "≠: the schedule does not do what its formula says.", STYLES["different"]
    handed = sum(report.handed)
    if report.handed and handed != report.counts.total:
        yield handed_words(handed, report.counts.total), STYLES["different"]
    for each in report.misprints:
        yield misprint_words(each, report.counts.total), "yellow"


def busiest_words(counts: Counts) -> str:
    """Which rank the busiest is; sent and received count together."""
    through = [a + b for a, b in zip(counts.sent, counts.received, strict=True)]
    alike = through.count(counts.busiest)
    if alike == len(through):
        return "Busiest, sent and received together: all ranks alike."
    more = f" and {plural(alike - 1, 'other')}" if alike > 1 else ""
    return f"Busiest, sent and received together: rank {counts.busiest_rank}{more}."


def unequal_words(elements: tuple[int, ...]) -> str:
    """Why a formula and a count may differ."""
    least, most = min(elements, default=0), max(elements, default=0)
    return (
        f"≈: the formula is of equal chunks; here they have {least:,} to {most:,} elements, and "
        "the count is right."
    )


def handed_words(handed: int, counted: int) -> str:
    """That the run did something else than the schedule."""
    return (
        f"≠: {whole_bytes(handed)} were handed to the backend, and {whole_bytes(counted)} is "
        "what the schedule sends."
    )


def misprint_words(
    each: Misprint,
    counted: int,
    write: Callable[[Fraction | int], str] = few_bytes,
    where: str = "",
) -> str:
    """A formula that people will find elsewhere, and where it differs.

    Args:
        each: of them.
        counted: bytes in all.
        write: bytes as the table beside it has them.
        where: of which algorithm and size, where there are several.
    """
    gap = each.value - counted
    way = "more" if gap > 0 else "less"
    differs = f", {write(abs(gap))} {way} than was counted" if gap else ""
    return (
        f"Also in print{where}, in all: {each.formula} = {write(each.value)}{differs}. {each.why}"
    )
