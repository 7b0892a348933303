"""Algorithms side by side, drawn with matplotlib: time against size, or bars at one size."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from distdemo.bench.view_fit_words import link_words
from distdemo.trace.contending import CompareReport
from distdemo.trace.view_compare_words import ON_PAPER, crossing, title
from distdemo.trace.view_plot_bars import bars
from distdemo.trace.view_plot_lines import lines
from distdemo.trace.view_plot_page import page
from distdemo.view.plot import SETTINGS, entitle, saved

if TYPE_CHECKING:
    from matplotlib.artist import Artist

WIDTH, HEIGHT = 10.0, 6.0  # inches
OVER, EACH = 2.0, 0.55  # inches around bars, and of an algorithm's two
ROOM = 118  # characters of the legend in a line
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_ADDED = {"Date": None, "Creator": None, "Format": None, "Type": None}


def plot(report: CompareReport, ending: str) -> bytes:
    """The picture of a contest or a simulation.

    Args:
        report: of several sizes: lines; of one: bars; of none: empty axes.
        ending: ``png``, ``svg`` or ``html``: one page with the picture and all numbers, which
            needs nothing else and is light or dark as its reader prefers.
    """
    with mpl.rc_context(SETTINGS):
        figure = _figure(report)
        if ending != "html":
            return saved(figure, ending)
        return page(report, _inline(figure)).encode()


def _figure(report: CompareReport) -> Figure:
    single = len(report.arenas) == 1
    tall = OVER + EACH * len(report.arenas[0].contenders) if single else HEIGHT
    figure = Figure(figsize=(WIDTH, tall), layout="constrained")
    axes = figure.subplots()
    handles: Sequence[Artist] = []
    if report.arenas:
        handles = bars(axes, report) if single else lines(axes, report)
    if handles:
        columns = _columns([str(each.get_label()) for each in handles])
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)
    entitle(figure, _title(report), _small(report))
    return figure


def _columns(names: Sequence[str]) -> int:
    """Of the legend: as many as there is room for, and no line with a single one left over."""
    most = max(1, min(len(names), ROOM // (max(map(len, names)) + 8)))
    lines_needed = -(-len(names) // most)
    return -(-len(names) // lines_needed)


def _title(report: CompareReport) -> str:
    """What, on how many ranks, where; at one size that, too."""
    lead = "SIMULATION · " if report.simulated else ""
    if not report.arenas:
        return f"{lead}nothing"
    parts = title(report.arenas[0], report).removesuffix(" · simulation").split(" · ")
    return lead + " · ".join(parts if len(report.arenas) == 1 else [parts[0], *parts[2:]])


def _small(report: CompareReport) -> str:
    """α and β with their source; who is fastest by the model; with what it was run."""
    link = report.link
    told = [ON_PAPER.partition(": ")[2]] if report.simulated else []
    told += [] if link is None else [f"{link_words(link.link)}: {link.words.rstrip('.')}"]
    told += [text.rstrip(".") for text in crossing(report)]
    versions = " · ".join(f"{name} {version}" for name, version in report.versions.items())
    return "\n".join(filter(None, [*told, versions]))


def _inline(figure: Figure) -> str:
    """As an element of a page: without what only a file has, and without the date."""
    memory = io.BytesIO()
    figure.savefig(memory, format="svg", metadata=_ADDED, transparent=True)
    return _PROLOGUE.sub("", memory.getvalue().decode(), count=1)
