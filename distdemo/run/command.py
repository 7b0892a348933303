"""``distdemo run``: run a user's program on every rank."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distdemo import backends
from distdemo.calls.records import Kind, Level, parse_levels
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    OUTPUT,
    Calls,
    Excluded,
    ProgramOptions,
    WorldOptions,
    choice,
    option,
    stall_option,
    timeout_option,
)
from distdemo.cli.program import check_source, parse_program, preload, uncalled_functions
from distdemo.cli.session import Session
from distdemo.cli.types import (
    MAX_SECONDS,
    BadValue,
    Numbers,
    check_rank,
    file_to_write,
    parse_ranks,
    whole,
)
from distdemo.errors import Terminated, UsageError
from distdemo.launcher.program import Program
from distdemo.launcher.records import Returned, UserProgram, WorldSpec
from distdemo.launcher.verdict import report_of
from distdemo.run.records import RankOutput, RunReport
from distdemo.versions import versions

if TYPE_CHECKING:
    from distdemo.calls.inspector import Inspector
    from distdemo.calls.timeline import Timeline
    from distdemo.launcher.records import WorldReport

STALL = 60.0  # seconds


def _findings(given: Any) -> dict[Kind, Level]:
    """Parse levels of findings for Typer, which also passes defaults through it."""
    try:
        return parse_levels(given) if isinstance(given, str) else given
    except ValueError as error:
        raise BadValue(given, "these are not levels.", str(error), "buffers=warn") from None


@dataclass(frozen=True, kw_only=True)
class RunOptions(ProgramOptions, WorldOptions):
    """Options of ``distdemo run``."""

    timeout: Annotated[float | None, timeout_option("none")] = None
    pdb: Annotated[
        int | None,
        typer.Option(
            metavar="RANK",
            parser=whole(0),
            help="Rank to debug in the terminal, at breakpoint() and exceptions.",
        ),
    ] = None
    stall: Annotated[float | None, stall_option(f"{STALL:g}")] = None
    sanitize: Annotated[
        str,
        choice(
            "LEVEL",
            ("calls", "buffers", "off"),
            "Compare the ranks' calls; buffers: tensors too; off, --no-sanitize: nothing.",
        ),
    ] = "calls"
    check_replicas: Annotated[
        int | None,
        typer.Option(
            metavar="EVERY",
            parser=whole(1),
            help="Compare replicated parameters after every step, or every EVERY steps; a "
            "difference is an error.",
        ),
    ] = None
    excluded: Excluded = None
    findings: Annotated[
        dict[Kind, Level] | None,
        option(
            _findings,
            "KIND=LEVEL",
            "Level of findings, such as buffers=warn,order=off: error, warn, note or off.",
        ),
    ] = None
    rules: Annotated[
        str | None,
        choice("BACKEND", ("nccl",), "Report what nccl lacks or may deadlock in; any backend."),
    ] = None
    shake: Annotated[
        int | None,
        typer.Option(
            metavar="SEED",
            parser=whole(0),
            help="Delay calls at random, by up to 20 ms, to reveal races.",
        ),
    ] = None
    record_calls: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole(1, 1_000_000),
            help="Calls that torch's flight recorder keeps, from which those on GPUs are read.",
        ),
    ] = None
    calls: Calls = False
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Treat warnings and incomplete comparisons as failures."),
    ] = False
    record: Annotated[
        Path | None,
        option(
            file_to_write(".json"),
            "FILE",
            "Write a timeline for Perfetto.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    ranks: Annotated[
        Numbers | None,
        option(parse_ranks, "LIST", "Ranks to show: 0,5-7 or all.", rich_help_panel=OUTPUT),
    ] = None


@command(
    joins=True,
    record="distdemo.run.records:RunReport",
    epilog="Try: distdemo run train.py; distdemo run train.py:step -n 2 -- 10; distdemo run -m "
    "package.module",
)
def run(session: Session, options: RunOptions) -> Result:
    """Run your program on every rank; name the line that hangs it.

    FILE is a script, as for torchrun: it creates its process group itself. FILE:FUNCTION is a
    function, which every rank calls with the group ready.
    """
    _check_output(session, options)
    program = parse_program(options.words or [], options.module)
    check_source(program)
    program = replace(program, creates_group=options.own_group or not program.function)
    size = session.world_size(options.world_size)
    shown = frozenset(options.ranks or range(size))
    for rank in sorted(shown):
        check_rank("--ranks", rank, size)
    if options.pdb is not None:
        check_rank("--pdb", options.pdb, size)
    needs_calls = [
        *(options.calls, options.strict, options.record, options.rules, options.check_replicas),
        options.shake is not None,
        options.record_calls is not None,
        options.findings,
        options.excluded,
    ]
    if options.sanitize == "off" and any(needs_calls):
        raise UsageError(
            "--no-sanitize can't be used here.",
            "--calls, --strict, --record, --record-calls, --rules, --shake, --findings, --except "
            "and --check-replicas use the sanitizer.",
            "Leave out --no-sanitize.",
        )
    world = _world(session, options, program, size)
    captured = options.pdb is not None or not session.shares_output
    streams = not session.joined and not (captured or session.quiet)
    report, timeline = _execute(session, options, program, world, shown if streams else frozenset())
    report = replace(report, ranks=tuple(own for own in report.ranks if own.rank in shown))
    from distdemo.run.view import run_view

    has_output = captured and any(own.output for own in report.ranks)
    return Result(
        report,
        partial(
            run_view,
            whole=options.ranks is not None,
            calls=options.calls,
            captured=captured,
            is_compared=options.sanitize != "off",
            functions=uncalled_functions(program),
        ),
        interrupted=report.interrupted,
        errors=(Error("Interrupted."),) if report.world is None else (),
        partial=options.calls
        or has_output
        or bool(report.warnings or report.notes or report.gaps or report.levels)
        or any(own.text for own in report.ranks),
        files=() if timeline is None else timeline.files,
    )


def _check_output(session: Session, options: RunOptions) -> None:
    """Raise `UsageError` if the ranks would write into a document, or can't be captured."""
    as_document = "" if session.shares_output else f"--format {session.format}"
    debugged = "" if options.pdb is None else "--pdb"
    if session.joined and (debugged or as_document):
        why = session.joined
        raise UsageError(
            f"{debugged or as_document} can't be used here.",
            f"On one node of a world, the ranks write to this process's output ({why}).",
            "Try --output FILE.json, or start all ranks here with --launcher local.",
        )
    if debugged and as_document:
        raise UsageError(
            f"--pdb and {as_document} can't be combined.",
            "Standard output may contain the document only.",
            "Use one of them.",
        )


