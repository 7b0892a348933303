"""The figures of a training: by epoch, and by mode; a column a mode in both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from distdemo.train.records import REFERENCE, Proof, Run, TrainReport
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.grid import Cell, Column, Grid, fitting, widest
from distdemo.view.numbers import duration, size

FEW = 10  # epochs that are shown at most
LARGE, SMALL = 1e4, 1e-3  # losses that need powers of ten
TALKING = 2  # the last figures, which are about waiting for others
ROOMY = 72  # columns of a terminal from which claims have room beside all modes
OPEN = "?"
"""The sign of a proof that could not be made."""
UNSURE = "yellow"


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
    """What each mode cost: a column a mode, or on narrow terminals a list.

    One rank waits for nobody: how long it communicated is not shown.
    """
    runs, sign = all_runs(report), signs(console)
    grid = Grid([Column(""), *(Column(run.mode, right=True) for run in runs)])
    figures = _FIGURES if report.world.world.world_size > 1 else _FIGURES[:-TALKING]
    for name, cell in figures:
        grid.rows.append([Text(name), *(cell(run, sign) for run in runs)])
    table = grid.table()
    if widest(console, table) <= console.width:
        return table
    by_mode = Grid([Column("Mode"), *(Column(name) for name, _ in figures)])
    by_mode.rows += [[run.mode, *(cell(run, sign) for _, cell in figures)] for run in runs]
    return by_mode.lines()


def loss_text(loss: float) -> str:
    """Four decimals; a loss too small or too large for them in powers of ten."""
    if loss >= LARGE:
        return f"{loss:.3g}"
    return f"{loss:.1e}" if 0 < loss < SMALL else f"{loss:.4f}"


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


def proof_grid(report: TrainReport, sign: Signs) -> Grid:
    """What was claimed of each mode, and by how much it was missed at most; a column a mode."""
    modes = [run.mode for run in report.runs]
    grid = Grid([Column("Claim", folds=True), *(Column(mode) for mode in modes)])
    for about in dict.fromkeys(proof.about for proof in report.proofs if proof.mode):
        same = {proof.mode: proof for proof in report.proofs if proof.about == about}
        grid.rows.append([Text(about), *(_outcome(same.get(mode), sign) for mode in modes)])
    return grid


def proof_figures(report: TrainReport, console: Console) -> Table | Group:
    """The proofs of each mode: a table, or on narrow terminals a list."""
    grid = proof_grid(report, signs(console))
    return fitting(console, lambda _: grid) if console.width >= ROOMY else grid.lines()


def mark(held: bool | None, sign: Signs) -> tuple[str, str]:
    """The sign of a proof, and its style."""
    if held is None:
        return OPEN, UNSURE
    return (sign.right, colours.RIGHT) if held else (sign.wrong, colours.WRONG)


def _outcome(proof: Proof | None, sign: Signs) -> Cell:
    if proof is None:
        return ""
    begin, style = mark(proof.held, sign)
    if proof.held is None:
        end = sign.none
    elif proof.difference is None:
        end = "identical" if proof.held else "differ"
    else:
        end = f"{proof.difference:.1e}" if proof.difference else "0"
    return Text(f"{begin} {end}", style=style)


def _bytes(count: int) -> str:
    """Three digits, as times have them."""
    return size(float(f"{count:.3g}"))


def _timed(seconds: float, whole: float) -> str:
    return f"{duration(seconds)}, {share(seconds, whole)}"


_FIGURES: Sequence[tuple[str, Callable[[Run, Signs], Cell]]] = (
    ("Time", lambda run, _: duration(run.seconds)),
    ("Steps", lambda run, _: f"{run.steps:,}"),
    ("Collectives a step", _nothing_for_reference(lambda run, _: str(run.collectives))),
    ("Bytes a step", _nothing_for_reference(lambda run, _: _bytes(run.step_bytes))),
    (
        "In communication",
        _nothing_for_reference(lambda run, _: _timed(run.communication, run.seconds)),
    ),
    (
        "of which overlapped",
        _nothing_for_reference(lambda run, _: _timed(run.overlapped, run.communication)),
    ),
)
