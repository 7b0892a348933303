"""From the flags of ``check`` to its plan: which cases, in which worlds, what is written."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distdemo import ops
from distdemo.check import matrix
from distdemo.check.cases import Case
from distdemo.cli.files import writable
from distdemo.cli.parse import (
    Flags,
    View,
    parse_timeout,
    parse_view,
    parse_world,
    parse_world_size,
    unknown,
    whole,
)
from distdemo.cli.parse_engine import parse_seat, placed, ranks_here, size_of_world
from distdemo.demo.parse_data import parse_dtype
from distdemo.errors import UsageError
from distdemo.launcher.joined.placement import Placement
from distdemo.launcher.limits import check_machine
from distdemo.launcher.records import WorldSpec


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A check that can be run, as far as can be told without torch."""

    cases: tuple[Case, ...]
    world: WorldSpec
    scope: str
    seed: int
    fail_fast: bool
    isolate: bool
    junit: Path | None
    view: View
    seat: Placement | None = None


def parse_check(flags: Flags) -> CheckRequest:
    """The check that these flags ask for.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    scope = _scope(flags)
    seed = _seed(flags["order"])
    seat = _engines_seat(flags)
    sizes = _sizes(flags["only_sizes"]) if seat is None else _size_of(seat, flags["only_sizes"])
    cases = _cases(flags, scope, seed, sizes)
    largest = max(case.world_size for case in cases)
    world = parse_case_world(flags, flags["backend"], largest)
    check_machine(replace(world, world_size=ranks_here(seat, largest)))
    return CheckRequest(
        cases=tuple(cases),
        world=world,
        scope=scope,
        seed=seed,
        fail_fast=flags["fail_fast"],
        isolate=flags["isolate"],
        junit=writable("--junit-xml", flags["junit"], "report.xml"),
        view=parse_view(flags, largest),
        seat=placed(seat, largest),
    )


def parse_case_world(flags: Flags, backend: str, world_size: int) -> WorldSpec:
    """The world to run cases in: a case without progress for so many seconds is given up."""
    settings = {
        "backend": backend,
        "device": flags["device"],
        "start_method": flags.get("start_method", "auto"),
        "timeout": None,
    }
    patience = parse_timeout(flags["case_timeout"] or "10")
    return replace(parse_world(settings, world_size), stall=patience)


def _scope(flags: Flags) -> str:
    if flags["quick"] and flags["full"]:
        raise UsageError(
            "--quick and --full don't go together.", "Each says how much is checked.", "Take one."
        )
    return "full" if flags["full"] else "quick"


def _seed(text: str) -> int:
    """One that the operations' own commands take too: they are what a failure names."""
    seed = whole("--seed", text, "It orders the cases.", "Try --seed 1.")
    if not 0 <= seed < 2**31 - 1:
        raise UsageError(f"--seed {text} is out of range.", "It goes from 0 to 2³¹ − 2.", "Try 1.")
    return seed


def _engines_seat(flags: Flags) -> Placement | None:
    """The place of this process in a world that an engine started."""
    seat = parse_seat(flags)
    if seat is not None and flags["isolate"] and seat.one_world_only:
        raise UsageError(
            "--isolate can't be had under mpiexec.",
            "It wants a new world for each case, and MPI begins once in a process.",
            "Leave it out, or add --launcher local.",
        )
    return seat


def _size_of(seat: Placement, text: str | None) -> tuple[int, ...]:
    """The one size that a world has which an engine started."""
    asked = _sizes(text) or ()
    if len(asked) > 1:
        raise UsageError(
            f"--world-size {text}: here is one world.",
            "The ranks that take part are those that were started.",
            "Name one size, or leave it out.",
        )
    return (size_of_world(seat, str(asked[0]) if asked else None, default=4),)


def _sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    sizes = tuple(dict.fromkeys(parse_world_size(part.strip(), 1) for part in text.split(",")))
    check_machine(WorldSpec(max(sizes)))  # before cases are made for so many ranks
    return sizes


def _cases(flags: Flags, scope: str, seed: int, sizes: tuple[int, ...] | None) -> Sequence[Case]:
    """The cases of this scope that the flags leave."""
    wanted = [_wanted_op(text) for text in _split("--op", flags["only_ops"])]
    dtypes = [parse_dtype(text) for text in _split("--dtype", flags["only_dtypes"])]
    name = flags["only_case"]
    make = matrix.full if scope == "full" else matrix.quick
    everything = (
        _made(make, seed, sizes, {op for op, _ in wanted})
        if name is None
        else [_named(name, seed, sizes)]
    )
    cases = [
        case
        for case in everything
        if (not wanted or any(_matches(case, each) for each in wanted))
        and (not dtypes or case.dtype in dtypes)
    ]
    if not cases:
        raise UsageError(
            "No case is left to check.",
            "The operations, dtypes and world sizes that you named have none in common.",
            "Leave one of them out, or add --full.",
        )
    return cases


def _made(
    make: Callable[..., list[Case]],
    seed: int,
    sizes: tuple[int, ...] | None,
    names: Collection[str] = (),
) -> list[Case]:
    return make(seed, names=names) if sizes is None else make(seed, sizes, names)


def _named(name: str, seed: int, sizes: tuple[int, ...] | None) -> Case:
    """The case of this name, whichever scope it belongs to."""
    both = (matrix.quick, matrix.full)  # neither holds all of the other's
    op = ops.find(name.partition("/")[0])
    names = () if op is None else (op.name,)
    everything = {case.id: case for make in both for case in _made(make, seed, sizes, names)}
    if name in everything:
        return everything[name]
    near = difflib.get_close_matches(name, everything, n=2, cutoff=0.5)
    raise UsageError(
        f"There is no case {name!r}.",
        "Known are those that a report names; worlds of other sizes have others.",
        f"Did you mean {' or '.join('--case ' + each for each in near)}?"
        if near
        else f"Try --case {next(iter(everything))}.",
    )


def _split(flag: str, given: Sequence[str] | None) -> list[str]:
    words = [word.strip() for text in given or () for word in text.split(",") if word.strip()]
    if given and not words:
        raise UsageError(
            f"{flag} names nothing.", "It says what alone is checked.", f"Leave out {flag}."
        )
    return words


def _wanted_op(text: str) -> tuple[str, str]:
    """The op's name, and the form's if one was named."""
    name, _, form = text.partition("/")
    op = ops.find(name)
    if op is None:
        raise unknown("operation", [each.command for each in ops.REGISTRY.values()], name, "--op")
    forms = [each.name.replace(" ", "-") for each in op.all_forms]
    if form and form not in forms:
        known = [f"{op.command}/{each}" for each in forms]
        raise unknown("form", known, f"{op.command}/{form}", "--op")
    return op.name, form


def _matches(case: Case, wanted: tuple[str, str]) -> bool:
    name, form = wanted
    return case.op.name == name and form in ("", case.form.name.replace(" ", "-"))
