"""``distdemo parity``: compare a program on N ranks with the same program on one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from distdemo.calls.records import Notes
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import (
    ProgramOptions,
    SizeOptions,
    StartOptions,
    WorldsOptions,
    count,
    option,
    stall_option,
    timeout_option,
)
from distdemo.cli.program import check_source, parse_program, preload
from distdemo.cli.session import Session
from distdemo.cli.types import MAX_SECONDS
from distdemo.errors import UsageError
from distdemo.launcher.records import UserProgram, WorldReport
from distdemo.parity.records import ParityReport, Recording

STALL = 60.0  # seconds


def _words(text: str) -> tuple[str, ...]:
    """Split a text as a shell does."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None


@dataclass(frozen=True, kw_only=True)
class ParityOptions(ProgramOptions, SizeOptions, StartOptions):
    """Options of ``distdemo parity``."""

    timeout: Annotated[float | None, timeout_option("none")] = None
    steps: Annotated[int, count("Number of training steps to compare.", 1, 1000)] = 2
    ranks_reference: Annotated[
        int, count("Number of ranks of the reference.", 1, 1024, metavar="RANKS")
    ] = 1
    reference_args: Annotated[
        Any,
        option(_words, "ARGS", "More program arguments for the reference: '--tp 1'."),
    ] = None
    seed: Annotated[
        int | None, count("Seed torch, NumPy and random on all ranks.", 0, 2**32 - 1)
    ] = None
    own_start: Annotated[
        bool,
        typer.Option("--own-start", help="Keep the initial parameters that each rank draws."),
    ] = False
    excluded: Annotated[
        list[str] | None,
        typer.Option(
            "--except",
            metavar="PATTERN",
            help="Leave out tensors by name: 'experts.*'; may be given several times.",
        ),
    ] = None
    stall: Annotated[float | None, stall_option(f"{STALL:g}")] = None


@command(
    record="distdemo.parity.records:ParityReport",
    epilog="Try: distdemo parity train.py; distdemo parity train.py -n 2 --reference-args '--tp 1' "
    "-- --tp 2",
)
def parity(session: Session, options: ParityOptions) -> Result:
    """Compare your program on one rank and on N, tensor by tensor.

    Both must take the same global batch. How each output, gradient and parameter is spread over the
    ranks is inferred from its values. FILE and its arguments are those of distdemo run.
    """
    program = parse_program(options.words or [], options.module)
    check_source(program)
    program = replace(program, creates_group=options.own_group or not program.function)
    size = session.world_size(options.world_size, smallest=2, why="There is nothing to compare.")
    if options.ranks_reference >= size:
        raise UsageError(
            f"--ranks-reference {options.ranks_reference} isn't smaller than {size} ranks.",
            "The reference runs on fewer ranks.",
            f"Try --ranks-reference 1, or --world-size {2 * options.ranks_reference}.",
        )
    limits = WorldsOptions(
        timeout=options.timeout or MAX_SECONDS, start_method=options.start_method, backend="gloo"
    )
    world = session.world(size, limits, stall=options.stall or STALL)
    world = replace(world, user_program=UserProgram(not program.creates_group))
    with session.waiting(program.name, world):
        # NumPy starts threads when it is imported, so torch comes first.
        from distdemo.parity.rank import record
        from distdemo.parity.worlds import measure_parity

        preload(program)

        def start(ranks: int, settings: tuple[Recording, Notes], **callbacks: Any) -> WorldReport:
            recording, notes = settings
            arguments = program.arguments
            if recording.run != "ranks":
                arguments += tuple(options.reference_args or ())
            own = replace(program, arguments=arguments)
            spec = replace(world, world_size=ranks)
            return session.start(spec, record, (recording, notes, own), **callbacks)

        report = ParityReport(program, size, options.ranks_reference)
        recording = Recording(
            options.steps,
            options.seed,
            "keep" if options.own_start else "copy",
            excluded=tuple(options.excluded or ()),
        )
        report = measure_parity(report, recording, start)
    from distdemo.parity.view import parity_view, problem

    errors: tuple[Error, ...] = ()
    if not (report.ok or report.failed_run):
        what, facts, hint = problem(report)
        ranks = report.difference.ranks if report.difference else ()
        errors = (Error(what, " ".join(facts), hint, ranks),)
    return Result(report, parity_view, errors=errors, partial=bool(report.failed_run))
