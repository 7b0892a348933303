"""``distdemo trace --compare`` and ``--simulate``: algorithms side by side, run or on paper."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from distdemo.bench.old_records import Course
from distdemo.cli.conclude import Measured, ToWrite, conclude
from distdemo.cli.stage import Start, stage
from distdemo.demo.execute import check_backend
from distdemo.errors import EXIT_OK
from distdemo.trace.contending import CompareReport
from distdemo.trace.parse_trace_contest import ContestRequest
from distdemo.view.spinner import spinner


def run_compared(request: ContestRequest) -> None:
    """``distdemo trace --compare``."""
    with stage(request.seat, request.world, f"trace --compare {request.spec}") as start:
        report = _compared(request, start)
        conclude(_measured(report), request.view, _files(report, request))


def run_simulated(request: ContestRequest) -> None:
    """``distdemo trace --simulate``."""
    if request.seat is not None and request.seat.node != 0:
        raise typer.Exit(EXIT_OK)  # nothing is run: rank 0 alone says what there is to say
    from distdemo.trace.simulate import simulate

    text = f"{len(request.spec.algorithms)} algorithms on {request.world.world_size:,} ranks"
    with spinner(f"Counting {text}", enabled=not request.view.quiet):
        report = simulate(request.spec)
    conclude(_measured(report), request.view, _files(report, request))


def _compared(request: ContestRequest, start: Start) -> CompareReport:
    from distdemo.view.progress import Progress

    seat, sizes = request.seat, len(request.spec.ops)
    shown = not request.view.quiet and (seat is None or seat.node == 0)
    with Progress(sizes, enabled=shown) as bar:

        def watch(course: Course) -> None:
            bar.advance(round(course.done * sizes), 0, course.now)

        from distdemo.launcher.torch_import import load_torch

        load_torch()
        check_backend(request.world, seat)
        from distdemo.trace.compare import compare

        return compare(request.spec, start, watch)


def _measured(report: CompareReport) -> Measured:
    from distdemo.trace.view_compare_table import compare_view, verdict_line
    from distdemo.view.console import signs

    return Measured(
        report.ok,
        report.interrupted,
        bool(report.arenas),
        report.failure,
        {"json": lambda: _text(report, "json")},
        lambda console: compare_view(report, console),
        lambda console: verdict_line(report, signs(console)),
    )


def _files(report: CompareReport, request: ContestRequest) -> Iterator[ToWrite]:
    yield "--output", request.output, lambda ending: _text(report, ending)
    yield "--plot", request.plot, lambda ending: _plot(report, ending)
    yield "--html", request.html, lambda _: _page(request)


def _text(report: CompareReport, ending: str) -> str:
    """The result as a file of this ending holds it."""
    if ending == "json":
        from distdemo.trace.view_compare_document import compare_document
        from distdemo.view.document import dumps

        return dumps(compare_document(report)) + "\n"
    from distdemo.trace.view_compare_table import compare_view
    from distdemo.view.text_file import as_text

    return as_text(lambda console: compare_view(report, console))


def _plot(report: CompareReport, ending: str) -> bytes:
    from distdemo.trace.view_plot import plot

    return plot(report, ending)


def _page(request: ContestRequest) -> str:
    """What the algorithm would do, played: whose contribution is where, without values or times."""
    if request.page is None:
        raise ValueError("a page needs a run on paper")
    from distdemo.trace.report import on_paper
    from distdemo.trace.view_page import trace_page

    return trace_page(on_paper(request.page))
