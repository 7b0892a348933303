"""A training as people read it: its figures by epoch and by mode, its proofs, and the verdict."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.render import colours
from distdemo.render.console import Signs, signs
from distdemo.render.frame import heading
from distdemo.render.grid import fitting
from distdemo.render.numbers import plural
from distdemo.render.train_grids import FEW, epoch_grid, mode_figures
from distdemo.render.train_words import lesson, verdict
from distdemo.training import Proof, TrainReport


def train_table(report: TrainReport, console: Console) -> Group:
    """A training whose ranks all returned."""
    sign = signs(console)
    parts: list[RenderableType] = [heading(_title(report, sign)), *_about(report)]
    parts += [heading("Loss and test accuracy by epoch")]
    parts += [fitting(console, lambda _: epoch_grid(report)), *_left_out(report)]
    parts += [heading("What it cost, and how far it is from one process")]
    parts += [mode_figures(report, console), Text(lesson(report))]
    parts += [heading("Proofs"), *(_proof(proof, sign) for proof in report.proofs)]
    parts += [Text(note, style=colours.QUIET) for note in report.notes]
    return Group(*parts, verdict_line(report, sign))


def verdict_line(report: TrainReport, sign: Signs) -> Text:
    """Whether all proofs hold."""
    mark, style = (sign.right, colours.RIGHT) if report.ok else (sign.wrong, colours.WRONG)
    return Text(f"{mark} {verdict(report)}", style=style)


def _title(report: TrainReport, sign: Signs) -> str:
    world = report.world.world
    ranks = plural(world.world_size, "rank")
    words = ("train", report.spec.mode, ranks, world.backend, world.device, report.spec.dataset)
    return f" {sign.dot} ".join(words)


def _about(report: TrainReport) -> list[Text]:
    """The data, the model and the steps, in sentences."""
    task, spec = report.task, report.spec
    if task is None:
        return []
    ranks = report.world.world.world_size
    each = spec.batch_size // ranks
    data = (
        f"{task.words}: {task.samples:,} samples and {task.tests:,} tests of "
        f"{plural(task.features, 'number')}, {task.classes} classes."
    )
    model = (
        f"The model has {task.parameters:,} parameters. A step takes {each * ranks} samples, "
        f"{each} a rank."
    )
    return [Text(line, style=colours.QUIET) for line in (data, model)]


def _left_out(report: TrainReport) -> list[Text]:
    if report.spec.epochs <= FEW:
        return []
    text = f"{FEW} of {report.spec.epochs:,} epochs; --format json has them all."
    return [Text(text, style=colours.QUIET)]


def _proof(proof: Proof, sign: Signs) -> Table:
    """The sign and, beside it, the claim and what was found."""
    style = colours.RIGHT if proof.held else colours.WRONG
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    claim = Text(f"{proof.claim}: ", style="" if proof.held else colours.WRONG)
    found = Text(f"{proof.found}.", style=colours.QUIET if proof.held else colours.WRONG)
    table.add_row(Text(sign.right if proof.held else sign.wrong, style=style), claim + found)
    return table
