"""Run a program of the lesson or of a mistake on real ranks, and judge how each rank ended."""

from __future__ import annotations

import runpy
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from distdemo.backends.registry import run_prepared
from distdemo.launcher.process_tree import temporary_folder
from distdemo.launcher.records import (
    Died,
    Outcome,
    Raised,
    Returned,
    TimedOut,
    WorldSpec,
    headline,
)
from distdemo.learn.mistakes.records import OutcomeKind, RankOutcome
from distdemo.learn.records import PlayedStep, Step
from distdemo.sanitizer.hooks import record_calls
from distdemo.sanitizer.records import Notes

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

HANG_TIMEOUT_S = 2.0  # without progress, for a program documented to hang
STALL_TIMEOUT_S = 20.0  # for other programs, and for one that didn't behave as documented


def work(rank: Rank, file: str, notes: Notes | None) -> Any:  # noqa: ANN401 - the program's value
    """Run a program on this rank with the process group initialized. Collective.

    Args:
        rank: Handle of this rank.
        file: Path of the program.
        notes: Settings of the recording of its calls, or None.
    """
    if rank.device != "cpu":
        torch.set_default_device(rank.device)
    rank.barrier("all are here")
    rank.report_phase("the program runs")  # start-up time doesn't count
    with record_calls(notes, rank.rank, rank.world_size):
        return runpy.run_path(file)["work"](rank.rank, rank.world_size)


def play_step(step: Step, world: WorldSpec, prediction: str) -> PlayedStep:
    """Run the program of a step in a new world."""
    with temporary_folder("distdemo-learn-") as folder:
        file = folder / f"{step.name.replace('-', '_')}.py"
        file.write_text(step.program, encoding="utf-8")
        stall = HANG_TIMEOUT_S if step.outcome == "hang" else STALL_TIMEOUT_S
        report = run_prepared(replace(world, stall=stall), work, (str(file), None))
    return PlayedStep(step, tuple(map(rank_outcome, report.outcomes, step.expected)), prediction)


def rank_outcome(outcome: Outcome, expected: Any) -> RankOutcome:  # noqa: ANN401 - the program's value
    """Return how a rank ended, and whether it returned the expected value."""
    kind: OutcomeKind = "lost"
    value, what = None, "stopped with the other ranks"
    if isinstance(outcome, Returned):
        value, what = outcome.value, ""
        kind = "right" if value == expected else "wrong"
    elif isinstance(outcome, TimedOut):
        kind, what = "hang", ""
        if where := outcome.where:
            what = f"in {where.collective or 'Python'} at {where.source_line.partition(' ')[0]}"
    elif isinstance(outcome, Died):
        number = outcome.signal
        kind = "abort"
        what = signal.Signals(number).name if number else f"exit code {outcome.exit_code}"
    elif isinstance(outcome, Raised) and outcome.consequence:
        what = "lost a peer"
    elif isinstance(outcome, Raised):
        kind, what = "error", f"{outcome.type}: {headline(outcome.message)}"
    return RankOutcome(outcome.rank, kind, value, expected, what)
