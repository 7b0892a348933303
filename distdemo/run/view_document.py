"""How a program of the user's own went, as a JSON document."""

from __future__ import annotations

from distdemo.launcher.records import Raised
from distdemo.run.records import RunReport
from distdemo.view.document import Json, envelope, world_entry
from distdemo.view.endings import ending, error_entry, world_errors

UNLIMITED = 1e9  # seconds: the timeout of a world that has none


def run_document(report: RunReport, only: frozenset[int] | None = None) -> Json:
    """The program, every rank's output, value and end, the errors.

    Args:
        report: how it went.
        only: the ranks that are listed; None: all.
    """
    world, program = report.world, report.program
    ranks = range(report.world_size) if only is None else sorted(only)
    return envelope(
        "run",
        ok=report.ok,
        errors=_errors(report),
        program={
            "name": program.name,
            "file": program.file or None,
            "module": program.module or None,
            "function": program.function or None,
            "arguments": list(program.arguments),
            "mode": "function" if program.function else "whole",
            "makes_group": not report.backend,
        },
        interrupted=world is None,
        world=_world(report),
        world_size=report.world_size,
        seconds=None if world is None else world.seconds,
        versions=report.versions,
        ranks=[_rank(report, rank) for rank in ranks],
    )


def _world(report: RunReport) -> Json:
    """The ranks; over what they talk only where that was not the program's own choice."""
    if report.world is None:
        return None
    world = report.world.world
    chosen = {
        "backend": report.backend or None,
        "device": report.device or None,
        "timeout": None if world.deadline >= UNLIMITED else world.deadline,
        "idle": world.stall,
    }
    return world_entry(report.world) | chosen


def _rank(report: RunReport, rank: int) -> Json:
    """One rank: how it ended, what it wrote, what it returned."""
    transcript = report.transcripts[rank]
    value = report.values[rank] if rank < len(report.values) else None
    entry = {"rank": rank, "outcome": "interrupted"}
    if report.world is not None:
        outcome = report.world.outcomes[rank]
        entry = ending(outcome)
        if isinstance(outcome, Raised):
            entry["excerpt"] = outcome.excerpt
    return entry | {
        "output": transcript.text,
        "left_out_bytes": transcript.left_out,
        "returned": None if value is None else value.plain,
    }


def _errors(report: RunReport) -> list[Json]:
    if report.world is not None:
        return world_errors(report.world)
    return [error_entry("Interrupted.", "All ranks are gone, nothing was left behind.", "")]
