"""From the flags of ``run`` to a frozen request; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from distdemo.cli.parse import (
    LONGEST,
    Flags,
    View,
    choose,
    parse_seconds,
    parse_view,
    parse_world,
    parse_world_size,
    rank_list,
    rank_number,
)
from distdemo.cli.parse_engine import parse_seat
from distdemo.errors import UsageError
from distdemo.launcher.limits import check_machine
from distdemo.launcher.records import UserProgram, WorldSpec
from distdemo.run.parse_program import parse_program
from distdemo.run.records import Program
from distdemo.run.run_options import IDLE

RANKS = 4
OWN_GROUP = ("gloo", "mpi")
"""Backends of a program that makes its own group: gloo stands for whatever it chooses itself; over
MPI its ranks need what only their starter can tell them."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to do.

    Attributes:
        view: how to show it; its ranks are those of --only.
        tee: show what ranks write as it comes.
        pdb: the rank that a person debugs.
    """

    program: Program
    world: WorldSpec
    view: View
    tee: bool = False
    pdb: int | None = None


def parse_run(flags: Flags) -> RunRequest:
    """The request.

    Raises:
        UsageError: the flags make none.
    """
    _refuse_within_engine(flags)
    program, group = parse_program(flags)
    size = parse_world_size(flags["run_size"], RANKS)
    only = flags["only_ranks"]
    ranks = None if only is None else frozenset(rank_list("only", only, size))
    view = replace(parse_view(flags, size), ranks=ranks)
    pdb = None if flags["pdb"] is None else rank_number("pdb", flags["pdb"], size)
    _refuse_beside_json(flags, view)
    world = _world(flags, size, group=group)
    world = replace(
        world,
        stall=_idle(flags["idle"], debugged=pdb is not None),
        user_program=UserProgram(group, stdin=pdb or 0, terminal=pdb),
    )
    check_machine(world)
    return RunRequest(program, world, view, flags["tee"], pdb)


def _refuse_within_engine(flags: Flags) -> None:
    wanted = choose("launcher", flags["run_launcher"], ("auto", "local"))
    seat = parse_seat({"launcher": wanted})
    if seat is not None:
        raise UsageError(
            f"run starts ranks, but {seat.engine} has started this process as one of its own.",
            f"{seat.why}: this is rank {seat.rank} of {seat.world_size} already.",
            "Have the engine start your program itself; or add --launcher local, for a world of "
            "its own here.",
        )


def _refuse_beside_json(flags: Flags, view: View) -> None:
    for name in ("tee", "pdb"):
        if flags[name] not in (None, False) and view.format == "json":
            raise UsageError(
                f"--{name} and --format json don't go together.",
                "The document is all that standard output may carry, and ranks would write there.",
                f"Leave out --{name}; the document has what every rank wrote.",
            )


def _world(flags: Flags, size: int, *, group: bool) -> WorldSpec:
    asked = {**flags, "timeout": flags["run_timeout"] or f"{LONGEST:g}"}
    if group:
        return parse_world(asked, size)
    backend, device = flags["backend"].lower(), flags["device"]
    if backend not in ("auto", *OWN_GROUP) or device is not None:
        flag = f"--device {device}" if device is not None else f"--backend {flags['backend']}"
        parse_world(asked, size)  # there may be no such thing at all
        raise UsageError(
            f"{flag} means nothing here.",
            "This program makes its own group, and says itself over what and on which device.",
            f"Leave out {flag.partition(' ')[0]}.",
        )
    return parse_world({**asked, "backend": "gloo" if backend == "auto" else backend}, size)


def _idle(text: str | None, *, debugged: bool) -> float | None:
    """Seconds; None: no limit."""
    if text is None:
        return None if debugged else IDLE
    if text.lower() == "never" or text.removesuffix("s") in ("0", "0.0"):
        return None
    return parse_seconds(
        text,
        LONGEST,
        UsageError(
            f"--idle {text}: that is no number of seconds.",
            "It is how long all ranks may neither write nor compute.",
            "Try --idle 60, or --idle never.",
        ),
    )
