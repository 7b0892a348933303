"""Reports of trainings that never were, for the tests of their views."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distdemo.model import WorldSpec
from distdemo.outcomes import Returned, WorldReport
from distdemo.training import (
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
    )


def made_report(
    mode: str = "compare", *, epochs: int = 3, ranks: int = 4, **more: Any
) -> TrainReport:
    """A training in which all went well."""
    modes = MODES if mode == "compare" else (mode,)
    fields: dict[str, Any] = {
        "spec": TrainSpec(mode=mode, epochs=epochs, batch_size=128),
        "world": made_world(ranks),
        "task": Task("generated points", 1536, 512, 64, 10, 4810),
        "reference": made_run(REFERENCE, epochs=epochs),
        "runs": tuple(made_run(each, epochs=epochs, ranks=ranks) for each in modes),
        "proofs": tuple(
            Proof(f"{each}: all replicas are the same after every epoch", True, "they are")
            for each in modes
        ),
        "notes": ("The data has 1,536 samples.",),
        "versions": {"distdemo": "1.2.3", "torch": "2.13"},
        **more,
    }
    return TrainReport(**fields)


def broken_report() -> TrainReport:
    """One in which flat's replicas went apart."""
    well = made_report()
    manual, _, ddp = well.runs
    first, _, last = well.proofs
    failed = Proof(
        "flat: all replicas are the same after every epoch",
        False,
        "rank 0 differs in epoch 3",
        (0,),
    )
    runs = (manual, made_run("flat", slip=0.5), ddp)
    return replace(well, runs=runs, proofs=(first, failed, last))


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
