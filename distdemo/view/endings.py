"""How ranks ended, and why, as parts of a JSON document."""

from __future__ import annotations

from typing import Any

from distdemo.launcher.records import Died, Lost, Outcome, Raised, Stopped, TimedOut, WorldReport

Json = Any


def ending(outcome: Outcome) -> dict[str, Json]:
    """How a rank ended, for a world that failed."""
    entry: dict[str, Json] = {
        "rank": outcome.rank,
        "outcome": _NAMES.get(type(outcome), "returned"),
        "phase": outcome.phase.name,
        "at_seconds": outcome.at,
    }
    if isinstance(outcome, Raised):
        entry |= {
            "type": outcome.type,
            "message": outcome.message,
            "traceback": outcome.traceback,
            "consequence": outcome.consequence,
            "missing": list(outcome.missing),
        }
    elif isinstance(outcome, Died):
        entry |= {
            "signal": outcome.signal,
            "exit_code": outcome.exit_code,
            "message": outcome.message or None,
        }
    elif isinstance(outcome, Lost):
        entry["message"] = outcome.why
    elif isinstance(outcome, TimedOut) and outcome.where is not None:
        entry |= {
            "waiting_in": outcome.where.collective or None,
            "at": outcome.where.place or None,
        }
    if outcome.output:
        entry["output"] = outcome.output
    return entry


_NAMES = {
    Raised: "raised",
    Died: "died",
    Lost: "lost",
    TimedOut: "timed out",
    Stopped: "stopped",
}


def world_errors(world: WorldReport) -> list[Json]:
    """The verdict of a world that failed; empty if it did not."""
    verdict = world.verdict
    if verdict is None:
        return []
    error = error_entry(verdict.what, verdict.why, verdict.hint)
    return [error | {"ranks": list(verdict.ranks), "consequences": list(verdict.consequences)}]


def error_entry(what: str, why: str, hint: str) -> dict[str, Json]:
    """One error as the documents write it."""
    return {"what": what, "why": why, "hint": hint}
