"""Prove that a training is data-parallel: compare it with the same batches on one process.

A wrong average (an undivided sum, a missing rank, a forgotten parameter) changes the loss of the
second step by 1e-4 or more. Rounding starts at 1e-16 and grows by a factor per step. So a
difference that jumps from below ``ROUNDING`` to above ``TOLERANCE`` in one step is a wrong average.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from distdemo import backends
from distdemo.launcher.records import WorldReport
from distdemo.train.records import Deviation, Run, TrainProof, TrainReport, TrainSpec, TrainTask
from distdemo.versions import versions

TOLERANCE = 1e-6
"""Largest allowed difference: of a loss, relative to it; of a weight, to the largest change."""
ROUNDING = 1e-9
"""Difference above which rounding may have grown beyond ``TOLERANCE`` in the next step."""
LARGEST_LOSS = 1e6
"""Loss, in nats, above which a training diverges. Guessing costs a few nats."""
SMALLEST_LOSS = 1e-6
"""Smallest loss, in nats, to divide by: below it, relative rounding errors are large."""


def compare_epoch(
    previous: Deviation,
    losses: Sequence[float],
    reference: Sequence[float],
    weight_difference: float,
) -> Deviation:
    """Return the comparison after one more epoch.

    Args:
        previous: Comparison of all epochs before.
        losses: Loss of each step.
        reference: Losses on one process.
        weight_difference: Largest difference of a weight after the epoch, relative to the largest
            change of a weight.
    """
    if previous.stopped:
        return previous
    if not all(loss <= LARGEST_LOSS for loss in reference):  # false for NaN
        return replace(previous, stopped="diverged")
    differences = [
        abs(loss - expected) / max(expected, SMALLEST_LOSS)
        for loss, expected in zip(losses, reference, strict=True)
    ]
    largest = [previous.loss_difference, previous.weight_difference]
    stopped = ""
    for difference in (*differences, weight_difference):
        if not difference <= TOLERANCE:
            if max(largest) > ROUNDING:
                return replace(previous, stopped="rounding")
            stopped = "wrong"
            break
        largest.append(difference)
    return Deviation(
        previous.epochs + 1,
        _largest([previous.loss_difference, *differences]),
        _largest([previous.weight_difference, weight_difference]),
        stopped,
    )


def _largest(values: Sequence[float]) -> float:
    """Return the maximum, or NaN if any value is NaN."""
    return math.nan if any(map(math.isnan, values)) else max(values)


def prove(run: Run) -> tuple[TrainProof, ...]:
    """Check that a mode's replicas are identical and were trained as in one process."""
    return (
        _prove_replicas(run),
        _prove_equal(run, "loss", run.comparison.loss_difference),
        _prove_equal(run, "weights", run.comparison.weight_difference),
    )


def _prove_replicas(run: Run) -> TrainProof:
    for number, epoch in enumerate(run.epochs, start=1):
        if not epoch.replicas_identical:
            ((common, count),) = Counter(epoch.checksums).most_common(1)
            others = [rank for rank, checksum in enumerate(epoch.checksums) if checksum != common]
            ranks = tuple(others) if count > len(others) else ()  # no majority: unknown
            return TrainProof(run.mode, "replicas", held=False, epoch=number, ranks=ranks)
    return TrainProof(run.mode, "replicas", held=True)


def _prove_equal(run: Run, claim: str, difference: float) -> TrainProof:
    epochs = run.comparison.epochs
    if not epochs:
        return TrainProof(run.mode, claim, held=None)
    held = difference <= TOLERANCE  # false for NaN
    return TrainProof(run.mode, claim, held, difference, None if held else epochs)


def make_report(spec: TrainSpec, task: TrainTask, world: WorldReport) -> TrainReport:
    """Return the report of a training, with its proofs."""
    report = TrainReport(spec, world, task, versions=versions() | backends.versions_of(world.world))
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
