"""``distdemo mistakes``: run common mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from distdemo import backends, ops
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import WorldOptions
from distdemo.cli.session import Session
from distdemo.cli.types import offer, one_of, unknown
from distdemo.errors import UsageError
from distdemo.learn.mistakes.catalogue import MISTAKES
from distdemo.learn.mistakes.records import Mistake, MistakeList, MistakeReport

DEADLINE_S = 60.0  # for a program that does not hang


class Names(tuple[str, ...]):
    """Names of backends."""

    __slots__ = ()


def parse_backends(text: str) -> Names:
    """Parse backends such as ``gloo,mpi``; duplicates count once."""
    known = one_of(backends.REGISTRY)
    return Names(dict.fromkeys(known(each) for each in text.split(",")))


@dataclass(frozen=True, kw_only=True)
class MistakesOptions:
    """Options of ``distdemo mistakes``."""

    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Mistake to run, or a word to search for: deadlock. [default: list all]",
            show_default=False,
            autocompletion=offer(MISTAKES),
        ),
    ] = None
    backend: Annotated[
        Names | None,
        typer.Option(
            metavar="NAME,...",
            parser=parse_backends,
            help="Backends to compare, such as gloo,mpi. [default: gloo]",
            show_default=False,
            autocompletion=offer(backends.REGISTRY),
        ),
    ] = None
    explain: Annotated[bool, typer.Option("--explain", help="Explain the cause.")] = False


@command(
    record="distdemo.learn.mistakes.records:MistakeList "
    "distdemo.learn.mistakes.records:MistakeReport",
    epilog="Try: distdemo mistakes; distdemo mistakes shape --explain; distdemo mistakes root "
    "--backend gloo,mpi; distdemo learn --write lesson",
)
def mistakes(session: Session, options: MistakesOptions) -> Result:
    """Run common bugs: what each does, what the sanitizer reports, and the fix.

    Each program runs on real ranks; one that hangs is stopped after two seconds. The exit code is
    0 if it behaves as documented and the repaired program is correct on every rank.
    """
    from distdemo.learn.mistakes import view

    name = options.name
    mistake = None if name is None else MISTAKES.get(name.lower().replace("_", "-"))
    found = tuple(MISTAKES.values()) if mistake is None else (mistake,)
    if name is not None and mistake is None:
        found = _search(name)
        if not found:
            raise unknown("mistake", MISTAKES, name, "distdemo mistakes")
    if mistake is None and (options.explain or options.backend):
        raise UsageError(
            f"{'--explain' if options.explain else '--backend'} requires a mistake to run.",
            "The list runs no program.",
            "Try distdemo mistakes shape --backend gloo,mpi --explain.",
        )
    if mistake is None:
        return Result(MistakeList(found), view.list_view)
    report = _run(mistake, options.backend or ("gloo",), session)
    errors = tuple(map(Error, report.problems))
    return Result(report, partial(view.report_view, explain=options.explain), errors=errors)


def _search(word: str) -> tuple[Mistake, ...]:
    """Return the mistakes with this word as finding, outcome or in the title, or with this call."""
    word, op = word.lower(), ops.find(word)
    return tuple(
        each
        for each in MISTAKES.values()
        if word in f"{each.finding} {' '.join(each.outcomes.values())} {each.title}".lower().split()
        or (op is not None and f"dist.{op.name}(" in each.text())
    )


def _run(mistake: Mistake, names: tuple[str, ...], session: Session) -> MistakeReport:
    """Run a mistake over each of these backends."""
    worlds = [
        session.world(mistake.world_size, WorldOptions(backend=name, timeout=DEADLINE_S))
        for name in names
    ]
    with session.waiting(f"{mistake.name} on {mistake.world_size} ranks", *worlds):
        from distdemo.learn.mistakes.trial import try_mistake
        from distdemo.versions import versions

        worlds = [backends.prepared(world) for world in worlds]
        trials = tuple(try_mistake(mistake, world) for world in worlds)
    found = versions()
    for world in worlds:
        found |= backends.versions_of(world)
    return MistakeReport(mistake, trials, found)
