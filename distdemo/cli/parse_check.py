"""From the flags of ``check`` to its plan: which cases, in which worlds, what is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distdemo import ops
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
from distdemo.cli.parse_data import parse_dtype
from distdemo.errors import UsageError
from distdemo.launchers.limits import check_machine
from distdemo.model import WorldSpec
from distdemo.programs import matrix
from distdemo.programs.cases import Case


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


def parse_check(flags: Flags) -> CheckRequest:
    """The check that these flags ask for.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    scope = _scope(flags)
    seed = whole("--seed", flags["order"], "It orders the cases.", "Try --seed 1.")
    sizes = _sizes(flags["only_sizes"])
    cases = _cases(flags, scope, seed, sizes)
    largest = max(case.world_size for case in cases)
    world = parse_case_world(flags, flags["backend"], largest)
    check_machine(world)
    return CheckRequest(
        cases=tuple(cases),
        world=world,
        scope=scope,
        seed=seed,
        fail_fast=flags["fail_fast"],
        isolate=flags["isolate"],
        junit=writable("--junit-xml", flags["junit"]),
        view=parse_view(flags, largest),
    )


def parse_case_world(flags: Flags, backend: str, world_size: int) -> WorldSpec:
    """The world to run cases in: a case without progress for so many seconds is given up."""
    settings = {
        "backend": backend,
        "device": flags["device"],
        "start_method": flags.get("start_method", "auto"),
        "timeout": None,
    }
    patience = parse_timeout(flags["case_timeout"])
    return replace(parse_world(settings, world_size), patience=patience)


def writable(flag: str, text: str | None) -> Path | None:
    """A file that can be written, found out before anything runs.

    Raises:
        UsageError: its folder doesn't exist, or it is a folder itself.
    """
    if text is None:
        return None
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"has no folder {path.parent} to lie in"
        raise UsageError(
            f"{flag} {text}: that can't be written.", f"It {what}.", f"Try {flag} report.xml."
        )
    return path


def _scope(flags: Flags) -> str:
    if flags["quick"] and flags["full"]:
        raise UsageError(
            "--quick and --full don't go together.", "Each says how much is checked.", "Take one."
        )
    return "full" if flags["full"] else "quick"


def _sizes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return tuple(dict.fromkeys(parse_world_size(part.strip(), 1) for part in text.split(",")))


def _cases(flags: Flags, scope: str, seed: int, sizes: tuple[int, ...] | None) -> Sequence[Case]:
    """The cases of this scope that the flags leave."""
    make = {"quick": matrix.quick, "full": matrix.full}
    if flags["only_case"] is not None:
        everything = {case.id: case for name in make for case in _made(make[name], seed, sizes)}
        if flags["only_case"] not in everything:
            raise unknown("case", list(everything), flags["only_case"], "--case")
        return [everything[flags["only_case"]]]
    wanted = [_wanted_op(text) for text in _split(flags["only_ops"])]
    dtypes = [parse_dtype(text) for text in _split(flags["only_dtypes"])]
    cases = [
        case
        for case in _made(make[scope], seed, sizes)
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


def _made(make: Callable[..., list[Case]], seed: int, sizes: tuple[int, ...] | None) -> list[Case]:
    return make(seed) if sizes is None else make(seed, sizes)


def _split(given: Sequence[str] | None) -> list[str]:
    return [word.strip() for text in given or () for word in text.split(",") if word.strip()]


def _wanted_op(text: str) -> tuple[str, str]:
    """The op's name, and the form's if one was named."""
    name, _, form = text.partition("/")
    op = ops.find(name)
    if op is None:
        raise unknown("operation", [each.command for each in ops.REGISTRY.values()], name, "--op")
    forms = [each.name.replace(" ", "-") for each in op.all_forms]
    if form and form not in forms:
        raise unknown("form", forms, form, f"--op {op.command}/")
    return op.name, form


def _matches(case: Case, wanted: tuple[str, str]) -> bool:
    name, form = wanted
    return case.op.name == name and form in ("", case.form.name.replace(" ", "-"))
