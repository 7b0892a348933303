"""``distdemo check``: the plan, the worlds, and the three views of what came of it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from typing import Any

import typer

from distdemo import backends
from distdemo.check.parse_check import CheckRequest, parse_check
from distdemo.check.records import CheckReport
from distdemo.cli.main_exits import AlreadyTold
from distdemo.cli.stage import Sequel, Start, stage
from distdemo.cli.writing import write_file
from distdemo.demo.execute import check_backend, show_error
from distdemo.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, DistdemoError


def run_check(flags: dict[str, Any]) -> None:
    """``distdemo check``."""
    request = parse_check(flags)
    asked = f"check {request.scope} {[case.id for case in request.cases]}"
    with stage(request.seat, request.world, asked, _sequel(request)) as start:
        report = _run(request, start)
        unwritten = _write(report, request)
        with suppress(BrokenPipeError):  # a reader that left does not change the exit code
            _show(report, request)
            _annotate(report, request)
        if unwritten is not None:
            show_error(unwritten)
            raise AlreadyTold(EXIT_INTERRUPTED if report.interrupted else EXIT_FAILED)
        if report.interrupted:
            raise AlreadyTold(EXIT_INTERRUPTED)
        raise typer.Exit(EXIT_OK if report.ok else EXIT_FAILED)


def _sequel(request: CheckRequest) -> Sequel:
    """The sites of a joined world tell each other which cases the next world runs."""

    def resume(numbers: list[int]) -> tuple[Any, tuple[Any, ...]]:
        from distdemo.check.check import run_cases

        return run_cases, (tuple((number, request.cases[number]) for number in numbers),)

    return Sequel(lambda args: [number for number, _ in args[0]], resume)


def _write(report: CheckReport, request: CheckRequest) -> DistdemoError | None:
    """Write the JUnit report; what went wrong with it is told once the result has been shown."""
    if request.junit is None:
        return None
    from distdemo.check.view_junit import junit_xml

    try:
        write_file("--junit-xml", request.junit, junit_xml(report))
    except DistdemoError as error:
        return error
    return None


def _run(request: CheckRequest, start: Start) -> CheckReport:
    from distdemo.view.progress import Progress

    seat = request.seat
    shown = not request.view.quiet and (seat is None or seat.node == 0)
    with Progress(len(request.cases), enabled=shown) as progress:
        from distdemo.launcher.torch_import import load_torch

        load_torch()
        request, gpus = _on_these_gpus(request)
        check_backend(request.world, request.seat)
        from distdemo.check.checker import Plan, check

        plan = Plan(
            request.cases,
            request.world,
            request.scope,
            request.seed,
            request.fail_fast or (seat is not None and seat.one_world_only),
            request.isolate,
            gpus=gpus,
        )
        return check(plan, start, progress.advance)


def _on_these_gpus(request: CheckRequest) -> tuple[CheckRequest, int | None]:
    """The largest world that the GPUs here allow, and their number; None where that is no limit.

    A world that an engine started is as large as it is: it can be refused, but not made smaller.
    """
    if request.seat is not None or not backends.REGISTRY[request.world.backend].rank_per_gpu:
        return request, None
    gpus = backends.count_gpus()
    sizes = [case.world_size for case in request.cases if case.world_size <= gpus]
    if not sizes:
        return request, None  # refused as a whole
    return replace(request, world=replace(request.world, world_size=max(sizes))), gpus


def _show(report: CheckReport, request: CheckRequest) -> None:
    if request.view.format == "json":
        from distdemo.check.view_document import check_document
        from distdemo.view.document import dumps

        typer.echo(dumps(check_document(report)))
        return
    from distdemo.check.view_grid import check_grid, verdict_line
    from distdemo.view.console import output, show, signs

    console = output()
    quiet = request.view.quiet
    show(console, verdict_line(report, signs(console)) if quiet else check_grid(report, console))


def _annotate(report: CheckReport, request: CheckRequest) -> None:
    """On GitHub's runners: a line for each failure, which it shows beside the change."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    from distdemo.check.view_annotations import github_annotations

    # The runner reads both streams; standard output is the document's where that is JSON.
    stream = sys.stderr if request.view.format == "json" else sys.stdout
    for line in github_annotations(report):
        print(line, file=stream)
