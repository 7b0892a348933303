"""What ``bench`` and ``bench links`` have in common: the world, and how often things are timed."""

from __future__ import annotations

from dataclasses import replace

from distdemo.cli.parse import Flags, parse_seconds, parse_world, whole
from distdemo.errors import UsageError
from distdemo.launcher.records import WorldSpec

OUTER_LIMIT = 7 * 24 * 3600.0  # seconds; a measurement ends by its patience, not by this
MANY = 10_000_000
FULL_MESH = 64
"""Ranks up to which all are connected to all beforehand."""


def parse_meeting_world(flags: Flags, backend: str, world_size: int) -> WorldSpec:
    """The world to measure in; its timeout is how long the ranks may take to meet."""
    settings = {
        "backend": backend,
        "device": flags["device"],
        "timeout": flags["bench_timeout"],
        "start_method": flags["start_method"],
    }
    world = parse_world(settings, world_size)
    return replace(world, stall=world.deadline)


def measured_world(world: WorldSpec, *, lazy: bool) -> WorldSpec:
    """The same as long as it moves, with the connections that a measurement wants.

    All are made before anything is timed. A full mesh of 64 ranks takes a second (of 256 two, of
    1024 half a minute, in every launch), so beyond that gloo connects those that talk, during the
    warm-up; but not where even ``irecv`` would wait for a connection.

    Args:
        world: from the flags.
        lazy: whether the ops can do with connections that are made when ranks first talk.
    """
    late = lazy and world.world_size > FULL_MESH
    return replace(world, deadline=OUTER_LIMIT, lazy=late)


def parse_count(
    flag: str, text: str | None, smallest: int, why: str, most: int = MANY
) -> int | None:
    """A whole number from ``smallest`` to ``most``; None if the flag was not given."""
    if text is None:
        return None
    count = whole(flag, text, why, f"Try {flag} {max(10, smallest)}.")
    if not smallest <= count <= most:
        raise UsageError(
            f"{flag} {count} is out of range: {smallest} to {most:,}.",
            why,
            f"Try {flag} {max(10, smallest)}.",
        )
    return count


def parse_budget(text: str | None, default: float, *, counted: bool) -> float:
    """Seconds for timing.

    Args:
        text: of ``--budget``; None: it was not given.
        default: then.
        counted: ``--iters`` says how often.
    """
    if text is None:
        return default
    if counted:
        raise UsageError(
            "--budget and --iters don't go together.",
            "Either time ends the timing, or the number of iterations.",
            "Take one.",
        )
    return parse_seconds(
        text,
        OUTER_LIMIT,
        UsageError(
            f"--budget {text}: that is no positive number of seconds.",
            f"It is spent on timing, {OUTER_LIMIT:g} s at most.",
            f"Try --budget {default:g}.",
        ),
    )
