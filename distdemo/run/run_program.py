"""``distdemo run``: a program of the user's own on every rank, and the views of what came of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer

from distdemo.cli.main_exits import AlreadyTold
from distdemo.demo.execute import check_backend
from distdemo.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from distdemo.launcher.records import Returned, WorldReport
from distdemo.run.parse_run import RunRequest, parse_run
from distdemo.run.records import RunReport, Transcript
from distdemo.run.transcript import Transcripts
from distdemo.view.spinner import spinner

Wrote = Callable[[int, bytes], object]


def run_program(flags: dict[str, Any]) -> None:
    """``distdemo run``."""
    request = parse_run(flags)
    report = _stream(request) if request.tee else _collect(request)
    with suppress(BrokenPipeError):  # a reader that left does not change the exit code
        _show(report, request)
    if report.world is None:
        raise AlreadyTold(EXIT_INTERRUPTED)
    raise typer.Exit(EXIT_OK if report.ok else EXIT_FAILED)


def _collect(request: RunRequest) -> RunReport:
    """Keep what ranks write until they have ended."""
    transcripts = Transcripts(request.world.world_size)
    size, program = request.world.world_size, request.program.name
    shown = not request.view.quiet and request.pdb is None
    try:
        with spinner(f"{program} on {size} ranks", enabled=shown):
            world = _start(request, transcripts.wrote)
    except (Exception, SystemExit):
        raise
    except BaseException as signal:  # SIGTERM, as Ctrl-C is dealt with
        _show(_report(request, None, transcripts.finished()), request)
        raise AlreadyTold(EXIT_FAILED) from signal
    return _report(request, world, transcripts.finished())


def _stream(request: RunRequest) -> RunReport:
    """Show what ranks write as it comes."""
    from distdemo.run.view_tee import Tee

    tee = Tee(request.world.world_size, request.view.ranks)
    try:
        world = _start(request, tee.wrote)
    finally:
        tee.flush()
    return _report(request, world, ())


def _start(request: RunRequest, wrote: Wrote) -> WorldReport | None:
    """How the world went; None if it was interrupted, which ``main`` remembers."""
    from distdemo.launcher.torch_import import load_torch

    try:
        load_torch()
        check_backend(request.world)
        from distdemo.backends.starting import run_prepared
        from distdemo.run.preload import preload
        from distdemo.run.program import run_program as target

        preload(request.program)
        return run_prepared(request.world, target, (request.program, request.pdb), wrote=wrote)
    except KeyboardInterrupt:
        return None


def _report(
    request: RunRequest, world: WorldReport | None, transcripts: tuple[Transcript, ...]
) -> RunReport:
    from distdemo.versions import versions

    asked = request.world
    outcomes = () if world is None else world.outcomes
    own_group = asked.user_program is not None and not asked.user_program.group
    return RunReport(
        program=request.program,
        world_size=asked.world_size,
        backend="" if own_group else asked.backend,
        device="" if own_group else asked.device,
        world=world,
        transcripts=transcripts or (Transcript(),) * asked.world_size,
        values=tuple(each.value if isinstance(each, Returned) else None for each in outcomes),
        versions=versions(),
    )


def _show(report: RunReport, request: RunRequest) -> None:
    view = request.view
    if view.format == "json":
        from distdemo.run.view_document import run_document
        from distdemo.view.document import dumps

        typer.echo(dumps(run_document(report, view.ranks)))
        return
    from distdemo.run.view_table import show_run, show_verdict
    from distdemo.view.console import output

    console = output()
    if view.quiet:
        show_verdict(report, console, traceback=view.traceback)
    else:
        show_run(report, console, view.ranks, traceback=view.traceback)
