"""What the modes of a training do differently, in sentences drawn from its figures."""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.train.records import Run, TrainReport
from distdemo.train.view_grids import share
from distdemo.view.numbers import plural

ADVICE = "Try a smaller --lr."
"""Where proofs could not be made."""
LOOK = "Try distdemo check: it tells whether the collectives of this backend are right."
"""Where proofs failed."""


def lesson(report: TrainReport) -> str:
    """How each mode averaged the gradients of a step; empty if nothing ran."""
    if report.world.world.world_size == 1:
        return f"{_SINGLE} {_alone(report.runs)}"
    sentences = [_SENTENCES[run.mode](run) for run in report.runs if run.mode in _SENTENCES]
    return " ".join([_BEGINNING, *sentences])


def verdict(report: TrainReport) -> str:
    """Whether all that was claimed held, in a line or two."""
    if not report.proofs:
        return "Nothing was proved."
    count = len(report.proofs)
    if report.broken:
        first = report.broken[0]
        failed = f"{len(report.broken)} of {plural(count, 'proof')} failed"
        return f"{failed}: {first.claim}: {first.found}. {LOOK}"
    if report.open:
        return f"{unproved(report)} {sentence(report.open[0].found)} {ADVICE}"
    modes = listed([run.mode for run in report.runs])
    held = f"All {count} proofs hold" if count > 1 else "The proof holds"
    batches = f"on the same batches{_as_far_as(report)}"
    return f"{held}: {modes} trained as one process does {batches}.{_reached(report)}"


def unproved(report: TrainReport) -> str:
    """That some proofs could not be made: nothing is right or wrong by that."""
    modes = listed([run.mode for run in report.runs])
    claim = f"That {modes} {'train' if len(report.runs) > 1 else 'trains'} as one process does"
    count = f"{len(report.open)} of {plural(len(report.proofs), 'proof')} could not be made"
    return f"{claim} is neither proved nor refuted: {count}."


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def listed(names: list[str]) -> str:
    """``manual, flat and ddp``."""
    *others, last = names or ["nothing"]
    return f"{', '.join(others)} and {last}" if others else last


def _as_far_as(report: TrainReport) -> str:
    """The epochs that could be compared, if these are not all."""
    epochs = report.spec.epochs
    if report.comparable >= epochs:
        return ""
    return f" in the first {report.comparable:,} of {epochs:,} epochs, which can be compared"


def _reached(report: TrainReport) -> str:
    accuracies = [run.epochs[-1].accuracy for run in report.runs if run.epochs]
    return f" Test accuracy {accuracies[-1]:.1%}." if accuracies else ""


def _manual(run: Run) -> str:
    return (
        f"manual calls all_reduce {_times(run.collectives)}, for one parameter after the other, "
        "when the backward pass is over."
    )


def _flat(run: Run) -> str:
    return (
        f"flat copies them into one buffer and calls all_reduce {_times(run.collectives)}: the "
        "same bytes, fewer waits."
    )


def _ddp(run: Run) -> str:
    if run.collectives == 1:
        return (
            "ddp calls all_reduce once, as all gradients are in one bucket, which is complete only "
            "when the backward pass is over: nothing can overlap. Try a smaller --bucket-mb."
        )
    hidden = share(run.overlapped, run.communication)
    return (
        f"ddp calls all_reduce {_times(run.collectives)}, for a bucket of gradients as soon as "
        f"they are there: {hidden} of its communication was hidden behind the backward pass."
    )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _alone(runs: Sequence[Run]) -> str:
    """One rank calls all the same."""
    calls = [str(run.collectives) for run in runs]
    times = _times(runs[0].collectives) if len(runs) == 1 else f"{listed(calls)} times"
    verb = "calls" if len(runs) == 1 else "call"
    return (
        f"With one rank there is nothing to average: {listed([run.mode for run in runs])} {verb} "
        f"all_reduce all the same, {times} a step."
    )


_SINGLE = "single is one process that takes the same batches."
_BEGINNING = f"{_SINGLE} The others average the gradients of all ranks in each step."
_SENTENCES = {"manual": _manual, "flat": _flat, "ddp": _ddp}
