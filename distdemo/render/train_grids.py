"""The figures of a training: by epoch, and by mode; a column a mode in both."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from distdemo.render import colours
from distdemo.render.console import Signs, signs
from distdemo.render.grid import Cell, Column, Grid, widest
from distdemo.render.numbers import duration, size
from distdemo.training import REFERENCE, Run, TrainReport

FEW = 10  # epochs that are shown at most


def all_runs(report: TrainReport) -> list[Run]:
    """The reference, then the modes."""
    return [run for run in (report.reference, *report.runs) if run is not None]


def epoch_grid(report: TrainReport) -> Grid:
    """Loss and test accuracy by epoch; of many epochs the first, the last and some between."""
    runs = all_runs(report)
    grid = Grid([Column("Epoch", right=True), *(Column(run.mode, right=True) for run in runs)])
    for place in places(max(len(run.epochs) for run in runs)):
        cells: list[Cell] = [str(place + 1)]
        for run in runs:
            each = run.epochs[place]
            cells.append(Text(f"{loss_text(each.loss)} {each.accuracy:6.1%}"))
        grid.rows.append(cells)
    return grid


def places(count: int, most: int = FEW) -> list[int]:
    """Which of so many epochs are shown: all, or the first, the last and some evenly between."""
    if count <= most:
        return list(range(count))
    return [round(step * (count - 1) / (most - 1)) for step in range(most)]


def mode_figures(report: TrainReport, console: Console) -> Table | Group:
    """What each mode cost, and how near it came: a column a mode, or on narrow terminals a list."""
    runs, sign = all_runs(report), signs(console)
    grid = Grid([Column(""), *(Column(run.mode, right=True) for run in runs)])
    for name, cell in _FIGURES:
        grid.rows.append([Text(name), *(cell(run, sign) for run in runs)])
    table = grid.table()
    if widest(console, table) <= console.width:
        return table
    by_mode = Grid([Column("Mode"), *(Column(name) for name, _ in _FIGURES)])
    by_mode.rows += [[run.mode, *(cell(run, sign) for _, cell in _FIGURES)] for run in runs]
    return by_mode.lines()


def loss_text(loss: float) -> str:
    """Four decimals; a loss too small for them in powers of ten."""
    return f"{loss:.4f}" if not loss or not math.isfinite(loss) or loss >= 0.001 else f"{loss:.1e}"


def share(part: float, whole: float) -> str:
    """A part in percent; of nothing, nothing."""
    return f"{part / whole:.0%}" if whole > 0 else "0%"


def _nothing_for_reference(
    draw: Callable[[Run, Signs], Cell],
) -> Callable[[Run, Signs], Cell]:
    """One process talks to nobody, and is compared with nobody."""

    def cell(run: Run, sign: Signs) -> Cell:
        return Text(sign.none, style=colours.QUIET) if run.mode == REFERENCE else draw(run, sign)

    return cell


def _replicas(run: Run, sign: Signs) -> Cell:
    if all(epoch.alike for epoch in run.epochs):
        return Text(f"{sign.right} identical", style=colours.RIGHT)
    return Text(f"{sign.wrong} differ", style=colours.WRONG)


def _apart(difference: float) -> str:
    return f"{difference:.1e}" if difference else "0"


def _timed(seconds: float, whole: float) -> str:
    return f"{duration(seconds)}, {share(seconds, whole)}"


_FIGURES: Sequence[tuple[str, Callable[[Run, Signs], Cell]]] = (
    ("Time", lambda run, _: duration(run.seconds)),
    ("Steps", lambda run, _: f"{run.steps:,}"),
    ("Collectives a step", _nothing_for_reference(lambda run, _: str(run.collectives))),
    ("Bytes a step", _nothing_for_reference(lambda run, _: size(run.step_bytes))),
    (
        "In communication",
        _nothing_for_reference(lambda run, _: _timed(run.communication, run.seconds)),
    ),
    (
        "Of it overlapped",
        _nothing_for_reference(lambda run, _: _timed(run.overlapped, run.communication)),
    ),
    ("Replicas", _nothing_for_reference(_replicas)),
    ("Weights off by", _nothing_for_reference(lambda run, _: _apart(run.difference))),
    ("Losses off by", _nothing_for_reference(lambda run, _: _apart(run.loss_difference))),
)
