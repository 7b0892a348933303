"""``distdemo run``: run a user's program on every rank."""

from __future__ import annotations

import difflib
import math
import os
import sys
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Annotated, Any

import typer

from distdemo import backends
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ADVANCED,
    OUTPUT,
    Backend,
    Calls,
    Device,
    Ranks,
    StartMethod,
    Strict,
    Timeout,
    WorldSize,
    choice,
)
from distdemo.cli.options import Timeline as TimelineFile
from distdemo.cli.session import Session
from distdemo.cli.types import LONGEST, BadValue, check_rank, parse_seconds, whole
from distdemo.errors import Terminated, UsageError
from distdemo.launcher.records import Returned, UserProgram, WorldReport
from distdemo.launcher.verdict import report_of
from distdemo.run.records import Finished, Program, RankOutput, RunReport
from distdemo.run.source import check_source
from distdemo.sanitizer.records import Finding
from distdemo.view.foreign import printable

STALL = 60.0  # seconds
TRY = "Try distdemo run train.py, distdemo run train.py:step or distdemo run -m package.module."


def parse_stall(text: Any) -> float:  # noqa: ANN401 - a string or a default
    """Parse seconds; return infinity for ``never``."""
    if text in ("0", "0s"):
        why = "To turn the limit off, use never."
        raise BadValue(text, "not a positive number of seconds.", why, "never")
    return math.inf if str(text).lower() == "never" else parse_seconds(text)


def complete_files(incomplete: str) -> list[str]:
    """Return shell completions: Python files, and folders."""
    folder = incomplete[: incomplete.rfind("/") + 1]
    try:
        found = sorted(Path(folder or ".").iterdir())
    except OSError:
        return []
    found_names = [f"{folder}{each.name}/" for each in found if each.is_dir()]
    found_names += [f"{folder}{each.name}" for each in found if each.suffix == ".py"]
    return [each for each in found_names if each.startswith(incomplete) and each == printable(each)]