def _world(session: Session, options: RunOptions, program: Program, size: int) -> WorldSpec:
    """Return the world of a program.

    Raises:
        UsageError: The program chooses the backend or device itself, or there is no such world.
    """
    backend = options.backend
    if program.creates_group:
        # Only a backend that needs its own engine is named here, because its ranks depend on how
        # they are started.
        default = backends.default_backend(size, "cpu").name
        backend = default if backend == "auto" else backend
        named = backend != default and backends.REGISTRY[backend].engines is None
        if options.device is not None or named:
            raise UsageError(
                f"--{'backend' if options.device is None else 'device'} can't be used here.",
                "This program creates its process group and chooses backend and device itself.",
                "Leave it out.",
            )
    # On one node of a world, ranks that wait for those of other nodes are silent.
    is_silent = session.joined or options.pdb is not None
    world = session.world(
        size,
        replace(options, backend=backend, timeout=options.timeout or MAX_SECONDS),
        stall=options.stall or (None if is_silent else STALL),
    )
    guest = UserProgram(
        not program.creates_group,
        stdin=options.pdb or 0,
        terminal=options.pdb,
        recorded_calls=options.record_calls,
    )
    return replace(world, capture=not session.joined, user_program=guest)


def _execute(
    session: Session, options: RunOptions, program: Program, world: WorldSpec, ranks: frozenset[int]
) -> tuple[RunReport, Timeline | None]:
    """Run the program on every rank, and print the output of these ranks as it arrives.

    Returns:
        The report, and the timeline of ``--record``.
    """
    from distdemo.run.output import transcripts
    from distdemo.view.stream import Stream

    outputs = transcripts(world.world_size)
    stream = Stream(ranks)

    def on_output(rank: int, piece: bytes) -> None:
        outputs[rank].add(piece)
        stream.write(rank, piece)

    inspector: Inspector | None = None
    timeline: Timeline | None = None
    ended: WorldReport | None
    callbacks: dict[str, Any] = {} if session.joined else {"on_output": on_output}
    is_silent = not (session.joined or ranks) and options.pdb is None
    with session.waiting(program.name) if is_silent else nullcontext():
        try:
            session.prepare(world)
            from distdemo.run.rank import run_program

            preload(program)
            if options.sanitize != "off":
                inspector, timeline = _sanitizer(session, options, world)
                callbacks |= inspector.callbacks()
                for name in ("on_message", "relay"):
                    callbacks[name] = getattr(inspector, name)
            work = (program, options.pdb, inspector and inspector.notes)
            ended = session.start(world, run_program, work, **callbacks)
        except (KeyboardInterrupt, Terminated) as stop:
            ended = report_of(stop)
        finally:
            stream.flush()
        report = RunReport(
            program,
            world.world_size,
            ended,
            strict=options.strict,
            levels=options.findings or {},
        )
        if inspector is not None:
            report = _inspected(report, inspector, options)
    returned = {}
    if ended is not None:
        returned = {end.rank: end.value for end in ended.outcomes if isinstance(end, Returned)}
    ranks_output = []
    for rank, output in enumerate(outputs):
        text, plain = returned.get(rank) or ("", None)  # a rank that exited has no value
        ranks_output.append(RankOutput(rank, *output.finished(), plain, text))
    return replace(report, ranks=tuple(ranks_output), versions=versions()), timeline


