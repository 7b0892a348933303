"""A training as a JSON document: every epoch of every mode, and every proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from distdemo.train.records import Proof, Run, TrainReport
from distdemo.train.view_words import ADVICE, LOOK, sentence, unproved, verdict
from distdemo.view.document import Json, envelope, world_entry
from distdemo.view.endings import ending, error_entry, world_errors


def train_document(report: TrainReport, settings: Mapping[str, Json]) -> dict[str, Json]:
    """The whole report but its spans, which ``--trace`` writes.

    Args:
        report: of the training.
        settings: what was asked for besides its spec: ``timeout`` (seconds without progress), and
            the files ``plot`` and ``trace``.
    """
    world = report.world
    content: dict[str, Json] = {
        "spec": asdict(report.spec) | dict(settings),
        "world": world_entry(world) | {"timeout": settings["timeout"]},
        "seconds": world.seconds,
        "task": None if report.task is None else asdict(report.task),
        "reference": None if report.reference is None else _run(report.reference, 0),
        "comparable_epochs": report.comparable,
        "runs": [_run(run, report.comparable) for run in report.runs],
        "proofs": [_proof(proof) for proof in report.proofs],
        "notes": list(report.notes),
        "versions": report.versions,
    }
    if not world.ok:
        content["ranks"] = [ending(outcome) for outcome in world.outcomes]
    return envelope("train", ok=report.ok, errors=_errors(report), **content)


def _run(run: Run, comparable: int) -> dict[str, Json]:
    """Without an epoch that can be compared there is no difference: null."""
    return {
        "mode": run.mode,
        "steps": run.steps,
        "collectives_per_step": run.collectives,
        "collectives_of_first_step": run.first_collectives,
        "bytes_per_step": run.step_bytes,
        "seconds": run.seconds,
        "communication_seconds": run.communication,
        "overlapped_seconds": run.overlapped,
        "weight_difference": run.difference if comparable else None,
        "loss_difference": run.loss_difference if comparable else None,
        "epochs": [
            {
                "epoch": number,
                "loss": epoch.loss,
                "accuracy": epoch.accuracy,
                "seconds": epoch.seconds,
                "replicas_identical": epoch.alike,
                "checksums": list(epoch.checksums),
            }
            for number, epoch in enumerate(run.epochs, start=1)
        ],
    }


def _proof(proof: Proof) -> dict[str, Json]:
    return {
        "mode": proof.mode or None,
        "claim": proof.claim,
        "held": proof.held,
        "found": proof.found,
        "difference": proof.difference,
        "ranks": list(proof.ranks),
    }


def _errors(report: TrainReport) -> list[Json]:
    """Why the world failed; an entry for each proof that did, one for all that were not made."""
    errors = world_errors(report.world)
    for proof in report.broken:
        entry = error_entry(f"{proof.claim}: this does not hold.", sentence(proof.found), LOOK)
        errors.append(entry | {"ranks": list(proof.ranks)})
    if report.open:
        errors.append(error_entry(unproved(report), sentence(report.open[0].found), ADVICE))
    if not errors and not report.ok:
        errors.append(error_entry(verdict(report), "No proof was made.", LOOK))
    return errors
