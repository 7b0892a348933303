"""A training as a JSON document: every epoch of every mode, and every proof."""

from __future__ import annotations

from dataclasses import asdict

from distdemo.render.document import Json, envelope, world_entry
from distdemo.render.endings import ending, error_entry, world_errors
from distdemo.render.train_words import verdict
from distdemo.training import Proof, Run, TrainReport


def train_document(report: TrainReport) -> dict[str, Json]:
    """The whole report but its spans, which ``--trace`` writes."""
    world = report.world
    content: dict[str, Json] = {
        "spec": asdict(report.spec),
        "world": world_entry(world),
        "seconds": world.seconds,
        "task": None if report.task is None else asdict(report.task),
        "reference": None if report.reference is None else _run(report.reference),
        "runs": [_run(run) for run in report.runs],
        "proofs": [_proof(proof) for proof in report.proofs],
        "notes": list(report.notes),
        "versions": report.versions,
    }
    if not world.ok:
        content["ranks"] = [ending(outcome) for outcome in world.outcomes]
    return envelope("train", ok=report.ok, errors=_errors(report), **content)


def _run(run: Run) -> dict[str, Json]:
    return {
        "mode": run.mode,
        "steps": run.steps,
        "collectives_per_step": run.collectives,
        "bytes_per_step": run.step_bytes,
        "seconds": run.seconds,
        "communication_seconds": run.communication,
        "overlapped_seconds": run.overlapped,
        "weight_difference": run.difference,
        "loss_difference": run.loss_difference,
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
        "claim": proof.claim,
        "held": proof.held,
        "found": proof.found,
        "ranks": list(proof.ranks),
    }


def _errors(report: TrainReport) -> list[Json]:
    """Why the world failed; or an entry for each proof that did."""
    errors = world_errors(report.world)
    for proof in report.proofs:
        if not proof.held:
            entry = error_entry(f"{proof.claim}: this does not hold.", f"{proof.found}.", "")
            errors.append(entry | {"ranks": list(proof.ranks)})
    if not errors and not report.ok:
        errors.append(error_entry(verdict(report), "No proof was made.", ""))
    return errors
