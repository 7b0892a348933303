"""Views of a training: figures per epoch and mode, proofs, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from distdemo.train.records import CLAIMS, REFERENCE, Deviation, Run, TrainProof, TrainReport
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import (
    decimal_size,
    duration,
    listing,
    origin,
    percent,
    plural,
    ranks_text,
    spread,
)
from distdemo.view.tables import Cell, Column, Grid, fitting, heading

FEW = 10  # most epochs shown
MOST_MARKS = 12  # most markers on a line of the plot
UNDECIDED = "yellow"
CLAIM_TEXTS = {
    "replicas": "Replicas identical, bit for bit, after every epoch",
    "loss": "Same loss as one process in every step, within 1e-6 of it",
    "weights": "Same weights as one process after every epoch, within 1e-6 of their change",
}
STOPPED = {
    "diverged": "the training on one process diverges",
    "rounding": "this training magnifies rounding errors, so correct programs differ too",
}


def table(report: TrainReport, console: Console) -> Group:
    """Return the report of a training whose ranks all returned."""
    sign, spec, task, world = signs(console), report.spec, report.task, report.world.world
    title = ("train", spec.mode, plural(world.world_size, "rank"), world.backend, world.device)
    batch = task.rank_batch * world.world_size
    about = (
        f"{task.data}: {task.samples:,} samples and {task.tests:,} tests of "
        f"{plural(task.features, 'number')}, {task.classes} classes.\n"
        f"The model has {task.parameters:,} parameters. A step takes {batch:,} samples, "
        f"{task.rank_batch:,} per rank."
    )
    runs = [run for run in (report.reference, *report.runs) if run is not None]
    several = world.world_size > 1
    parts: list[RenderableType] = [
        heading(f" {sign.dot} ".join((*title, spec.dataset))),
        Text(about, style=colours.QUIET),
        heading("Loss and test accuracy by epoch"),
        fitting(console, lambda _: _epochs(runs)),
        heading("Cost"),
        fitting(console, lambda _: _cost(runs, sign, several=several)),
        Text(f"{REFERENCE} is one process that takes the same batches without averaging."),
        heading("Proofs, and the largest difference found"),
        fitting(console, lambda _: _proofs(report, sign)),
        *(_failed(report, proof, sign) for proof in report.failed),
        *(Text(note, style=colours.QUIET) for note in _notes(report, batch)),
        summary(report, console),
        Text(origin(report.world, report.versions), style=colours.QUIET),
    ]
    return Group(*parts)


def summary(report: TrainReport, console: Console) -> Text:
    """Return the verdict: whether all proofs hold."""
    undecided = bool(report.undecided) and not report.failed
    begin, style = _mark(None if undecided else report.ok, signs(console))
    return Text(f"{begin} {_verdict(report)}", style=style)


def _epochs(runs: Sequence[Run]) -> Grid:
    """Return one column per mode; of many epochs the first, the last and some in between."""
    grid = Grid([Column("Epoch", right=True), *(Column(run.mode, right=True) for run in runs)])
    for index in spread(len(runs[0].epochs), FEW):
        cells: list[Cell] = [str(index + 1)]
        for epoch in (run.epochs[index] for run in runs):
            loss = epoch.loss
            text = f"{loss:.4f}" if 1e-3 <= loss < 1e4 or not loss else f"{loss:.3g}"
            cells.append(f"{text} {epoch.accuracy:6.1%}")
        grid.rows.append(cells)
    return grid


def _cost(runs: Sequence[Run], sign: Signs, *, several: bool) -> Grid:
    """Return one column per mode; communication only for several ranks."""
    figures: dict[str, Callable[[Run], str]] = {
        "Time": lambda run: duration(run.time_s),
        "Steps": lambda run: f"{run.steps:,}",
        "Collectives per step": lambda run: str(run.collectives_per_step),
        "Bytes per step": lambda run: decimal_size(float(f"{run.bytes_per_step:.3g}")),
    }
    if several:
        figures["In communication"] = lambda run: _timed(run.communication_s, run.time_s)
        figures["of which overlapped"] = lambda run: _timed(run.overlapped_s, run.communication_s)
    own = ("Time", "Steps")  # also shown for the reference
    return Grid(
        [Column("Figure"), *(Column(run.mode, right=True) for run in runs)],
        [
            [
                name,
                *(
                    sign.none if run.mode == REFERENCE and name not in own else figure(run)
                    for run in runs
                ),
            ]
            for name, figure in figures.items()
        ],
    )


def _timed(part: float, whole: float) -> str:
    return f"{duration(part)}, {percent(part / whole if whole else 0.0)}"


def _proofs(report: TrainReport, sign: Signs) -> Grid:
    """Return each mode's claims with the largest difference found."""
    grid = Grid([Column("Claim", folds=True), *(Column(run.mode) for run in report.runs)])
    for claim in CLAIMS:
        row: list[Cell] = [CLAIM_TEXTS[claim]]
        for proof in (each for each in report.proofs if each.claim == claim):
            begin, style = _mark(proof.held, sign)
            end = f"{proof.difference:.1e}" if proof.difference else "0"
            if claim == "replicas":
                end = "identical" if proof.held else "differ"
            row.append(Text(f"{begin} {sign.none if proof.held is None else end}", style=style))
        grid.rows.append(row)
    return grid


