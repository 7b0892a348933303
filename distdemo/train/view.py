"""Views of a training: figures per epoch and mode, proofs, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.text import Text

from distdemo.train.records import (
    BUCKET_MIB,
    CLASSES,
    FEATURES,
    PARAMETERS,
    REFERENCE,
    SAMPLES,
    TESTS,
    Run,
    TrainProof,
    TrainReport,
    rank_batch,
)
from distdemo.view import colours
from distdemo.view.blocks import Block, Heading, Paragraph, Summary
from distdemo.view.console import Signs
from distdemo.view.format import (
    duration,
    listing,
    plural,
    ranks_text,
    short_size,
    spread,
    start_and_versions,
)
from distdemo.view.tables import Column, Grid, grid_of

FEW = 10  # most epochs shown
CLAIM_TEXTS = {
    "replicas": "Replicas identical, bit for bit, after every epoch",
    "loss": "Same loss as one process in every step, within 1e-6 of it",
    "weights": "Same weights as one process after every epoch, within 1e-6 of their change",
}
SLOWER = 1.1
"""Least ratio to the time of one process that is worth a sentence."""
ROUNDING = "Weights are float64, so rounding in a different order stays far below 1e-6."


def train_view(report: TrainReport, sign: Signs) -> Iterator[Block]:
    """Yield figures per epoch and mode, the proofs, notes and the verdict.

    Args:
        report: Report of a training whose ranks all returned.
        sign: Signs of the terminal.
    """
    world = report.world.world
    size = rank_batch(world.world_size)
    trainings = [run for run in (report.reference, *report.runs) if run is not None]
    title = ("train", report.spec.mode, plural(world.world_size, "rank"), world.backend)
    yield Heading(f" {sign.dot} ".join((*title, world.device)))
    yield Paragraph(
        f"generated points: {SAMPLES:,} samples and {TESTS:,} tests of {FEATURES} numbers, "
        f"{CLASSES} classes.\n"
        f"The model has {PARAMETERS:,} parameters. A step takes {size * world.world_size:,} "
        f"samples, {size:,} per rank.",
        colours.QUIET,
    )
    yield Heading("Loss and test accuracy by epoch")
    yield _epochs(trainings)
    yield Heading("Cost")
    yield _cost(trainings, sign)
    yield Paragraph("\n".join(_cost_notes(report, world.world_size)))
    yield Heading("Proofs, and the largest difference found")
    yield _proofs(report, sign)
    yield Paragraph(ROUNDING)
    for proof in report.failed:
        yield Paragraph(_failure(report, proof, sign), colours.WRONG)
    if report.spec.epochs > FEW:
        note = f"{FEW} of {report.spec.epochs:,} epochs are shown; --format json has all."
        yield Paragraph(note, colours.QUIET)
    yield Summary(_verdict(report), report.ok)
    yield Paragraph(
        start_and_versions(report.world, report.versions), colours.QUIET, is_detail=True
    )


def _epochs(runs: Sequence[Run]) -> Grid:
    """Return one column per mode; of many epochs the first, the last and some in between."""

    def cell(run: Run, index: int) -> str:
        epoch = run.epochs[index]
        loss = f"{epoch.loss:.4f}" if 1e-3 <= epoch.loss < 1e4 else f"{epoch.loss:.3g}"
        return f"{loss} {epoch.accuracy:6.1%}"

    return grid_of(
        spread(len(runs[0].epochs), FEW),
        (Column("Epoch", right=True), lambda index: str(index + 1)),
        *((Column(run.mode, right=True), partial(cell, run)) for run in runs),
    )


def _cost(runs: Sequence[Run], sign: Signs) -> Grid:
    """Return one column per mode."""
    rows: dict[str, Callable[[Run], str]] = {
        "Time": lambda run: duration(run.time_s),
        "Steps": lambda run: f"{run.steps:,}",
        "Collectives per step": lambda run: str(run.collectives_per_step or sign.none),
        "Payload per step": lambda run: (
            short_size(run.bytes_per_step) if run.bytes_per_step else sign.none
        ),
    }
    grid = Grid([Column("Figure"), *(Column(run.mode, right=True) for run in runs)])
    grid.rows += [[name, *map(cell, runs)] for name, cell in rows.items()]
    return grid


def _cost_notes(report: TrainReport, n: int) -> Iterator[str]:
    """Yield the reasons for the number of DDP's collectives and for the time of n ranks."""
    yield f"{REFERENCE} is one process that takes the same batches without averaging."
    buckets = max(run.collectives_per_step if run.mode == "ddp" else 0 for run in report.runs)
    if buckets > 1:
        yield (
            f"ddp: {buckets} buckets (bucket_cap_mb={BUCKET_MIB}). The first is sent while the "
            "backward pass\nstill computes, which gains time if that takes longer than the call."
        )
    if report.reference is None:
        return
    ratios = sorted(run.time_s / report.reference.time_s for run in report.runs)
    if ratios[0] <= SLOWER:
        return
    if n == 1:
        yield "With one rank there is nothing to average: the calls take the additional time."
        return
    shown = [f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}" for ratio in ratios]
    yield (
        f"{n} ranks take {' to '.join(dict.fromkeys((shown[0], shown[-1])))} times as long: the "
        "calls, and waiting for cores and for\nother ranks, cost more than sharing the work saves. "
        "Larger steps can gain,\nwith a core or a GPU for each rank."
    )


def _proofs(report: TrainReport, sign: Signs) -> Grid:
    """Return each mode's claims with the largest difference found."""
    grid = Grid([Column("Claim", folds=True), *(Column(run.mode) for run in report.runs)])
    for claim, text in CLAIM_TEXTS.items():
        proofs = [proof for proof in report.proofs if proof.claim == claim]
        grid.rows.append([text, *(_proof_cell(proof, sign) for proof in proofs)])
    return grid


def _proof_cell(proof: TrainProof, sign: Signs) -> Text:
    difference = f"{proof.difference:.1e}" if proof.difference else "0"
    if proof.claim == "replicas":
        difference = "identical" if proof.held else "differ"
    if proof.held:
        return Text(f"{sign.right} {difference}", style=colours.RIGHT)
    return Text(f"{sign.wrong} {difference}", style=colours.WRONG)


def _failure(report: TrainReport, proof: TrainProof, sign: Signs) -> str:
    """Return the line for a failed proof."""
    if proof.claim == "replicas":
        run = next(run for run in report.runs if run.mode == proof.mode)
        checksums = set(run.epochs[(proof.epoch or 1) - 1].checksums)
        what = f"{len(checksums)} different checksums"
        if proof.ranks:
            what += f"; different on {ranks_text(proof.ranks)}"
    else:
        what = f"largest difference {proof.difference:.1e}"
    return f"{sign.wrong} {proof.mode}: {CLAIM_TEXTS[proof.claim]}: epoch {proof.epoch}: {what}."


def _verdict(report: TrainReport) -> str:
    proofs = plural(len(report.proofs), "proof")
    if report.failed:
        first = report.failed[0]
        return (
            f"{len(report.failed)} of {proofs} failed: {first.mode}: {CLAIM_TEXTS[first.claim]}. "
            "Try distdemo check to test this backend's collectives."
        )
    return (
        f"All {proofs} hold: {listing([run.mode for run in report.runs])} trained as one process "
        f"does on the same batches. Test accuracy {report.runs[-1].epochs[-1].accuracy:.1%}."
    )
