"""Run the program on one rank, again with moved parameters, and on N; then compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distdemo.calls.exclusion import Exclusion
from distdemo.calls.inspector import Inspector
from distdemo.errors import UsageError
from distdemo.launcher.process_tree import temporary_folder
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.parity.compare import Comparing, RunNotes
from distdemo.parity.gaps import gaps, unrecorded
from distdemo.parity.judge import first_difference
from distdemo.parity.notes import read_notes
from distdemo.parity.records import Difference, ParityReport, Recording, TensorId
from distdemo.parity.remarks import remarks
from distdemo.parity.results import Results
from distdemo.parity.sketches import distance
from distdemo.parity.wording import subject
from distdemo.versions import versions
from distdemo.view.format import listing, plural

MAX_LINES = 3  # of a program's output
FAR = 1e-3
"""Relative movement of a tensor after which the reference runs again, to see if it is the same."""


Start = Callable[..., WorldReport]
"""Function of a number of ranks, the settings of their recorders and `launcher.local` callbacks.

It runs the program on these ranks and records it.
"""


class _Failed(Exception):
    """A world failed before its ranks had recorded what is compared."""

    def __init__(self, run: str, world: WorldReport) -> None:
        super().__init__(run)
        self.run = run
        self.world = world


def measure_parity(report: ParityReport, recording: Recording, start: Start) -> ParityReport:
    """Run the program on few ranks and on all, and return the report with what was compared.

    Args:
        report: Program and numbers of ranks.
        recording: Settings of the run on all ranks, without its folder.
        start: Function that starts a world.
    """
    report = replace(report, versions=versions())
    with temporary_folder("distdemo-parity-") as folder:
        try:
            return _compared(
                report, replace(recording, folder=str(folder)), partial(_run, report, start)
            )
        except _Failed as failed:
            return replace(report, failed_run=failed.run, world=failed.world)


def _run(report: ParityReport, start: Start, recording: Recording) -> RunNotes:
    """Run the program and return what its ranks have noted.

    Raises:
        _Failed: A rank failed before it had noted everything.
    """
    size = report.world_size if recording.run == "ranks" else report.reference_size
    folder = Path(recording.folder) / recording.run
    folder.mkdir()
    left = set()  # ranks that have recorded their steps

    def on_message(rank: int, _: Any) -> bool:
        left.add(rank)
        return len(left) == size  # ends the world: a training may take days

    inspector = Inspector(WorldSpec(size))
    notes = inspector.notes
    world = start(size, (recording, notes), on_message=on_message, **inspector.callbacks())
    read = [read_notes(folder, rank) for rank in range(size)]
    written = [notes for notes in read if notes is not None]
    has_steps = all(notes.steps == recording.steps for notes in written)
    if len(written) < size or not (world.ok or len(left) == size or has_steps):
        raise _Failed(recording.run, inspector.conclude(world)[0])
    printed = world.outcomes[0].output
    inspector.poll(world.outcomes)  # what was noted after the last look
    world = replace(world, verdict=None, outcomes=())
    return RunNotes(
        written, world, printed, inspector.warnings(), inspector.stopped, inspector.gaps()
    )


@np.errstate(invalid="ignore", over="ignore")  # NaN and infinity equal nothing
def _compared(
    report: ParityReport, recording: Recording, run: Callable[[Recording], RunNotes]
) -> ParityReport:
    copies = report.reference_size == 1
    reference = run(replace(recording, run="reference", start="save" if copies else "keep"))
    report = replace(report, world=reference.world)
    if not reference.keys:
        if found := tuple(unrecorded((reference,), lambda _: True)):
            return replace(report, gaps=found)
        return replace(report, difference=_nothing(reference))
    moved = run(replace(recording, run="moved", start="move", epsilon=reference.epsilon))
    exclusion = Exclusion(recording.excluded)
    asked = Comparing(reference, moved, reference, exclusion)
    if any(_differing(asked, moved, FAR)):
        again = run(replace(recording, run="again", start="copy" if copies else "keep"))
        difference = _not_reproducible(asked, again)
        if difference is not None:
            return replace(report, difference=difference)
    ranks = run(recording if copies else replace(recording, start="keep"))
    comparing = Comparing(reference, moved, ranks, exclusion)
    _exclude(comparing)
    results = Results(comparing)
    difference = first_difference(results)
    return replace(
        report,
        steps=comparing.steps,
        axes=results.mesh.axes,
        tensors=results.records(),
        difference=difference,
        gaps=tuple(gaps(results, difference)),
        excluded=exclusion.excluded,
        stopped=ranks.stopped,
        unseen=ranks.unseen,
        copied=len(ranks.all_of("copied")),
        notes=tuple(remarks(comparing, recording.steps)),
        world=ranks.world,
        warnings=ranks.warnings,
    )


def _exclude(comparing: Comparing) -> None:
    """Apply the patterns of ``--except`` to all names.

    Raises:
        UsageError: A pattern matches no tensor, or no tensor is left.
    """
    names = [*dict.fromkeys(name for run in comparing.runs for _, _, name in run.keys)]
    is_left = [not comparing.exclusion.excludes(name) for name in names]
    for pattern in comparing.exclusion.unmatched:
        raise UsageError(
            f"--except {pattern} matches no tensor.",
            f"The program has: {listing(names[:8])}, ...",
            "Give the name of a module or parameter as the table shows it, or a pattern such as "
            "'experts.*'.",
        )
    if not any(is_left):
        raise UsageError(
            "--except leaves no tensor to compare.",
            f"The program has: {listing(names[:8])}.",
            "Leave out a pattern.",
        )


def _nothing(reference: RunNotes) -> Difference:
    """Return the difference for a program in which nothing was recorded."""
    started = reference.ranks[0].started
    printed = reference.printed.strip().splitlines()[-MAX_LINES:]
    if started:
        return Difference(
            "nothing",
            f"The program starts processes itself, at {started}, which are not recorded.",
            hint="parity starts the ranks as torchrun does. Give it the function that each process "
            "runs, distdemo parity FILE:FUNCTION, or read RANK and WORLD_SIZE in the program.",
        )
    return Difference(
        "nothing",
        "The program calls no torch.nn.Module with parameters, so there is nothing to compare.",
        tuple(f"It printed: {line}" for line in printed),
        hint="parity compares modules' outputs, their gradients and their parameters.",
    )


# ---------------------------------------------------------------------------------- reproducibility


def _not_reproducible(asked: Comparing, again: RunNotes) -> Difference | None:
    """Return the difference between two runs of the reference, or None."""
    key = next(_differing(asked, again, FAR / 100), None)
    if key is None:
        return None
    reference = asked.reference
    kind, _, name = key
    size = plural(len(reference.ranks), "rank")
    hint = "Seed what the program draws: torch.manual_seed, a generator for the DataLoader; or "
    hint += "add --seed 0, which seeds torch, NumPy and random."
    if kind != "input" and name in reference.all_of("random"):
        hint = f"{name} draws random numbers. Set the probability of dropout to 0, or add --seed 0."
    return Difference(
        "reproducible",
        f"The program is not reproducible on {size}: step {max(key.number, 1)}, {subject(key)} "
        "differs between two runs.",
        hint=hint,
        kind=kind,
        name=name,
        step=key.number,
    )


def _differing(asked: Comparing, other: RunNotes, share: float) -> Iterator[TensorId]:
    """Yield the tensors of the reference that differ by more than this share of their size.

    The initial parameters of one rank are copied into the second run.
    """
    reference = asked.reference
    copied = ("start", "initial") if len(reference.ranks) == 1 else ()
    for key in (key for key in asked.keys if key.kind not in copied):
        for expected, sketch in zip(reference.sketches(key), other.sketches(key), strict=True):
            if expected and sketch:
                size = expected.norm * max(expected.rows, 1) ** 0.5
                if distance(expected, sketch)[0] > share * size:
                    yield key
            elif expected or sketch:
                yield key
