"""Calls between workers and a training over them as a JSON document."""

from __future__ import annotations

from dataclasses import asdict

from distdemo.rpc.records import Call, Lesson, Proof, RpcReport, Weights, name_of
from distdemo.view.document import Json, envelope, world_entry
from distdemo.view.endings import ending, error_entry, world_errors


def rpc_document(report: RpcReport) -> dict[str, Json]:
    """The whole report; ``ok`` exactly where ``errors`` is empty."""
    world = report.world
    content: dict[str, Json] = {
        "spec": asdict(report.spec),
        "world": world_entry(world),
        "workers": [name_of(rank) for rank in range(world.world.world_size)],
        "seconds": world.seconds,
        "notes": list(report.notes),
        "versions": report.versions,
        "calls": [],
        "training": None,
        "proofs": [_proof(proof) for proof in report.proofs],
    }
    if report.lesson is not None:
        content["calls"] = [_call(call) for call in report.lesson.calls]
        content["training"] = _training(report.lesson)
    if not world.ok:
        content["ranks"] = [ending(outcome) for outcome in world.outcomes]
    return envelope("rpc", ok=report.ok, errors=_errors(report), **content)


def _errors(report: RpcReport) -> list[Json]:
    failed = [
        error_entry(
            f"It did not hold: {proof.claim}", f"Found: {proof.found}.", "Look at calls and losses."
        )
        for proof in report.proofs
        if not proof.held
    ]
    return world_errors(report.world) + failed


def _call(call: Call) -> dict[str, Json]:
    return {
        "caller": call.caller,
        "callee": call.callee,
        "kind": call.kind,
        "what": call.what,
        "value": call.value,
        "expected": call.expected,
        "ok": call.ok,
        "start_seconds": call.start,
        "seconds": call.seconds,
    }


def _training(lesson: Lesson) -> dict[str, Json]:
    return {
        "losses": list(lesson.losses),
        "local_losses": list(lesson.local_losses),
        "seconds": lesson.seconds,
        "local_seconds": lesson.local_seconds,
        "weights": [_weights(each) for each in lesson.weights],
    }


def _weights(weights: Weights) -> dict[str, Json]:
    return {
        "name": weights.name,
        "owner": weights.owner,
        "shape": list(weights.shape),
        "remote": list(weights.remote),
        "local": list(weights.local),
        "difference": weights.difference,
    }


def _proof(proof: Proof) -> dict[str, Json]:
    return {"claim": proof.claim, "held": proof.held, "found": proof.found}
