"""``distdemo bench fit``: the α–β model of what was measured, and predictions from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distdemo.bench.fit.records import MESSAGE
from distdemo.cli.contract import Result, command
from distdemo.cli.options import Plot, SizeList, choice, count
from distdemo.cli.session import Session
from distdemo.errors import UsageError
from distdemo.trace import algorithms

MOST_RANKS = 1_000_000


NAMES = dict.fromkeys([*(each.name for each in algorithms.REGISTRY), MESSAGE])


@command(
    record="distdemo.bench.fit.records:FitReport",
    epilog="Try: distdemo bench fit two.json four.json; distdemo bench fit two.json four.json "
    "--predict 1000 --sizes 1K,1M",
)
def fit(
    session: Session,  # noqa: ARG001 - every command's
    *,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE.json",
            help="From bench --output; runs on several numbers of ranks are fitted as one.",
        ),
    ],
    algorithm: Annotated[
        str | None, choice("NAME", NAMES, "Algorithm to fit; by default the one that fits best.")
    ] = None,
    predict: Annotated[
        list[int] | None,
        count("Predict what N ranks would take; may be repeated.", 2, MOST_RANKS),
    ] = None,
    sizes: SizeList = None,
    plot: Plot = None,
) -> Result:
    """Fit the α–β model to measurements, and predict other world sizes.

    A message of s bytes takes α + s·β. How often an algorithm pays α and β is counted in its
    schedule, the one that distdemo trace runs.
    """
    from dataclasses import replace

    from distdemo.bench.fit.fit import study
    from distdemo.bench.recording import read
    from distdemo.versions import versions

    if len({path.resolve() for path in files}) < len(files):
        raise UsageError(
            "A file is named twice.", "Its times would count twice.", "Name each file once."
        )
    if sizes and not predict:
        raise UsageError(
            "--sizes means nothing without --predict.",
            "It is what is predicted.",
            "Add --predict 1000, or leave it out.",
        )
    recordings = [read(path) for path in files]
    report = study(recordings, algorithm=algorithm, ranks=predict or (), sizes=sizes or ())
    report = replace(report, versions=versions())
    return Result(report, view="distdemo.bench.fit.view", plot=plot)