def _sanitizer(
    session: Session, options: RunOptions, world: WorldSpec
) -> tuple[Inspector, Timeline | None]:
    """Return the sanitizer of a world, and the timeline of ``--record``."""
    from distdemo.calls.inspector import Inspector
    from distdemo.calls.timeline import Timeline

    timeline = None
    if options.record is not None and session.is_first:
        timeline = Timeline(options.record)
    inspector = Inspector(world, session.own_ranks(world.world_size), timeline)
    inspector.judge.matcher.nccl = options.rules == "nccl"
    inspector.compare_replicas(options.check_replicas, options.excluded or ())
    inspector.judge.levels = options.findings or {}
    inspector.notes = replace(
        inspector.notes,
        buffers=options.sanitize == "buffers",
        timed=options.calls or options.record is not None,
        shake=options.shake,
    )
    return inspector, timeline


def _inspected(report: RunReport, inspector: Inspector, options: RunOptions) -> RunReport:
    """Return the report with the sanitizer's results."""
    ended = report.world
    if ended is not None:
        ended, findings = inspector.conclude(ended)
        report = replace(report, world=ended, findings=findings)
    judge = inspector.judge
    return replace(
        report,
        calls=judge.calls(),
        late=judge.lateness.ranking(judge.matcher.shown.line),
        warnings=tuple(judge.warnings()),
        notes=tuple(judge.notes()),
        shake=options.shake,
        replicas=inspector.replicas(),
        gaps=judge.gaps(),
        stopped="" if report.findings or report.interrupted else inspector.stopped,
        rpc=judge.matcher.uses_rpc,
    )