def _verdict(report: TrainReport) -> str:
    count, modes = len(report.proofs), listing([run.mode for run in report.runs])
    if report.failed:
        first = report.failed[0]
        return (
            f"{len(report.failed)} of {plural(count, 'proof')} failed: {first.mode}: "
            f"{CLAIM_TEXTS[first.claim]}. Try distdemo check to test this backend's collectives."
        )
    compared = [run.comparison or Deviation() for run in report.runs]
    if report.undecided:
        why = next((STOPPED[each.stopped] for each in compared if not each.epochs), "")
        return (
            f"{len(report.undecided)} of {plural(count, 'proof')} could not be made: {why}. "
            "Try a smaller --lr."
        )
    epochs, reached = min(each.epochs for each in compared), report.runs[-1].epochs[-1].accuracy
    only = f" in the first {epochs:,} of {report.spec.epochs:,} epochs"
    return (
        f"All {count} proofs hold: {modes} trained as one process does on the same batches"
        f"{only if epochs < report.spec.epochs else ''}. Test accuracy {reached:.1%}."
    )


def _failed(report: TrainReport, proof: TrainProof, sign: Signs) -> Text:
    """Return the line for a failed proof."""
    found = f"largest difference {proof.difference:.1e}" if proof.difference is not None else ""
    if proof.claim == "replicas":
        run = next(each for each in report.runs if each.mode == proof.mode)
        kinds = len(set(run.epochs[(proof.epoch or 1) - 1].checksums))
        found = f"{kinds} different checksums"
        if proof.ranks:
            found += f"; different on {ranks_text(proof.ranks)}"
    text = f"{sign.wrong} {proof.mode}: {CLAIM_TEXTS[proof.claim]}: epoch {proof.epoch}: {found}."
    return Text(text, style=colours.WRONG)


def _notes(report: TrainReport, batch: int) -> Iterator[str]:
    """Yield notes on the settings and results."""
    task, spec = report.task, report.spec
    if batch != spec.batch_size:
        yield f"A step takes {batch:,} samples, not {spec.batch_size:,}, to split them evenly."
    dropped = task.samples - batch * task.steps_per_epoch
    if dropped:
        yield (
            f"{dropped:,} of {task.samples:,} samples are left out of each epoch: they don't fill "
            "another step."
        )
    if spec.epochs > FEW:
        yield f"{FEW} of {spec.epochs:,} epochs are shown; --format json has all."
    for run in report.runs:
        found = run.comparison or Deviation()
        if found.stopped in STOPPED and found.epochs:
            yield f"{run.mode}: compared up to epoch {found.epochs}: {STOPPED[found.stopped]}."
        if run.mode == "ddp" and run.collectives_per_step == 1:
            yield (
                "ddp has all gradients in one bucket, which is complete only after the backward "
                "pass, so nothing can overlap. Try a larger --hidden."
            )


def _mark(held: bool | None, sign: Signs) -> tuple[str, str]:
    """Return the sign and style of a proof."""
    if held is None:
        return "?", UNDECIDED
    return (sign.right, colours.RIGHT) if held else (sign.wrong, colours.WRONG)


# ------------------------------------------------------------------------------------------ plot


def plot(report: TrainReport, kind: str) -> bytes:
    """Draw loss and test accuracy per epoch, one line per mode and for the reference.

    Args:
        report: Report of a training whose ranks all returned.
        kind: ``png`` or ``svg``.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    from distdemo.view.plot import COLOURS, MARKS, SETTINGS, saved

    runs = [run for run in (report.reference, *report.runs) if run is not None]
    spec, world = report.spec, report.world.world
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(9.0, 4.2), layout="constrained")
        loss, accuracy = figure.subplots(1, 2)
        for axes, what, name in (
            (loss, "loss", "Loss (cross entropy)"),
            (accuracy, "accuracy", "Test accuracy"),
        ):
            for index, run in enumerate(runs):
                values = [getattr(epoch, what) for epoch in run.epochs]
                axes.plot(
                    range(1, len(values) + 1),
                    values,
                    label=run.mode,
                    color=COLOURS[index],
                    linewidth=7 - 2 * index,  # lines should coincide, so each is thinner
                    marker=MARKS[index],
                    markersize=12 - 2 * index,
                    markevery=math.ceil(len(values) / MOST_MARKS),
                )
            axes.set_xlabel("Epoch")
            axes.set_ylabel(name)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        accuracy.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        handles, names = loss.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(runs), frameon=False)
        figure.suptitle(
            f"{report.task.data}: {plural(world.world_size, 'rank')} over {world.backend}, "
            f"batch {spec.batch_size}, learning rate {spec.learning_rate:g}"
        )
        return saved(figure, kind)
