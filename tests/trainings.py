"""Reports of trainings that never were, for the tests of their views."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distdemo.launcher.records import Returned, WorldReport, WorldSpec
from distdemo.train.records import (
    MODES,
    REFERENCE,
    Epoch,
    Proof,
    Run,
    Span,
    Task,
    TrainReport,
    TrainSpec,
)

COSTS = {"manual": (4, 38_440), "flat": (1, 38_440), "ddp": (2, 38_440)}
"""Collectives and bytes of a step."""


def made_world(ranks: int = 4, **more: Any) -> WorldReport:
    """A world in which every rank returned."""
    outcomes = tuple(Returned(rank=rank) for rank in range(ranks))
    return WorldReport(WorldSpec(ranks), outcomes, None, 1.5, "fork", "it is quick", **more)


def made_run(mode: str, *, epochs: int = 3, ranks: int = 4, slip: float = 0.0) -> Run:
    """A run whose losses fall; one that slips ends with a replica of its own."""
    sums = ("abc123",) * (1 if mode == REFERENCE else ranks)
    each = [
        Epoch(2.3 / (number + 1) + slip, 1 - 0.5 / (number + 1), 0.25, sums)
        for number in range(epochs)
    ]
    if slip:
        each[-1] = replace(each[-1], checksums=("ffffff", *sums[1:]))
    collectives, step_bytes = COSTS.get(mode, (0, 0))
    talks = mode != REFERENCE
    return Run(
        mode,
        tuple(each),
        steps=12 * epochs,
        collectives=collectives,
        step_bytes=step_bytes,
        seconds=0.25 * epochs,
        communication=0.1 * epochs * talks,
        overlapped=0.034 * epochs * (mode == "ddp"),
        difference=slip or 1.2e-7 * talks,
        loss_difference=slip or 3.4e-7 * talks,
        first_collectives=collectives,
    )


def made_proofs(mode: str) -> tuple[Proof, ...]:
    """What a mode proves."""
    within = "within 1e-6 of"
    return (
        Proof(
            f"{mode}: all replicas are the same after every epoch",
            True,
            "final checksum abc123",
            mode=mode,
            about="Replicas the same, bit for bit, after every epoch",
        ),
        Proof(
            f"{mode}: the loss of every epoch is that of one process, {within} it",
            True,
            "largest difference 3.4e-07",
            mode=mode,
            about=f"Loss of one process in every epoch, {within} it",
            difference=3.4e-7,
        ),
        Proof(
            f"{mode}: every weight is that of one process in the end, {within} how far they moved",
            True,
            "largest difference 1.2e-07",
            mode=mode,
            about=f"Weights of one process in the end, {within} how far they moved",
            difference=1.2e-7,
        ),
    )


def made_report(
    mode: str = "compare", *, epochs: int = 3, ranks: int = 4, **more: Any
) -> TrainReport:
    """A training in which all went well."""
    modes = MODES if mode == "compare" else (mode,)
    names = f"{', '.join(modes[:-1])} and {modes[-1]}"
    same = Proof(
        f"{names} have the same weights", True, "no difference", about="same", difference=0
    )
    fields: dict[str, Any] = {
        "spec": TrainSpec(mode=mode, epochs=epochs, batch_size=128),
        "world": made_world(ranks),
        "task": Task("generated points", 1536, 512, 64, 10, 4810),
        "reference": made_run(REFERENCE, epochs=epochs),
        "runs": tuple(made_run(each, epochs=epochs, ranks=ranks) for each in modes),
        "proofs": tuple(
            [proof for each in modes for proof in made_proofs(each)] + [same] * (len(modes) > 1)
        ),
        "comparable": epochs,
        "notes": ("The data has 1,536 samples.",),
        "versions": {"distdemo": "1.2.3", "torch": "2.13"},
        **more,
    }
    return TrainReport(**fields)


def broken_report() -> TrainReport:
    """One in which flat's replicas went apart."""
    well = made_report()
    manual, _, ddp = well.runs
    proofs = list(well.proofs)
    proofs[3] = replace(proofs[3], held=False, found="rank 0 differs in epoch 3", ranks=(0,))
    runs = (manual, made_run("flat", slip=0.5), ddp)
    return replace(well, runs=runs, proofs=tuple(proofs))


def wild_report(mode: str = "compare") -> TrainReport:
    """One that nothing can be compared with."""
    well = made_report(mode)
    proofs = tuple(
        proof
        if proof.difference is None
        else replace(proof, held=None, found="rounding grows too fast", difference=None)
        for proof in well.proofs
    )
    nan = float("nan")
    runs = tuple(replace(run, difference=nan, loss_difference=nan) for run in well.runs)
    return replace(well, runs=runs, proofs=proofs, comparable=0)


def spans(ranks: int = 2) -> tuple[Span, ...]:
    """A step of ddp on each rank: two buckets at once, while the backward pass computes."""
    found = []
    for rank in range(ranks):
        late = rank * 1e-4
        found += [
            Span(rank, "compute", "step", 0.0 + late, 0.010, "ddp", 0),
            Span(rank, "compute", "forward", 0.0 + late, 0.003, "ddp", 0),
            Span(rank, "compute", "backward", 0.003 + late, 0.006, "ddp", 0),
            Span(rank, "communication", "all_reduce bucket 0", 0.004 + late, 0.004, "ddp", 0, 4096),
            Span(rank, "communication", "all_reduce bucket 1", 0.005 + late, 0.002, "ddp", 0, 512),
            Span(rank, "communication", "all_reduce bucket 0", 0.014 + late, 0.004, "ddp", 1, 4096),
        ]
    return tuple(sorted(found, key=lambda span: span.start))
