"""Run a mistake on real ranks: as it is, under the sanitizer, and repaired."""

from __future__ import annotations

from dataclasses import replace

from distdemo.launcher.local import run_world
from distdemo.launcher.process_tree import temporary_folder
from distdemo.launcher.records import (
    WorldSpec,
)
from distdemo.learn.mistakes.records import Mistake, RankOutcome, Trial
from distdemo.learn.trial import HANG_TIMEOUT_S, STALL_TIMEOUT_S, rank_outcome, work
from distdemo.sanitizer.inspector import Inspector


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
            return tuple(map(rank_outcome, ended, mistake.expected))

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


def _as_documented(outcomes: tuple[RankOutcome, ...], documented: list[list[str]]) -> bool:
    """Return True if every rank ended in a documented way, or if none is documented."""
    return not documented or all(
        each.kind in may for each, may in zip(outcomes, documented, strict=True)
    )
