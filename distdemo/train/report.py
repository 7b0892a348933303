"""Build the report of a training, with its proofs, from the ranks' results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from distdemo import backends
from distdemo.launcher.records import WorldReport
from distdemo.train.records import (
    TOLERANCE,
    Run,
    TrainProof,
    TrainReport,
    TrainSpec,
    TrainTask,
)
from distdemo.versions import versions

if TYPE_CHECKING:
    from distdemo.train.loop import RankTrainings


def make_report(spec: TrainSpec, world: WorldReport, task: TrainTask) -> TrainReport:
    """Return the report of a training."""
    result = TrainReport(spec, world, task, versions=versions() | backends.versions_of(world.world))
    if not world.ok:
        return result
    results: list[RankTrainings] = world.values
    count = len(spec.modes)
    trained = zip(*(each.runs[-count:] for each in results), strict=True)
    runs = tuple(map(_merged, trained))
    return replace(
        result,
        reference=results[0].runs[0],
        runs=runs,
        proofs=tuple(proof for run in runs for proof in prove(run)),
        spans=tuple(span for each in results for span in each.spans),
    )


def _merged(runs: Sequence[Run]) -> Run:
    """Merge the runs of one mode, one per rank in rank order."""
    first = runs[0]
    return replace(
        first,
        epochs=tuple(
            replace(
                epochs[0],
                time_s=max(each.time_s for each in epochs),
                checksums=tuple(each.checksums[0] for each in epochs),
            )
            for epochs in zip(*(run.epochs for run in runs), strict=True)
        ),
        communication_s=sum(run.communication_s for run in runs) / len(runs),
        overlapped_s=sum(run.overlapped_s for run in runs) / len(runs),
    )


def prove(run: Run) -> tuple[TrainProof, ...]:
    """Check that a mode's replicas are identical and were trained as in one process."""
    found = run.comparison
    proofs = [TrainProof(run.mode, "replicas", held=True)]
    for number, epoch in enumerate(run.epochs, start=1):
        if not epoch.replicas_identical:
            ((most, count),) = Counter(epoch.checksums).most_common(1)
            others = tuple(rank for rank, each in enumerate(epoch.checksums) if each != most)
            ranks = others if 2 * count > len(epoch.checksums) else ()  # no majority: unknown
            proofs = [TrainProof(run.mode, "replicas", held=False, epoch=number, ranks=ranks)]
            break
    for claim, difference in (
        ("loss", found.loss_difference),
        ("weights", found.weight_difference),
    ):
        if not found.epochs:
            proofs.append(TrainProof(run.mode, claim, None))
        elif difference <= TOLERANCE:  # False for NaN
            proofs.append(TrainProof(run.mode, claim, held=True, difference=difference))
        else:
            proofs.append(TrainProof(run.mode, claim, False, difference, found.epochs))
    return tuple(proofs)
