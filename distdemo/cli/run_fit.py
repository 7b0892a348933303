"""``distdemo bench fit``: read files, fit the α–β model, predict, show it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from distdemo.cli.execute import show_error
from distdemo.cli.files import no_matplotlib, write_file
from distdemo.cli.main_exits import AlreadyTold
from distdemo.cli.parse_fit import FitRequest, parse_fit
from distdemo.cli.run_compare import show_result, write_result
from distdemo.errors import EXIT_FAILED, EXIT_OK, DistdemoError

if TYPE_CHECKING:
    from distdemo.fitting import FitReport


def run_fit(flags: dict[str, Any]) -> None:
    """``distdemo bench fit FILE.json``."""
    request = parse_fit(flags)
    report = _fitted(request)
    from distdemo.render.console import signs
    from distdemo.render.fit_document import fit_document
    from distdemo.render.fit_table import fit_table, verdict_lines

    show_result(
        request.view,
        lambda: fit_document(report),
        lambda console: fit_table(report, console),
        lambda console: verdict_lines(report, signs(console)),
    )
    write_result(request.output, lambda: fit_document(report))
    _draw(request.plot, report)
    raise typer.Exit(EXIT_OK)


def _fitted(request: FitRequest) -> FitReport:
    from distdemo.programs.bench.reading import read
    from distdemo.programs.bench.study import study
    from distdemo.versions import versions

    report = study(
        tuple(map(read, request.paths)),
        against=tuple(map(read, request.against)),
        algorithm=request.algorithm,
        ranks=request.ranks,
        sizes=request.sizes,
    )
    return replace(report, versions=versions())


def _draw(path: Path | None, report: FitReport) -> None:
    """Into the file that ``--plot`` named, if it did."""
    if path is None:
        return
    try:
        write_file("--plot", path, _picture(report, path.suffix.lower().removeprefix(".")))
    except DistdemoError as error:
        show_error(error)
        raise AlreadyTold(EXIT_FAILED) from error


def _picture(report: FitReport, kind: str) -> bytes:
    try:
        from distdemo.render.fit_plot import plot
    except ImportError as error:
        raise no_matplotlib(error) from error
    return plot(report, kind)
