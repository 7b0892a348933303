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
from distdemo.mistakes.catalogue import program_of, text_of
from distdemo.mistakes.records import Mistake, RankEnd, Trial
from distdemo.sanitizer.hooks import noting
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
    rank.reach("the program runs")  # start-up time doesn't count
    with noting(notes, rank.rank, rank.world_size):
        return runpy.run_path(file)["work"](rank.rank, rank.world_size)


def try_mistake(mistake: Mistake, world: WorldSpec) -> Trial:
    """Run a mistake three times, each in a new world, and compare with its documentation.

    Args:
        mistake: Mistake to run.
        world: World for it, prepared for the backend, with a deadline for a program that doesn't
            hang.
    """
    documented, lines = mistake.documented(world.backend), program_of(mistake)
    with temporary_folder("distdemo-mistakes-") as folder:
        # The sanitizer and tracebacks hide frames of distdemo, so the program must be elsewhere.
        file = folder / f"{mistake.module}.py"

        def run(stall: float, *, repaired: bool = False) -> tuple[RankEnd, ...]:
            file.write_text(text_of(lines, repaired=repaired), encoding="utf-8")
            outcomes = run_world(replace(world, stall=stall), work, (str(file), None)).outcomes
            return tuple(map(_end, outcomes, mistake.expected))

        ends = run(
            HANG_TIMEOUT_S if any("hang" in each for each in documented) else STALL_TIMEOUT_S
        )
        if not _as_documented(ends, documented):  # perhaps the machine is slow
            ends = run(STALL_TIMEOUT_S)
        inspector = Inspector(world)
        notes = replace(inspector.notes, buffers=mistake.finding == "buffers")
        _, findings = inspector.conclude(
            run_world(world, work, (str(file), notes), poll=inspector.poll)
        )
        findings = findings or tuple(inspector.judge.matcher.shifts())
        repaired = run(STALL_TIMEOUT_S, repaired=True)
    problems = []
    if not _as_documented(ends, documented):
        problems.append(f"The documented outcome differs: {mistake.happens[world.backend]}.")
    if inspector.stopped:
        problems.append(f"The sanitizer did not compare the calls: {inspector.stopped}.")
    found = findings[0].kind if findings else ""
    if found != mistake.finding:
        finds, expected = found or "nothing", mistake.finding or "nothing"
        problems.append(f"The sanitizer found {finds}, not {expected}.")
    wrong = [each.rank for each in repaired if each.end != "right"]
    problems += [f"The repaired program is wrong on ranks {wrong}."] if wrong else []
    return Trial(world.backend, ends, findings, repaired, tuple(problems))


def _end(outcome: Outcome, expected: Any) -> RankEnd:  # noqa: ANN401 - the program's value
    rank = outcome.rank
    if isinstance(outcome, Returned):
        right = outcome.value == expected
        return RankEnd(rank, "right" if right else "wrong", outcome.value, expected)
    if isinstance(outcome, TimedOut):
        where = outcome.where
        what = ""
        if where is not None:
            what = f"in {where.collective or 'Python'} at {where.place.partition(' ')[0]}"
        return RankEnd(rank, "hang", None, expected, what)
    if isinstance(outcome, Died):
        number = outcome.signal
        what = signal.Signals(number).name if number else f"exit code {outcome.exit_code}"
        return RankEnd(rank, "abort", None, expected, what)
    if isinstance(outcome, Raised) and not outcome.consequence:
        what = f"{outcome.type}: {headline(outcome.message)}"
        return RankEnd(rank, "error", None, expected, what)
    lost = "lost a peer" if isinstance(outcome, Raised) else "stopped with the other ranks"
    return RankEnd(rank, "lost", None, expected, lost)


def _as_documented(ends: tuple[RankEnd, ...], documented: list[list[str]]) -> bool:
    """Return True if every rank ended in a documented way, or if none is documented."""
    return not documented or all(
        each.end in may for each, may in zip(ends, documented, strict=True)
    )
