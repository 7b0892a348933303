"""What the modes of a training do differently, in sentences drawn from its figures."""

from __future__ import annotations

from distdemo.render.numbers import plural
from distdemo.render.train_grids import share
from distdemo.training import Run, TrainReport


def lesson(report: TrainReport) -> str:
    """How each mode averaged the gradients of a step; empty if nothing ran."""
    sentences = [_SENTENCES[run.mode](run) for run in report.runs if run.mode in _SENTENCES]
    return " ".join([_BEGINNING, *sentences])


def verdict(report: TrainReport) -> str:
    """Whether all that was claimed held, in a line or two."""
    if not report.proofs:
        return "Nothing was proved."
    failed = [proof for proof in report.proofs if not proof.held]
    count = len(report.proofs)
    if failed:
        first = failed[0]
        return f"{len(failed)} of {plural(count, 'proof')} failed: {first.claim}: {first.found}."
    modes = listed([run.mode for run in report.runs])
    held = f"All {count} proofs hold" if count > 1 else "The proof holds"
    return f"{held}: {modes} trained as one process does on the same batches.{_reached(report)}"


def listed(names: list[str]) -> str:
    """``manual, flat and ddp``."""
    *others, last = names or ["nothing"]
    return f"{', '.join(others)} and {last}" if others else last


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
    hidden = share(run.overlapped, run.communication)
    return (
        f"ddp calls all_reduce {_times(run.collectives)}, for a bucket of gradients as soon as "
        f"they are there: {hidden} of its communication was hidden behind the backward pass."
    )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


_BEGINNING = (
    "single is one process that takes the same batches. The others average the gradients of all "
    "ranks in each step."
)
_SENTENCES = {"manual": _manual, "flat": _flat, "ddp": _ddp}
