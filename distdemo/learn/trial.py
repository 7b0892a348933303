"""Run an example on real ranks, and judge how each rank ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from distdemo.calls.inspector import Inspector
from distdemo.calls.record.hooks import record_calls
from distdemo.calls.records import Notes
from distdemo.launcher.local import run_world
from distdemo.launcher.process_tree import temporary_folder
from distdemo.launcher.program import Program, load_function
from distdemo.launcher.records import (
    Died,
    Outcome,
    Raised,
    Returned,
    TimedOut,
    WorldReport,
    WorldSpec,
    headline,
    signal_name,
)
from distdemo.learn.records import MistakeReport, RankOutcome, is_documented
from distdemo.versions import versions

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank
    from distdemo.learn.catalogue import Example, OutcomeKind
    from distdemo.learn.records import Outcomes

HANG_TIMEOUT_S = 2.0  # without progress, for a program documented to hang
STALL_TIMEOUT_S = 20.0  # for other programs, and for one that didn't behave as documented


def try_mistake(mistake: Example, world: WorldSpec) -> MistakeReport:
    """Run a mistake as it is, under the sanitizer, and repaired, each in a new world.

    Args:
        mistake: Mistake to run.
        world: World for it, prepared for the backend, with a deadline for a program that doesn't
            hang.
    """
    outcomes = try_example(mistake, world)
    inspector = Inspector(world)
    _, findings = inspector.conclude(run_example(mistake, world, inspector=inspector))
    warnings = (*inspector.warnings(), *inspector.judge.notes())
    stopped = "" if findings else inspector.stopped
    patient = replace(world, stall=STALL_TIMEOUT_S)
    repaired = rank_outcomes(mistake, run_example(mistake, patient, repaired=True))
    problems = []
    if not is_documented(mistake, world.backend, outcomes):
        problems.append(f"The documented outcome differs: {mistake.outcomes[world.backend]}.")
    kind = next((finding.kind for finding in (*findings, *warnings)), "")
    if stopped or kind != mistake.finding:
        found = kind or "nothing"
        problems.append(f"The sanitizer found {found}, not {mistake.finding or 'nothing'}.")
    wrong = [outcome.rank for outcome in repaired if outcome.kind != "right"]
    if wrong:
        problems.append(f"The repaired program is wrong on ranks {wrong}.")
    return MistakeReport(
        mistake,
        world.backend,
        outcomes,
        findings,
        repaired,
        problems=tuple(problems),
        warnings=warnings,
        stopped=stopped,
        gaps=inspector.gaps(),
        versions=versions(),
    )


def try_example(example: Example, world: WorldSpec) -> Outcomes:
    """Run an example in a new world, and again if it doesn't end as documented.

    A program that is documented to hang is stopped soon. If the machine is slow, that may be too
    soon; then the second run shows the right outcome.
    """
    may_hang = any("hang" in kinds for kinds in example.documented(world.backend))
    for stall in (HANG_TIMEOUT_S if may_hang else STALL_TIMEOUT_S, STALL_TIMEOUT_S):
        outcomes = rank_outcomes(example, run_example(example, replace(world, stall=stall)))
        if is_documented(example, world.backend, outcomes):
            break
    return outcomes


def run_example(
    example: Example,
    world: WorldSpec,
    *,
    repaired: bool = False,
    inspector: Inspector | None = None,
) -> WorldReport:
    """Run an example, or its repaired version, in a new world.

    Args:
        example: Example to run.
        world: World for it, prepared for the backend.
        repaired: True to run the repaired version.
        inspector: Sanitizer of the world, or None.
    """
    notes = None
    callbacks: dict[str, Any] = {}
    if inspector is not None:
        notes = replace(inspector.notes, buffers=example.finding == "buffers")
        callbacks = inspector.callbacks()
    # The sanitizer and tracebacks hide frames of distdemo, so the program must be elsewhere.
    with temporary_folder("distdemo-learn-") as folder:
        file = folder / f"{example.module}.py"
        file.write_text(example.repaired if repaired else example.program, encoding="utf-8")
        return run_world(world, work, (str(file), notes), **callbacks)


def work(rank: Rank, file: str, notes: Notes | None) -> Any:
    """Run a program's ``work`` on this rank with the process group initialized. Collective.

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
        function = load_function(Program(file, function="work"))
        return function(rank.rank, rank.world_size)


def rank_outcomes(example: Example, report: WorldReport) -> Outcomes:
    """Return how each rank ended, and whether it returned the expected value."""
    return tuple(map(_rank_outcome, report.outcomes, example.expected))


def _rank_outcome(outcome: Outcome, expected: Any) -> RankOutcome:
    kind: OutcomeKind = "lost"
    value = None
    what = "stopped with the other ranks"
    if isinstance(outcome, Returned):
        kind = "right" if outcome.value == expected else "wrong"
        value = outcome.value
        what = ""
    elif isinstance(outcome, TimedOut):
        kind = "hang"
        what = ""
        if where := outcome.where:
            line = replace(where.source_line, function="<module>")
            what = f"in {where.collective or 'Python'} at {line}"
    elif isinstance(outcome, Died):
        number = outcome.signal
        kind = "abort"
        what = signal_name(number) if number else f"exit code {outcome.exit_code}"
    elif isinstance(outcome, Raised) and outcome.consequence:
        what = "lost a peer"
    elif isinstance(outcome, Raised):
        kind = "error"
        what = f"{outcome.type}: {headline(outcome.message)}"
    return RankOutcome(outcome.rank, kind, value, expected, what)
