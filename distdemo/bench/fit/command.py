"""``distdemo bench fit``: fit the α–β model to bench files and predict other worlds."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distdemo import schedules
from distdemo.cli.contract import Result, command
from distdemo.cli.options import Plot, SizeList, choice, count
from distdemo.errors import UsageError

MOST_RANKS = 1_000_000
NAMES = dict.fromkeys([*(algorithm.name for algorithm in schedules.REGISTRY), "message"])


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """Options of ``distdemo bench fit``."""

    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE.json",
            help="Files of bench --output; different numbers of ranks are fitted together.",
        ),
    ]
    algorithm: Annotated[
        str | None,
        choice("NAME", NAMES, "Algorithm to fit. [default: the one that fits best]"),
    ] = None
    predict: Annotated[
        list[int] | None,
        count("Predict the times of N ranks; may be repeated.", 2, MOST_RANKS),
    ] = None
    sizes: SizeList = None
    plot: Plot = None


@command(
    record="distdemo.bench.fit.fit:FitReport",
    epilog="Try: distdemo bench fit two.json four.json; distdemo bench fit two.json four.json "
    "--predict 1000 --sizes 1K,1M",
)
def fit(options: FitOptions) -> Result:
    """Fit the α–β model to measured times and predict those of other worlds.

    A message of b bytes takes α + b·β. The number of times that an algorithm pays α and β follows
    from its schedule in distdemo trace.
    """
    from distdemo.bench.files import read
    from distdemo.bench.fit.fit import make_report
    from distdemo.bench.fit.view import fit_view, plot
    from distdemo.versions import versions

    if len(set(map(os.path.realpath, options.files))) < len(options.files):
        raise UsageError(
            "A file is given twice.", "Its times would count twice.", "Give each file once."
        )
    if options.sizes and not options.predict:
        raise UsageError(
            "--sizes requires --predict.",
            "It sets the sizes to predict.",
            "Add --predict 1000, or remove --sizes.",
        )
    report = make_report(
        [read(path) for path in options.files],
        algorithm=options.algorithm,
        ranks=options.predict or (),
        sizes=options.sizes or (),
    )
    return Result(
        replace(report, versions=versions()),
        fit_view,
        files=(("--plot", options.plot, partial(plot, report, options.plot)),),
    )
