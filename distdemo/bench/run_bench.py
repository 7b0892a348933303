"""``distdemo bench``: measure, show it while it runs, and say what came of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from distdemo.bench.old_records import BenchReport
from distdemo.bench.parse_bench import BenchRequest, parse_bench
from distdemo.cli.conclude import Measured, conclude
from distdemo.cli.stage import Sequel, Start, stage
from distdemo.demo.execute import check_backend


def run_bench(flags: dict[str, Any]) -> None:
    """``distdemo bench``."""
    request = parse_bench(flags)
    meeting = request.worlds[0]
    with stage(request.seat, meeting, f"bench {request.spec}", _sequel(request)) as start:
        report = _run(request, start)
        files = (
            ("--output", request.output, lambda ending: _text(report, ending)),
            ("--plot", request.plot, lambda ending: _plot(report, ending)),
        )
        conclude(_measured(report), request.view, files)


def _sequel(request: BenchRequest) -> Sequel:
    """The sites of a joined world tell each other what the next world visits."""

    def order(args: tuple[Any, ...]) -> Any:  # noqa: ANN401 - plain lists and numbers
        from distdemo.bench.conductor import order_of

        return order_of(args)

    def resume(plan: list[Any]) -> tuple[Any, tuple[Any, ...]]:
        from distdemo.bench.conductor import resume

        return resume(request.spec, plan)

    return Sequel(order, resume)


def _run(request: BenchRequest, start: Start) -> BenchReport:
    from distdemo.bench.view_live import Live

    seat = request.seat
    shown = not request.view.quiet and (seat is None or seat.site == 0)
    with Live(enabled=shown) as live:
        from distdemo.launcher.torch_import import load_torch

        load_torch()
        for world in request.worlds:
            check_backend(world, seat)
        from distdemo.bench.conductor import measure

        once = seat is not None and seat.begins_once
        watch = live.show if live.visible else None
        report = measure(request.spec, start, watch, once=once)
    return replace(report, notes=(*request.notes, *report.notes))


def _measured(report: BenchReport) -> Measured:
    from distdemo.bench.view_table import bench_table, verdict_line
    from distdemo.view.console import signs

    return Measured(
        report.ok,
        report.interrupted,
        any(series.rows for series in report.series),
        report.failure,
        {name: lambda name=name: _text(report, name) for name in ("json", "csv")},  # type: ignore[misc]  # mypy infers no default
        lambda console: bench_table(report, console),
        lambda console: verdict_line(report, signs(console)),
    )


def _text(report: BenchReport, ending: str) -> str:
    """The result as a file of this ending holds it."""
    if ending == "json":
        from distdemo.bench.view_document import bench_document
        from distdemo.view.document import dumps

        return dumps(bench_document(report)) + "\n"
    if ending == "csv":
        from distdemo.bench.view_csv import bench_csv

        return bench_csv(report)
    from distdemo.bench.view_table import bench_table
    from distdemo.view.text_file import as_text

    return as_text(lambda console: bench_table(report, console))


def _plot(report: BenchReport, ending: str) -> bytes:
    from distdemo.bench.view_plot import plot

    return plot(report, ending)
