"""A training as people read it: its figures by epoch and by mode, its proofs, and the verdict."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from distdemo.train.records import TrainReport
from distdemo.train.view_grids import FEW, epoch_grid, mark, mode_figures, proof_figures
from distdemo.train.view_words import lesson, verdict
from distdemo.view import colours
from distdemo.view.console import Signs, signs
from distdemo.view.frame import heading
from distdemo.view.grid import fitting
from distdemo.view.numbers import plural


def train_table(report: TrainReport, console: Console) -> Group:
    """A training whose ranks all returned."""
    sign = signs(console)
    parts: list[RenderableType] = [heading(_title(report, sign)), *_about(report)]
    parts += [heading("Loss and test accuracy by epoch")]
    parts += [fitting(console, lambda _: epoch_grid(report)), *_left_out(report)]
    parts += [heading("What it cost"), mode_figures(report, console), Text(lesson(report))]
    parts += [heading("Proofs, and the largest difference found")]
    parts += [proof_figures(report, console), *_beside_table(report, sign)]
    parts += [Text(note, style=colours.QUIET) for note in report.notes]
    return Group(*parts, verdict_line(report, sign), *_world(report))


def verdict_line(report: TrainReport, sign: Signs) -> Text:
    """Whether all proofs hold."""
    undecided = report.open and not report.broken
    begin, style = mark(None if undecided else report.ok, sign)
    return Text(f"{begin} {verdict(report)}", style=style)


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
        f"The model has {task.parameters:,} parameters. A step takes {each * ranks:,} samples, "
        f"{each:,} a rank."
    )
    return [Text(line, style=colours.QUIET) for line in (data, model)]


def _left_out(report: TrainReport) -> list[Text]:
    if report.spec.epochs <= FEW:
        return []
    text = f"{FEW} of {report.spec.epochs:,} epochs; --format json has them all."
    return [Text(text, style=colours.QUIET)]


def _beside_table(report: TrainReport, sign: Signs) -> list[Table]:
    """Proofs that no single mode has, those that failed in full, and why others were not made.

    The verdict says the latter too, unless it has to say what failed.
    """
    told = [proof for proof in report.proofs if proof in report.broken or not proof.mode]
    made = [proof for proof in told if proof.held is not None]
    reasons = dict.fromkeys(proof.found for proof in report.open if report.broken)
    return [
        *(_line(*mark(each.held, sign), f"{each.claim}: ", f"{each.found}.") for each in made),
        *(_line(*mark(None, sign), "Could not be compared: ", f"{why}.") for why in reasons),
    ]


def _line(begin: str, style: str, claim: str, found: str) -> Table:
    """The sign and, beside it, the claim and what was found."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    quiet = colours.QUIET if style == colours.RIGHT else style
    plain = "" if style == colours.RIGHT else style
    table.add_row(Text(begin, style=style), Text(claim, style=plain) + Text(found, style=quiet))
    return table


def _world(report: TrainReport) -> list[Text]:
    """How the ranks came to be, and with what."""
    world = report.world
    how = f"Started by {world.start_method}: {world.start_reason}."
    if world.engine != "local":
        how = f"Ranks of a world that others started too ({world.engine})."
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return [Text(f"{how}\n{versions}", style=colours.QUIET)]
