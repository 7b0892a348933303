"""``distdemo bench fit``: read files, fit the α–β model, predict, show it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from distdemo.bench.parse_fit import FitRequest, parse_fit
from distdemo.bench.run_compare import show_result, write_or_tell, write_result
from distdemo.errors import EXIT_OK

if TYPE_CHECKING:
    from distdemo.bench.fitting import FitReport


def run_fit(flags: dict[str, Any]) -> None:
    """``distdemo bench fit FILE.json``."""
    request = parse_fit(flags)
    report = _fitted(request)
    from distdemo.bench.view_fit_document import fit_document
    from distdemo.bench.view_fit_table import fit_table, verdict_lines
    from distdemo.view.console import signs

    show_result(
        request.view,
        lambda: fit_document(report),
        lambda console: fit_table(report, console),
        lambda console: verdict_lines(report, signs(console)),
    )
    write_result(request.output, lambda: fit_document(report))
    write_or_tell("--plot", request.plot, lambda ending: _picture(report, ending))
    raise typer.Exit(EXIT_OK)


def _fitted(request: FitRequest) -> FitReport:
    from distdemo.bench.reading import read
    from distdemo.bench.study import study
    from distdemo.versions import versions

    report = study(
        tuple(map(read, request.paths)),
        against=tuple(map(read, request.against)),
        algorithm=request.algorithm,
        ranks=request.ranks,
        sizes=request.sizes,
    )
    return replace(report, versions=versions())


def _picture(report: FitReport, kind: str) -> bytes:
    from distdemo.bench.view_fit_plot import plot

    return plot(report, kind)
