"""``distdemo bench links``: measure every pair of ranks, both ways, and name the slow ones."""

from __future__ import annotations

from typing import Any

from distdemo.bench.linking import LinksReport
from distdemo.bench.old_records import Course
from distdemo.bench.parse_links import LinksRequest, parse_links
from distdemo.cli.conclude import Measured, conclude
from distdemo.cli.stage import Start, stage
from distdemo.demo.execute import check_backend


def run_links(flags: dict[str, Any]) -> None:
    """``distdemo bench links``."""
    request = parse_links(flags)
    with stage(request.seat, request.world, f"bench links {request.spec}") as start:
        report = _run(request, start)
        files = (
            ("--output", request.output, lambda _: _json(report)),
            ("--plot", request.plot, lambda ending: _plot(report, ending)),
        )
        conclude(_measured(report), request.view, files)


def _run(request: LinksRequest, start: Start) -> LinksReport:
    from distdemo.view.progress import Progress

    seat, pairs = request.seat, request.world.world_size * (request.world.world_size - 1)
    shown = not request.view.quiet and (seat is None or seat.site == 0)
    with Progress(pairs, enabled=shown) as bar:

        def watch(course: Course) -> None:
            bar.advance(round(course.done * pairs), 0, course.now)

        from distdemo.launcher.torch_import import load_torch

        load_torch()
        check_backend(request.world, seat)
        from distdemo.bench.links.measure import measure_links

        engine = "local" if seat is None else seat.engine
        return measure_links(request.spec, start, watch, engine=engine)


def _measured(report: LinksReport) -> Measured:
    from distdemo.bench.view_links_table import links_table, links_verdict_line
    from distdemo.view.console import signs

    return Measured(
        report.ok,
        report.interrupted,
        bool(report.links),
        report.failure,
        {"json": lambda: _json(report)},
        lambda console: links_table(report, console),
        lambda console: links_verdict_line(report, signs(console)),
    )


def _json(report: LinksReport) -> str:
    from distdemo.bench.view_links_document import links_document
    from distdemo.view.document import dumps

    return dumps(links_document(report)) + "\n"


def _plot(report: LinksReport, ending: str) -> bytes:
    from distdemo.bench.view_links_plot import links_plot

    return links_plot(report, ending)
