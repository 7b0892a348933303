"""Algorithms side by side as people read them: costs and times of each size, then sentences."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.bench.view_marks import marks
from distdemo.trace.contending import Arena, CompareReport
from distdemo.trace.view_amounts import said
from distdemo.trace.view_compare_columns import tables
from distdemo.trace.view_compare_words import ASSUMPTIONS, ON_PAPER, below, legend, title, verdict
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading

UNSURE = "yellow"


def compare_view(report: CompareReport, console: Console) -> Group:
    """Every size, what holds for all of them, and the verdict.

    Why a world failed is not in it but for the verdict: ``failure`` shows that.

    Args:
        report: of a contest, whole or as far as it went, or of a simulation.
        console: that it will be printed on.
    """
    sign = signs(console)
    parts: list[RenderableType] = []
    if report.simulated:
        parts += [Text(said(_on_paper(report), sign), style="bold"), Text()]
    for arena in report.arenas:
        parts += [*_arena(report, arena, console), Text()]
    parts += [Text(said(text, sign), style=_style(text)) for text in below(report)]
    parts += _assumed(report, sign)
    parts += [Text(said(text, sign), style=colours.QUIET) for text in report.notes]
    return Group(*parts, *_versions(report), verdict_line(report, sign))


def verdict_line(report: CompareReport, sign: Signs) -> Text:
    """Whether all that was run is right."""
    if not report.ok or report.interrupted:
        return Text(f"{sign.wrong} {said(verdict(report), sign)}", style=colours.WRONG)
    if report.simulated:
        return Text(said(verdict(report), sign), style="bold")
    return Text(f"{sign.right} {said(verdict(report), sign)}", style=colours.RIGHT)


def _on_paper(report: CompareReport) -> str:
    times = ", and times are predicted" if report.link is not None else ""
    return f"{ON_PAPER}{times}."


def _arena(report: CompareReport, arena: Arena, console: Console) -> Iterator[RenderableType]:
    sign = signs(console)
    yield heading(_dotted(title(arena, report), sign))
    yield from tables(report, arena, console)
    for text in legend(arena, report, marks(sign).best):
        yield Text(said(text, sign))
    for text in arena.order:
        yield Text(said(text, sign))


def _dotted(text: str, sign: Signs) -> str:
    """A dot between two words is no multiplication."""
    return said(text.replace(" · ", f" {sign.dot} "), sign)


def _style(text: str) -> str:
    if text.startswith("≠"):
        return colours.WRONG
    return UNSURE if text.startswith("Also in print") else ""


def _assumed(report: CompareReport, sign: Signs) -> Iterator[Text]:
    """What predicted times stand on; beside measured ones they speak for themselves."""
    if report.link is None or not report.simulated:
        return
    yield Text("It is assumed that:", style=colours.QUIET)
    for text in ASSUMPTIONS:
        yield Text(f"{sign.dot} {said(text, sign)}", style=colours.QUIET)


def _versions(report: CompareReport) -> Iterator[Text]:
    text = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield from [Text(text, style=colours.QUIET)] if text else []
