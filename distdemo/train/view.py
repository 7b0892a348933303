"""A training as people read it: its figures by epoch and by mode, its proofs, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.train.records import CLAIMS, REFERENCE, Comparison, Proof, Run, TrainReport
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.format import decimal_size, duration, listing, percent, plural
from distdemo.view.tables import Cell, Column, Grid, fitting, heading, widest

FEW = 10  # epochs that are shown at most
NAMED = 4  # ranks that are named where replicas differ
ROOMY = 72  # columns of a terminal from which claims have room beside all modes
UNSURE = "yellow"

CLAIM_TEXTS = {
    "replicas": "Replicas identical, bit for bit, after every epoch",
    "loss": "Loss of one process in every step, within 1e-6 of it",
    "weights": "Weights of one process after every epoch, within 1e-6 of how far they moved",
}
STOPPED = {
    "diverged": "the loss of one process is no longer that of a training",
    "rounding": "this training magnifies rounding errors, so that right programs differ too",
}


def table(report: TrainReport, console: Console) -> Group:
    """A training whose ranks all returned."""
    sign, spec, task, world = signs(console), report.spec, report.task, report.world.world
    title = ("train", spec.mode, plural(world.world_size, "rank"), world.backend, world.device)
    batch = task.rank_batch * world.world_size
    about = (
        f"{task.data}: {task.samples:,} samples and {task.tests:,} tests of "
        f"{plural(task.features, 'number')}, {task.classes} classes.\n"
        f"The model has {task.parameters:,} parameters. A step takes {batch:,} samples, "
        f"{task.rank_batch:,} a rank."
    )
    runs = [run for run in (report.reference, *report.runs) if run is not None]
    more = f"{FEW} of {spec.epochs:,} epochs; --format json has all.\n"
    parts: list[RenderableType] = [
        heading(f" {sign.dot} ".join((*title, spec.dataset))),
        Text(about, style=colours.QUIET),
        heading("Loss and test accuracy by epoch"),
        fitting(console, lambda _: _epochs(runs)),
        Text(more if spec.epochs > FEW else "", style=colours.QUIET, end=""),
        heading("Cost"),
        _cost(report, runs, console),
        Text(_explained(report)),
        heading("Proofs, and the largest difference found"),
        _proofs(report, console),
        *(_failed(report, proof, sign) for proof in report.broken),
        *(Text(note, style=colours.QUIET) for note in _notes(report, batch)),
        summary(report, console),
        Text(_origin(report), style=colours.QUIET),
    ]
    return Group(*parts)


def summary(report: TrainReport, console: Console) -> Text:
    """Whether all proofs hold."""
    undecided = bool(report.open) and not report.broken
    begin, style = _mark(None if undecided else report.ok, signs(console))
    return Text(f"{begin} {_verdict(report)}", style=style)


# ------------------------------------------------------------------------------------- figures


def _epochs(runs: Sequence[Run]) -> Grid:
    """A column a mode; of many epochs the first, the last and some evenly between."""
    grid = Grid([Column("Epoch", right=True), *(Column(run.mode, right=True) for run in runs)])
    count = len(runs[0].epochs)
    places = range(count)
    if count > FEW:
        places = [round(step * (count - 1) / (FEW - 1)) for step in range(FEW)]  # type: ignore[assignment]  # numbers too
    for place in places:
        cells: list[Cell] = [str(place + 1)]
        for run in runs:
            loss, accuracy = run.epochs[place].loss, run.epochs[place].accuracy
            text = f"{loss:.4f}" if 1e-3 <= loss < 1e4 or not loss else f"{loss:.3g}"
            cells.append(f"{text} {accuracy:6.1%}")
        grid.rows.append(cells)
    return grid


def _cost(report: TrainReport, runs: Sequence[Run], console: Console) -> Table | Group:
    """A column a mode, or on narrow terminals a list. One rank waits for nobody."""
    figures: dict[str, Callable[[Run], str]] = {
        "Time": lambda run: duration(run.time_s),
        "Steps": lambda run: f"{run.steps:,}",
        "Collectives a step": lambda run: str(run.collectives_per_step),
        "Bytes a step": lambda run: decimal_size(float(f"{run.bytes_per_step:.3g}")),
    }
    if report.world.world.world_size > 1:
        figures["In communication"] = lambda run: _timed(run.communication_s, run.time_s)
        figures["of which overlapped"] = lambda run: _timed(run.overlapped_s, run.communication_s)
    none = Text(signs(console).none, style=colours.QUIET)

    def cell(name: str, run: Run) -> Cell:
        return (
            none if run.mode == REFERENCE and name not in ("Time", "Steps") else figures[name](run)
        )

    grid = Grid([Column(""), *(Column(run.mode, right=True) for run in runs)])
    grid.rows = [[name, *(cell(name, run) for run in runs)] for name in figures]
    drawn = grid.table()
    if widest(console, drawn) <= console.width:
        return drawn
    by_mode = Grid([Column("Mode"), *(Column(name) for name in figures)])
    by_mode.rows = [[run.mode, *(cell(name, run) for name in figures)] for run in runs]
    return by_mode.lines()


def _timed(part: float, whole: float) -> str:
    return f"{duration(part)}, {percent(part / whole if whole else 0.0)}"


def _proofs(report: TrainReport, console: Console) -> Table | Group:
    """What was claimed of each mode, and by how much it was missed at most."""
    sign = signs(console)
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
    return fitting(console, lambda _: grid) if console.width >= ROOMY else grid.lines()


# ------------------------------------------------------------------------------------- sentences


def _explained(report: TrainReport) -> str:
    """How each mode averaged the gradients of a step."""
    if report.world.world.world_size == 1:
        return "With one rank there is nothing to average; each mode calls all_reduce all the same."
    said = "single is one process that takes the same batches. The others average the gradients."
    for run in report.runs:
        count, calls = run.collectives_per_step, _calls(run.collectives_per_step)
        if run.mode == "manual":
            said += f" manual calls all_reduce {calls} a step, for one parameter after the other."
        elif run.mode == "flat":
            said += f" flat copies them into one buffer: all_reduce {calls}, the same bytes."
        elif count == 1:
            said += (
                " ddp has all gradients in one bucket, which is complete only when the backward "
                "pass is over: nothing can overlap. Try a smaller --bucket-mib."
            )
        else:
            hidden = run.overlapped_s / run.communication_s if run.communication_s else 0.0
            said += (
                f" ddp calls it {calls}, for a bucket of gradients as soon as they are there: "
                f"{percent(hidden)} of its communication was hidden behind the backward pass."
            )
    return said


def _calls(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _verdict(report: TrainReport) -> str:
    count, modes = len(report.proofs), listing([run.mode for run in report.runs])
    if report.broken:
        first = report.broken[0]
        return (
            f"{len(report.broken)} of {plural(count, 'proof')} failed: {first.mode}: "
            f"{CLAIM_TEXTS[first.claim]}. Try distdemo check: are this backend's collectives right?"
        )
    compared = [run.comparison or Comparison() for run in report.runs]
    if report.open:
        why = next((STOPPED[each.stopped] for each in compared if not each.epochs), "")
        return (
            f"{len(report.open)} of {plural(count, 'proof')} could not be made: {why}. "
            "Try a smaller --lr."
        )
    epochs, reached = min(each.epochs for each in compared), report.runs[-1].epochs[-1].accuracy
    only = f" in the first {epochs:,} of {report.spec.epochs:,} epochs"
    return (
        f"All {count} proofs hold: {modes} trained as one process does on the same batches"
        f"{only if epochs < report.spec.epochs else ''}. Test accuracy {reached:.1%}."
    )


def _failed(report: TrainReport, proof: Proof, sign: Signs) -> Text:
    """A proof that did not hold, with what was found instead."""
    run = next(each for each in report.runs if each.mode == proof.mode)
    epoch = run.epochs[(proof.epoch or 1) - 1]
    found = f"largest difference {proof.difference:.1e}" if proof.difference is not None else ""
    if proof.claim == "replicas":
        named = [f"rank {rank} has {epoch.checksums[rank]}" for rank in proof.ranks[:NAMED]]
        more = [f"{len(proof.ranks) - NAMED} more differ"] if len(proof.ranks) > NAMED else []
        kinds = f"{len(epoch.checksums)} ranks have {len(set(epoch.checksums))} checksums"
        found = listing([*named, *more]) or kinds
    elif proof.claim == "loss" and report.reference is not None and proof.epoch is not None:
        wanted = report.reference.epochs[proof.epoch - 1].loss
        found += f"; the epoch's loss is {epoch.loss:.9g}, of one process {wanted:.9g}"
    text = f"{sign.wrong} {proof.mode}: {CLAIM_TEXTS[proof.claim]}: epoch {proof.epoch}: {found}."
    return Text(text, style=colours.WRONG)


def _notes(report: TrainReport, batch: int) -> list[str]:
    """What a reader should know."""
    task, spec = report.task, report.spec
    notes = []
    if batch != spec.batch_size:
        notes.append(
            f"A step takes {batch:,} samples, not {spec.batch_size:,}: equally many a rank."
        )
    dropped = task.samples - batch * task.steps_per_epoch
    if dropped:
        notes.append(
            f"{dropped:,} of {task.samples:,} samples are left out of each epoch: they don't fill "
            "another step."
        )
    for run in report.runs:
        found = run.comparison or Comparison()
        if found.stopped in STOPPED and found.epochs:
            notes.append(
                f"{run.mode}: compared up to epoch {found.epochs}: {STOPPED[found.stopped]}."
            )
        if run.collectives_in_first_step != run.collectives_per_step:
            notes.append(
                f"{run.mode} calls all_reduce {_calls(run.collectives_in_first_step)} in the first "
                "step: after it, gradients are grouped anew in the order in which they came."
            )
    return notes


def _origin(report: TrainReport) -> str:
    """How the ranks came to be, and with what."""
    world = report.world
    how = f"Started by {world.start_method}: {world.start_reason}."
    if world.engine != "local":
        how = f"Ranks of a world that others started too ({world.engine})."
    return f"{how}\n{', '.join(f'{name} {value}' for name, value in report.versions.items())}"


def _mark(held: bool | None, sign: Signs) -> tuple[str, str]:
    """The sign of a proof, and its style."""
    if held is None:
        return "?", UNSURE
    return (sign.right, colours.RIGHT) if held else (sign.wrong, colours.WRONG)
