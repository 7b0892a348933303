"""Run a mistake on real ranks: as it is, under the sanitizer, and repaired."""

from __future__ import annotations

import runpy
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from distdemo.launcher.local import run_world
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
from distdemo.learn.mistakes.records import Mistake, OutcomeKind, RankOutcome, Trial
from distdemo.sanitizer.hooks import record_calls
from distdemo.sanitizer.inspector import Inspector
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


def try_mistake(mistake: Mistake, world: WorldSpec) -> Trial:
    """Run a mistake three times, each in a new world, and compare with its documentation.

    Args:
        mistake: Mistake to run.
        world: World for it, prepared for the backend, with a deadline for a program that doesn't
            hang.
    """
    documented = mistake.documented(world.backend)
    with temporary_folder("distdemo-mistakes-") as folder:
        # The sanitizer and tracebacks hide frames of distdemo, so the program must be elsewhere.
        file = folder / f"{mistake.module}.py"

        def run(stall: float, *, repaired: bool = False) -> tuple[RankOutcome, ...]:
            file.write_text(mistake.text(repaired=repaired), encoding="utf-8")
            ended = run_world(replace(world, stall=stall), work, (str(file), None)).outcomes
            return tuple(map(_rank_outcome, ended, mistake.expected))

        outcomes = run(
            HANG_TIMEOUT_S if any("hang" in each for each in documented) else STALL_TIMEOUT_S
        )
        if not _as_documented(outcomes, documented):  # perhaps the machine is slow
            outcomes = run(STALL_TIMEOUT_S)
        inspector = Inspector(world)
        notes = replace(inspector.notes, buffers=mistake.finding == "buffers")
        _, findings = inspector.conclude(
            run_world(world, work, (str(file), notes), poll=inspector.poll)
        )
        findings = findings or tuple(inspector.judge.matcher.shifts())
        repaired = run(STALL_TIMEOUT_S, repaired=True)
    problems = []
    if not _as_documented(outcomes, documented):
        problems.append(f"The documented outcome differs: {mistake.outcomes[world.backend]}.")
    if inspector.stopped:
        problems.append(f"The sanitizer did not compare the calls: {inspector.stopped}.")
    found = findings[0].kind if findings else ""
    if found != mistake.finding:
        finds, expected = found or "nothing", mistake.finding or "nothing"
        problems.append(f"The sanitizer found {finds}, not {expected}.")
    wrong = [each.rank for each in repaired if each.kind != "right"]
    problems += [f"The repaired program is wrong on ranks {wrong}."] if wrong else []
    return Trial(world.backend, outcomes, findings, repaired, tuple(problems))


def _rank_outcome(outcome: Outcome, expected: Any) -> RankOutcome:  # noqa: ANN401 - the program's value
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


def _as_documented(outcomes: tuple[RankOutcome, ...], documented: list[list[str]]) -> bool:
    """Return True if every rank ended in a documented way, or if none is documented."""
    return not documented or all(
        each.kind in may for each, may in zip(outcomes, documented, strict=True)
    )
