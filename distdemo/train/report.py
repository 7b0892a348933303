"""From what the ranks brought back to the report, in the launcher."""

from __future__ import annotations

import math
from collections.abc import Sequence

from distdemo import backends
from distdemo.launcher.records import WorldReport
from distdemo.train.classifier import count_parameters
from distdemo.train.data import Data
from distdemo.train.limits import shares
from distdemo.train.parts import Comparison, ModePart, RankPart
from distdemo.train.proofs import largest, loss_differences, prove
from distdemo.train.records import Epoch, Run, Span, Task, TrainReport, TrainSpec
from distdemo.train.spans import on_one_clock
from distdemo.versions import versions


def report(spec: TrainSpec, world: WorldReport, data: Data) -> TrainReport:
    """Everything that the views of ``train`` are drawn from.

    Args:
        spec: what was asked for.
        world: how the ranks ended, and what they brought back.
        data: what they trained on.
    """
    task, found = _task(spec, data), versions() | backends.versions_of(world.world)
    notes = tuple(_notes(spec, world, data))
    if not world.ok:
        return TrainReport(spec, world, task, notes=notes, versions=found)
    parts: list[RankPart] = world.values
    compared = parts[0].comparison
    if compared is None:
        raise ValueError("rank 0 brings back the comparison")
    notes += (*_note_on_buckets(spec, parts[0]), *_note_on_growth(compared))
    return TrainReport(
        spec,
        world,
        task,
        reference=_summed_up([compared.reference]),
        runs=tuple(_run(parts, place, compared) for place in range(len(parts[0].modes))),
        proofs=prove(parts),
        comparable=compared.epochs,
        spans=_spans(parts, world.hosts),
        notes=notes,
        versions=found,
    )


def _task(spec: TrainSpec, data: Data) -> Task:
    return Task(
        words=data.words,
        samples=len(data.train),
        tests=len(data.test),
        features=data.features,
        classes=data.classes,
        parameters=count_parameters(data, spec.hidden),
    )


def _run(parts: Sequence[RankPart], place: int, compared: Comparison) -> Run:
    """One mode, of all ranks."""
    modes = [part.modes[place] for part in parts]
    losses = largest(loss_differences(modes[0], compared))
    return _summed_up(modes, compared.differences.get(modes[0].mode, math.nan), losses)


def _summed_up(modes: Sequence[ModePart], weights: float = 0.0, losses: float = 0.0) -> Run:
    """The same training on all ranks that took part in it."""
    first = modes[0]
    return Run(
        mode=first.mode,
        epochs=tuple(_epoch(modes, number) for number in range(len(first.epochs))),
        steps=first.steps,
        collectives=first.collectives,
        step_bytes=first.step_bytes,
        seconds=max(mode.seconds for mode in modes),
        communication=sum(mode.communication for mode in modes) / len(modes),
        overlapped=sum(mode.overlapped for mode in modes) / len(modes),
        difference=weights,
        loss_difference=losses,
        first_collectives=first.first_collectives,
    )


def _epoch(modes: Sequence[ModePart], number: int) -> Epoch:
    parts = [mode.epochs[number] for mode in modes]
    return Epoch(
        loss=parts[0].loss,
        accuracy=parts[0].accuracy,
        seconds=max(part.seconds for part in parts),
        checksums=tuple(part.checksum for part in parts),
    )


def _spans(parts: Sequence[RankPart], hosts: Sequence[str]) -> tuple[Span, ...]:
    runs = [mode for part in parts for mode in part.modes]
    runs += [part.comparison.reference for part in parts if part.comparison is not None]
    return on_one_clock([span for run in runs for span in run.spans], hosts)


def _notes(spec: TrainSpec, world: WorldReport, data: Data) -> list[str]:
    """What a reader should know."""
    size = world.world.world_size
    cut = shares(spec, len(data.train), size)
    notes = []
    if cut.batch * size != spec.batch_size:
        notes.append(
            f"A step takes {cut.batch * size:,} samples, not {spec.batch_size:,}, "
            f"so that each of the {size} ranks has equally many: {cut.batch:,}."
        )
    if cut.dropped:
        notes.append(
            f"{cut.dropped:,} of {len(data.train):,} samples are left out of each epoch: they "
            "don't fill another step."
        )
    if spec.trace and world.hosts:
        notes.append("Moments are counted on each host from its own first one.")
    return notes


def _note_on_buckets(spec: TrainSpec, part: RankPart) -> tuple[str, ...]:
    """Of DDP, whose first step is not like the others: a trace shows it."""
    for run in part.modes if spec.trace else ():
        if run.first_collectives != run.collectives:
            text = (
                f"After its first step {run.mode} groups its gradients anew, in the order in which "
                f"they came: {run.first_collectives} all_reduce in that step, {run.collectives} in "
                "each later one."
            )
            return (text,)
    return ()


def _note_on_growth(compared: Comparison) -> tuple[str, ...]:
    """If not all epochs can be compared: why; if none can, the proofs say it."""
    if compared.epochs in (0, len(compared.reference.epochs)):
        return ()
    text = (
        f"This training magnifies rounding errors, so that after epoch {compared.epochs} even "
        "right programs differ: later epochs are not compared."
    )
    return (text,)
