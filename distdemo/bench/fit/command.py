"""``distdemo bench fit``: fit the α–β model to bench files and predict other worlds."""

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
    session: Session,  # noqa: ARG001 - every command has one
    *,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE.json",
            help="Files of bench --output; different numbers of ranks are fitted together.",
        ),
    ],
    algorithm: Annotated[
        str | None, choice("NAME", NAMES, "Algorithm to fit [default: the one that fits best].")
    ] = None,
    predict: Annotated[
        list[int] | None,
        count("Predict the times of N ranks; may be repeated.", 2, MOST_RANKS),
    ] = None,
    sizes: SizeList = None,
    plot: Plot = None,
) -> Result:
    """Fit the α–β model to measured times and predict those of other worlds.

    A message of s bytes takes α + s·β. The number of times that an algorithm pays α and β follows
    from its schedule in distdemo trace.
    """
    from dataclasses import replace

    from distdemo.bench.fit.fit import study
    from distdemo.bench.recording import read
    from distdemo.versions import versions

    if len({path.resolve() for path in files}) < len(files):
        raise UsageError(
            "A file is given twice.", "Its times would count twice.", "Give each file once."
        )
    if sizes and not predict:
        raise UsageError(
            "--sizes requires --predict.",
            "It sets the sizes to predict.",
            "Add --predict 1000, or remove --sizes.",
        )
    recordings = [read(path) for path in files]
    report = study(recordings, algorithm=algorithm, ranks=predict or (), sizes=sizes or ())
    report = replace(report, versions=versions())
    return Result(report, view="distdemo.bench.fit.view", plot=plot)
