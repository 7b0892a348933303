"""``distdemo trace``: run an algorithm and show every round of it; or list the algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import typer

from distdemo.cli.conclude import Measured, conclude
from distdemo.cli.stage import Start, stage
from distdemo.demo.execute import check_backend
from distdemo.errors import EXIT_OK
from distdemo.trace import algorithms
from distdemo.trace.parse_trace import TraceRequest, parse_listed, parse_trace
from distdemo.trace.parse_trace_contest import parse_compared, parse_simulated
from distdemo.trace.parse_trace_modes import parse_mode
from distdemo.trace.run_trace_compare import run_compared, run_simulated
from distdemo.trace.tracing import TraceReport
from distdemo.view.spinner import spinner


def run_trace(flags: dict[str, Any]) -> None:
    """``distdemo trace``."""
    mode = parse_mode(flags)
    if mode == "run":
        _run(parse_trace(flags))
    elif mode == "compare":
        run_compared(parse_compared(flags))
    elif mode == "simulate":
        run_simulated(parse_simulated(flags))
    else:
        _list(flags)


def _run(request: TraceRequest) -> None:
    with stage(request.seat, request.world, f"trace {request.spec}") as start:
        report = _traced(request, start)
        files = (
            ("--output", request.output, lambda ending: _text(report, ending)),
            ("--html", request.html, lambda _: _page(report)),
        )
        conclude(_measured(report, request), request.view, files)


def _traced(request: TraceRequest, start: Start) -> TraceReport:
    with _waiting(request):
        from distdemo.trace.report import report
        from distdemo.trace.run import trace

        world = start(request.world, trace, (request.spec,), meanwhile=_warm_up(request))
    found = report(request.spec, world)
    return replace(found, notes=(*request.notes, *found.notes))


@contextmanager
def _waiting(request: TraceRequest) -> Iterator[None]:
    """A spinner around the work; torch is imported first, and asked for what the world needs."""
    world = request.world
    text = f"{request.spec.algorithm} on {world.world_size} ranks over {world.backend}"
    with spinner(text, enabled=not request.view.quiet):
        from distdemo.launcher.torch_import import load_torch

        load_torch()
        check_backend(world, request.seat)
        yield


def _warm_up(request: TraceRequest) -> Callable[[], object]:
    """What to do while the ranks work: import the view that will be needed."""
    name = "document" if request.view.format == "json" else "rounds"
    return partial(import_module, f"distdemo.trace.view_{name}")


# --------------------------------------------------------------------------------------- showing


def _measured(report: TraceReport, request: TraceRequest) -> Measured:
    from distdemo.trace.view_words import verdict
    from distdemo.view.console import signs

    world = report.world
    failed = world is not None and not world.ok
    return Measured(
        report.ok,
        interrupted=False,
        some=not failed,
        failure=world if failed else None,
        texts={"json": lambda: _text(report, "json")},
        table=lambda console: _view(report, console, request),
        verdict=lambda console: verdict(report, signs(console)),
    )


def _view(report: TraceReport, console: Any, request: TraceRequest) -> Any:  # noqa: ANN401 - rich's
    """All rounds; where they can be played, nothing is left to be shown after that."""
    from distdemo.trace.view_live import can_play, play
    from distdemo.trace.view_rounds import trace_view

    if request.speed is None or not can_play(report, console):
        return trace_view(report, console, request.view.ranks)
    play(report, console, request.speed, request.view.ranks)
    return _Shown()


class _Shown:
    """What has been shown by now: nothing is left to be drawn."""

    def __rich_console__(self, *_: object) -> Iterator[str]:
        """No lines."""
        return iter(())


def _text(report: TraceReport, ending: str) -> str:
    """The result as a file of this ending holds it."""
    if ending == "json":
        from distdemo.trace.view_document import trace_document
        from distdemo.view.document import dumps

        return dumps(trace_document(report)) + "\n"
    from distdemo.trace.view_rounds import trace_view
    from distdemo.view.text_file import as_text

    return as_text(lambda console: trace_view(report, console, every=True))


def _page(report: TraceReport) -> str:
    from distdemo.trace.view_page import trace_page

    return trace_page(report)


def _list(flags: dict[str, Any]) -> None:
    """``distdemo trace --list``."""
    chosen, view = parse_listed(flags)
    from distdemo.trace.plans import about

    found = [(op.name, about(each)) for op in chosen for each in algorithms.of_op(op.name)]
    with suppress(BrokenPipeError):
        if view.format == "json":
            from distdemo.trace.view_algorithms_list import list_document
            from distdemo.view.document import dumps

            typer.echo(dumps(list_document(found)))
        else:
            from distdemo.trace.view_algorithms_list import list_view
            from distdemo.view.console import output, show

            console = output()
            show(console, list_view(found, console))
    raise typer.Exit(EXIT_OK)
