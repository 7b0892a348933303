"""How each algorithm looks in a picture, and what is drawn of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from distdemo.trace.contending import Arena, CompareReport, Contender
from distdemo.trace.view_amounts import short_bytes, took
from distdemo.trace.view_standings import name
from distdemo.view.numbers import duration
from distdemo.view.plot import COLOURS, MARKS

OWN = "#1a1a1a"  # pure black is not written to an SVG, and so could not be turned in the dark
QUIET = "#555555"
HUES = tuple(colour for colour in COLOURS if colour != "#000000")


@dataclass(frozen=True, slots=True)
class Look:
    """An algorithm: its label, and the colour and mark that it keeps at every size."""

    label: str
    colour: str
    mark: str


@dataclass(frozen=True, slots=True)
class Measure:
    """What goes up the axis.

    Attributes:
        title: of the axis.
        measured: of a row; None: it was not run.
        expected: by the model, or counted; None: nobody knows.
        words: what ``expected`` is, for the legend.
        text: a value as people read it.
        tick: likewise, at the axis.
        base: of the axis' logarithm.
    """

    title: str
    measured: Callable[[Contender], float | None]
    expected: Callable[[Contender], float | None]
    words: str
    text: Callable[[float], str]
    tick: Callable[[float], str]
    base: int = 10


TIME = Measure(
    "Time",
    lambda row: row.timing.median if row.timing is not None and not row.refused else None,
    lambda row: row.predicted,
    "α–β model",
    took,
    duration,
)
BYTES = Measure(
    "Bytes through the busiest rank",
    lambda _: None,
    lambda row: row.counts.busiest if row.counts is not None else None,
    "counted",
    short_bytes,
    short_bytes,
    base=2,
)


def measure(report: CompareReport) -> Measure:
    """Times; where nobody knows any, as in a simulation without α and β, bytes."""
    known = any(
        value is not None
        for row in rows(report)
        for value in (TIME.measured(row), TIME.expected(row))
    )
    return TIME if known else BYTES


def looks(report: CompareReport) -> dict[str, Look]:
    """By label, in the order in which they come; the backend's own is black."""
    found: dict[str, Look] = {}
    taken = 0
    for row in rows(report):
        label = name(row, report)
        if label in found:
            continue
        place = -1 if row.own else taken
        taken += not row.own
        colour = OWN if row.own else HUES[place % len(HUES)]
        found[label] = Look(label, colour, MARKS[place % len(MARKS)])
    return found


def rows(report: CompareReport) -> Iterator[Contender]:
    """Of all sizes."""
    for arena in report.arenas:
        yield from arena.contenders


def row_of(arena: Arena, label: str, report: CompareReport) -> Contender | None:
    """The one with this label; None: it is not at this size."""
    return next((row for row in arena.contenders if name(row, report) == label), None)
