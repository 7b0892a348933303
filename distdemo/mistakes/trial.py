"""A mistake on real ranks: with the mistake, again under the sanitizer, and repaired."""

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

HANG = 2.0  # seconds without a word after which a program hangs that is said to hang
PATIENCE = 20.0  # the same for any other, and for one that did not do as documented


def work(rank: Rank, file: str, notes: Notes | None) -> Any:  # noqa: ANN401 - the program's value
    """Collective: run a program on this rank, with the group ready.

    Args:
        rank: this rank.
        file: of the program.
        notes: what to note of its calls; None: nothing.
    """
    if rank.device != "cpu":
        torch.set_default_device(rank.device)
    rank.meet("all are here")
    rank.reach("the program runs")  # time that it took to get here counts for nothing
    with noting(notes, rank.rank, rank.world_size):
        return runpy.run_path(file)["work"](rank.rank, rank.world_size)


def try_mistake(mistake: Mistake, world: WorldSpec) -> Trial:
    """Run a mistake three times, each in its own world, and compare with what is documented.

    Args:
        mistake: Mistake to run.
        world: World for it, with the deadline of a program that doesn't hang, and with all that
            the backend needs.
    """
    said, lines = mistake.said(world.backend), program_of(mistake)
    with temporary_folder("distdemo-mistakes-") as folder:
        # The sanitizer and tracebacks show lines of the user's files, which ours are not.
        file = folder / f"{mistake.module}.py"

        def run(stall: float, *, repaired: bool = False) -> tuple[RankEnd, ...]:
            file.write_text(text_of(lines, repaired=repaired), encoding="utf-8")
            outcomes = run_world(replace(world, stall=stall), work, (str(file), None)).outcomes
            return tuple(map(_end, outcomes, mistake.expected))

        ends = run(HANG if any("hang" in each for each in said) else PATIENCE)
        if not _as_said(ends, said):  # a slow machine may be why
            ends = run(PATIENCE)
        inspector = Inspector(world)
        notes = replace(inspector.notes, buffers=mistake.finding == "buffers")
        _, findings = inspector.conclude(
            run_world(world, work, (str(file), notes), look=inspector.look)
        )
        findings = findings or tuple(inspector.judge.matcher.shifts())
        repaired = run(PATIENCE, repaired=True)
    problems = []
    if not _as_said(ends, said):
        problems.append(f"It did not happen as documented: {mistake.happens[world.backend]}.")
    if inspector.stopped:
        problems.append(f"The sanitizer did not compare the calls: {inspector.stopped}.")
    found = findings[0].kind if findings else ""
    if found != mistake.finding:
        finds, documented = found or "nothing", mistake.finding or "nothing"
        problems.append(f"The sanitizer finds {finds}, not {documented}.")
    wrong = [each.rank for each in repaired if each.end != "right"]
    problems += [f"Repaired, it is not right on ranks {wrong}."] if wrong else []
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
    lost = "lost its peer" if isinstance(outcome, Raised) else "stopped with the others"
    return RankEnd(rank, "lost", None, expected, lost)


def _as_said(ends: tuple[RankEnd, ...], said: list[list[str]]) -> bool:
    """Whether each rank ended in one of the ways that are said; any way will do if none is."""
    return not said or all(each.end in may for each, may in zip(ends, said, strict=True))
