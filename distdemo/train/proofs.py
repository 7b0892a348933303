"""Prove that a training is data-parallel: compare it with the same batches on one process.

A wrong average (an undivided sum, a missing rank, a forgotten parameter) changes the loss of the
second step by 1e-4 or more. Rounding differences stay below 1e-13 in 200 epochs (measured).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from distdemo import backends
from distdemo.launcher.records import WorldReport
from distdemo.train.records import Run, TrainProof, TrainReport, TrainSpec
from distdemo.versions import versions

TOLERANCE = 1e-6
"""Largest allowed difference: of a loss, relative to it; of a weight, to the largest change."""
SMALLEST_LOSS = 1e-6
"""Smallest loss, in nats, to divide by: below it, relative rounding errors are large."""


def loss_difference(losses: Sequence[float], expected: Sequence[float]) -> float:
    """Return the largest relative difference between the losses of an epoch; NaN if one is NaN."""
    pairs = zip(losses, expected, strict=True)
    differences = [abs(loss - other) / max(other, SMALLEST_LOSS) for loss, other in pairs]
    return math.nan if any(map(math.isnan, differences)) else max(differences)


def prove(run: Run) -> tuple[TrainProof, ...]:
    """Check that a mode's replicas are identical and were trained as in one process."""
    return (
        _prove_replicas(run),
        _prove_equal(run.mode, "loss", [epoch.loss_difference for epoch in run.epochs]),
        _prove_equal(run.mode, "weights", [epoch.weight_difference for epoch in run.epochs]),
    )


def _prove_replicas(run: Run) -> TrainProof:
    for number, epoch in enumerate(run.epochs, start=1):
        if not epoch.replicas_identical:
            ((common, count),) = Counter(epoch.checksums).most_common(1)
            others = [rank for rank, checksum in enumerate(epoch.checksums) if checksum != common]
            ranks = tuple(others) if count > len(others) else ()  # no majority: unknown
            return TrainProof(run.mode, "replicas", held=False, epoch=number, ranks=ranks)
    return TrainProof(run.mode, "replicas", held=True)


def _prove_equal(mode: str, claim: str, differences: Sequence[float]) -> TrainProof:
    for number, difference in enumerate(differences, start=1):
        if not difference <= TOLERANCE:  # true for NaN
            return TrainProof(mode, claim, held=False, difference=difference, epoch=number)
    return TrainProof(mode, claim, held=True, difference=max(differences))


def make_report(spec: TrainSpec, world: WorldReport) -> TrainReport:
    """Return the report of a training, with its proofs."""
    report = TrainReport(spec, world, versions=versions() | backends.versions_of(world.world))
    if not world.ok:
        return report
    reference, *first_rank = world.values[0]
    other_ranks: list[tuple[Run, ...]] = world.values[1:]
    runs = tuple(map(_merged, zip(first_rank, *other_ranks, strict=True)))
    proofs = tuple(proof for run in runs for proof in prove(run))
    return replace(report, reference=reference, runs=runs, proofs=proofs)


def _merged(runs: Sequence[Run]) -> Run:
    """Merge the runs of one mode, one per rank in rank order."""
    epochs = []
    for ranks in zip(*(run.epochs for run in runs), strict=True):
        time_s = max(epoch.time_s for epoch in ranks)
        checksums = tuple(checksum for epoch in ranks for checksum in epoch.checksums)
        epochs.append(replace(ranks[0], time_s=time_s, checksums=checksums))
    return replace(runs[0], epochs=tuple(epochs))