@command(
    joins=True,
    record="distdemo.run.records:RunReport",
    outputs=(".json",),
    epilog="Try: distdemo run train.py; distdemo run train.py:step -n 2 -- 10; distdemo run -m "
    "package.module",
)
def run(
    session: Session,
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE[:FUNCTION] [-- ARGS]",
            help="Script, or a function in it; put the program's arguments after --.",
            show_default=False,
            autocompletion=complete_files,
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option(
            "--module",
            "-m",
            metavar="MODULE[:FUNCTION]",
            help="Module instead of a file, as for python -m.",
        ),
    ] = None,
    world_size: WorldSize = None,
    pdb: Annotated[
        int | None,
        typer.Option(
            metavar="RANK",
            parser=whole(0),
            help="Rank to debug in the terminal, at breakpoint() and exceptions.",
        ),
    ] = None,
    own_group: Annotated[
        bool, typer.Option("--own-group", help="FUNCTION creates the process group itself.")
    ] = False,
    backend: Backend = "auto",
    device: Device = None,
    timeout: Timeout = None,
    stall: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            parser=parse_stall,
            help="Limit on the time in which no rank writes or computes; or never.",
            show_default=f"{STALL:g}",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    start_method: StartMethod = "auto",
    sanitize: Annotated[
        str,
        choice(
            "LEVEL",
            ("calls", "buffers", "off"),
            "Compare the ranks' calls; buffers: tensors too; off, --no-sanitize: nothing.",
        ),
    ] = "calls",
    calls: Calls = False,
    strict: Strict = False,
    record: TimelineFile = None,
    capture: Annotated[
        bool,
        typer.Option(
            "--capture",
            help="Print output per rank at the end instead of streaming it.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    ranks: Ranks = None,
) -> Result:
    """Run your own program on every rank.

    FILE is a script, as for torchrun: it creates its process group itself. FILE:FUNCTION is a
    function, which every rank calls with the group ready.
    """
    if session.placement is not None:
        _check_joined(session, pdb=pdb is not None, capture=capture)
    program = parse_program(words or [], module)
    check_source(program)
    program = replace(program, makes_group=own_group or not program.function)
    size = session.world_size(world_size)
    place = session.placement
    shown = (ranks.check("--ranks", size)) if ranks is not None else frozenset(range(size))
    if sanitize == "off" and (calls or strict or record is not None):
        raise UsageError(
            "--calls, --strict and --record can't be combined with --no-sanitize.",
            "They show the calls that the sanitizer records.",
            "Leave out --no-sanitize.",
        )
    if pdb is not None:
        check_rank("--pdb", pdb, size)
        if session.format == "json":
            raise UsageError(
                "--pdb and --format json can't be combined.",
                "Standard output may contain the JSON document only.",
                "Use one of them.",
            )
    if program.makes_group:
        # The program chooses the backend. Only a backend that needs its own engine is named here,
        # because its ranks depend on how they are started.
        default = backends.automatic(size, "cpu").name
        chosen = default if backend == "auto" else backend
        if device is not None or (chosen != default and backends.REGISTRY[chosen].engines is None):
            raise UsageError(
                f"--{'backend' if device is None else 'device'} can't be used here.",
                "This program creates its process group and chooses backend and device itself.",
                "Leave it out.",
            )
        backend = chosen
    # On one node of a world, ranks that wait for those of other nodes are silent.
    stall = stall or (STALL if pdb is None and place is None else math.inf)
    world = session.world(
        size,
        backend,
        device,
        timeout or LONGEST,
        start_method,
        stall=None if stall == math.inf else stall,
    )
    world = replace(
        world,
        capture=place is None,  # else it goes to this process's output
        user_program=UserProgram(not program.makes_group, stdin=pdb or 0, terminal=pdb),
    )
    capture = capture or pdb is not None
    streams = place is None and not (capture or session.quiet or session.format == "json")
    from distdemo.run.view_output import Stream, show_captured, transcripts

    kept = transcripts(size)
    stream = Stream(shown) if streams else None

    def on_output(rank: int, piece: bytes) -> None:
        kept[rank].add(piece)
        if stream is not None:
            stream.write(rank, piece)

    ended: WorldReport | None = None
    findings: tuple[Finding, ...] = ()
    inspector: Inspector | None = None
    drawn: Timeline | None = None
    silent = place is None and not streams and pdb is None
    waits = session.waiting(program.name) if silent else nullcontext()
    try:
        with waits, ExitStack() as held:
            session.prepare(world)
            from distdemo.run.preload import preload
            from distdemo.run.rank import run_program

            preload(program)
            notes = None
            how: dict[str, Any] = {"on_output": on_output} if place is None else {}
            if sanitize != "off":
                import_module("distdemo.sanitizer.hooks")  # once, for all forked ranks
                from distdemo.sanitizer.inspector import Inspector
                from distdemo.sanitizer.timeline import Timeline

                here = range(size) if place is None else place.ranks_of(place.node)
                if record is not None and session.is_first:
                    drawn = held.enter_context(closing(Timeline(record)))
                inspector = Inspector(world, here, drawn)
                how |= {
                    "poll": inspector.poll,
                    "on_message": inspector.on_message,
                    "relay": inspector.relay,
                }
                notes = replace(
                    inspector.notes, buffers=sanitize == "buffers", timed=record is not None
                )
            work, meaning = (program, pdb, notes), f"{program} {sanitize} {record is not None}"
            ended = session.start(
                world, run_program, work, returns=Finished, sends=str, meaning=meaning, **how
            )
            if inspector is not None:
                ended, findings = inspector.conclude(ended)
    except (KeyboardInterrupt, Terminated) as stop:
        interrupted, ended = True, report_of(stop)
    else:
        interrupted = ended.interrupted_by is not None
    finally:
        if stream is not None:
            stream.flush()
    report = _report(program, size, ended, shown, [each.finished() for each in kept])
    if inspector is not None:
        warnings = tuple(inspector.judge.matcher.shifts())
        report = replace(
            report,
            calls=inspector.judge.calls(),
            findings=findings,
            warnings=warnings,
            strict=strict,
            stopped="" if findings or interrupted else inspector.stopped,
        )
    if capture and session.format == "table" and not session.quiet:
        from distdemo.view.console import output

        show_captured(report.ranks, output(), whole=ranks is not None)
    return Result(
        report,
        "distdemo.run.view",
        interrupted=interrupted,
        errors=(Error("Interrupted."),) if ended is None else (),
        partial=calls or any(each.text for each in report.ranks),
        kept=ended is not None,
        shown={"whole": ranks is not None, "calls": calls},
        files=() if drawn is None else drawn.unwritten,
    )


def _report(
    program: Program,
    world_size: int,
    world: WorldReport | None,
    shown: frozenset[int],
    texts: list[tuple[str, int]],
) -> RunReport:
    """Return the report from the ranks' outcomes and output."""
    from distdemo.versions import versions

    ends = [
        each for each in (() if world is None else world.outcomes) if isinstance(each, Returned)
    ]
    found = {each.rank: each.value or Finished() for each in ends}  # no value if it exited
    none = Finished()
    return RunReport(
        program,
        world_size,
        world,
        tuple(
            RankOutput(rank, *texts[rank], found.get(rank, none).value, found.get(rank, none).text)
            for rank in sorted(shown)
        ),
        made_group=not found or any(each.made_group for each in found.values()),
        versions=versions(),
    )


def parse_program(words: list[str], module: str | None) -> Program:
    """Parse the program; everything after the first ``--`` is its arguments.

    Raises:
        UsageError: There is no such program.
    """
    end = words.index("--") if "--" in words else len(words)
    given, arguments = words[:end], tuple(words[end + 1 :])
    if len(given) > (module is None):
        stray = given[-1]
        first = f"-m {module}" if module is not None else given[0]
        raise UsageError(
            f"Unexpected argument {stray!r}.",
            "Put the program's arguments after --.",
            f"Try distdemo run {first} -- {' '.join(given[module is None :])}",
        )
    text = module if module is not None else given[0] if given else ""
    if not text:
        raise UsageError("No program is given.", "run takes a file or, with -m, a module.", TRY)
    home, colon, function = text.rpartition(":")
    if not colon or _exists(Path(text)):
        home, function = text, ""
    elif not function.isidentifier():
        raise UsageError(
            f"{text}: {function!r} is not a function name.",
            "Write the name of a function after the colon.",
            f"Try {home}, or {home}:NAME.",
        )
    if module is None:
        _check_file(Path(home), function)
        return Program(home, "", function, arguments)
    top = home.partition(".")[0]
    if not top or PathFinder.find_spec(top, [os.getcwd(), *sys.path]) is None:  # noqa: PTH109 - where -m looks first
        raise UsageError(
            f"-m {text}: there is no module {top!r}.",
            "It is neither in the current folder nor installed in this Python.",
            "Check the name, or run this in the folder that contains it.",
        )
    return Program("", home, function, arguments)


def _check_file(path: Path, function: str) -> None:
    """Raise `UsageError` for a missing file, or a folder that Python can't run."""
    if not _exists(path):
        names = [each.name for each in path.parent.glob("*.py")]
        near = difflib.get_close_matches(path.name, names, n=2, cutoff=0.5)
        hint = f"Did you mean {' or '.join(str(path.parent / name) for name in near)}?"
        if not near and not path.suffix:
            hint = f"Try -m {path.name} for a module."
        listed = ", ".join(sorted(names)[:8]) or "none"
        why = f"Python files in {path.parent}: {listed}."
        raise UsageError(f"There is no file {path}.", why, hint if near or not path.suffix else TRY)
    if path.is_dir() and (function or not (path / "__main__.py").is_file()):
        raise UsageError(
            f"{path} is a folder.",
            "Python runs the __main__.py of a folder; a function needs a file.",
            f"Try a file in it: {path / 'FILE.py'}.",
        )


def _exists(path: Path) -> bool:
    """Return True if the path exists and can be accessed."""
    try:
        return path.exists()
    except (OSError, ValueError):  # no permission, a name that is too long, a null byte
        return False


def _check_joined(session: Session, *, pdb: bool, capture: bool) -> None:
    """Raise `UsageError` for options that need the ranks' output, which the engine handles."""
    asked = {"--pdb": pdb, "--capture": capture, "--format json": session.format == "json"}
    for option in (option for option, given in asked.items() if given):
        raise UsageError(
            f"{option} can't be used here.",
            "On one node of a world, the ranks write to this process's output "
            f"({session.placement.why}).",  # type: ignore[union-attr]  # set in a joined world
            "Try --output FILE.json."
            if option == "--format json"
            else "Leave it out, or start all ranks here with --launcher local.",
        )
