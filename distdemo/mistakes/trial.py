"""A mistake on real ranks: with the mistake, again under the sanitizer, and repaired."""

from __future__ import annotations

import re
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
from distdemo.sanitizer.records import Finding, Notes
from distdemo.sanitizer.text import reason

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
    """Run a mistake three times, each in a world of its own, and compare with what is said of it.

    Args:
        mistake: which.
        world: its size, backend, device and the seconds that a program gets that does not hang;
            with all that the backend needs.
    """
    said, lines = mistake.said(world.backend), program_of(mistake)
    with temporary_folder("distdemo-mistakes-") as folder:
        # The sanitizer and tracebacks show lines of the user's files, which ours are not.
        file = folder / f"{mistake.module}.py"
        file.write_text(text_of(lines), encoding="utf-8")
        hangs = any("hang" in each for each in said)
        for stall in (HANG, PATIENCE) if hangs else (PATIENCE,):
            spec = replace(world, stall=stall)
            ends = _ends(mistake, run_world(spec, work, (str(file), None)).outcomes)
            if _as_said(ends, said):
                break  # else a slow machine may be why
        inspector = Inspector(world)
        notes = replace(inspector.notes, buffers=mistake.buffers)
        ran = run_world(world, work, (str(file), notes), look=inspector.look)
        _, findings = inspector.conclude(ran)
        warnings = () if findings else tuple(inspector.judge.matcher.shifts())
        file.write_text(text_of(lines, repaired=True), encoding="utf-8")
        repaired = _ends(mistake, run_world(world, work, (str(file), None)).outcomes)
    problems = []
    if not _as_said(ends, said):
        problems.append(f"It did not happen as documented: {mistake.happens[world.backend]}.")
    if inspector.stopped:
        problems.append(f"The sanitizer did not compare the calls: {inspector.stopped}.")
    problems += _not_as_said(mistake, findings or warnings)
    wrong = [each.rank for each in repaired if each.end != "right"]
    problems += [f"Repaired, it is not right on ranks {wrong}."] if wrong else []
    return Trial(world.backend, ends, findings, warnings, repaired, tuple(problems))


def _ends(mistake: Mistake, outcomes: tuple[Outcome, ...]) -> tuple[RankEnd, ...]:
    return tuple(_end(each, mistake.value(each.rank)) for each in outcomes)


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


def _not_as_said(mistake: Mistake, findings: tuple[Finding, ...]) -> list[str]:
    """What the sanitizer says otherwise."""
    found = findings[0].kind if findings else ""
    if found != mistake.finding:
        return [f"The sanitizer finds {found or 'nothing'}, not {mistake.finding or 'nothing'}."]
    if not findings:
        return []
    broken = [each for each in program_of(mistake) if each.role != "right"]
    right = [
        f"{mistake.module}.py:{number}"
        for number, each in enumerate(broken, start=1)
        if (each.text.strip() == mistake.call if mistake.call else each.role == "wrong")
    ]
    problems = []
    if not {*right} & {*re.findall(r"\w+\.py:\d+", reason(findings[0]))}:
        problems.append(f"The sanitizer does not name {' or '.join(right)}.")
    ranks = findings[0].ranks  # where each is at fault by itself, some may not have come so far
    if not ranks or not {*ranks} <= {*mistake.ranks}:
        problems.append(f"The sanitizer names ranks {ranks}, not {mistake.ranks}.")
    return problems
