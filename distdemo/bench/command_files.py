"""``distdemo bench compare`` and ``bench fit``, which read files of ``bench --output``."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import SizeList, count
from distdemo.cli.types import BadValue
from distdemo.errors import UsageError

MOST_RANKS = 1_000_000


def parse_share(text: str) -> float:
    """Parse a share: ``5%`` or ``0.05``. A number of 1 or more without a sign is ambiguous."""
    number = text.removesuffix("%")
    try:
        share = float(number) / (1 if number == text else 100)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise BadValue(text, "not a share between 0 and 1.", "0.05 is 5%.", "5%")
    return share


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """Options of ``distdemo bench compare``."""

    old: Annotated[Path, typer.Argument(metavar="OLD.json", help="Earlier bench --output.")]
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="Later bench --output.")]
    fail_over: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            parser=parse_share,
            help="Exit with 1 if anything is slower by more than this.",
        ),
    ] = None


@command(
    record="distdemo.bench.records_files:CompareReport",
    epilog="Try: distdemo bench --output old.json; distdemo bench --output new.json; "
    "distdemo bench compare old.json new.json --fail-over 10%",
)
def compare(options: CompareOptions) -> Result:
    """Compare two measurements and tell changes from noise.

    Compares the launches' medians of the series that both files have. The smallest
    change that counts is 10%, or --fail-over.
    """
    from distdemo.bench.compare import compare as compare_files
    from distdemo.bench.files import read
    from distdemo.bench.view_files import compare_view, verdict_text
    from distdemo.versions import versions

    report = compare_files(read(options.old), read(options.new), options.fail_over)
    errors = () if report.ok else (Error(verdict_text(report)),)
    return Result(replace(report, versions=versions()), compare_view, errors=errors)


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
    predict: Annotated[
        list[int] | None,
        count("Predict the times of N ranks; may be repeated.", 2, MOST_RANKS),
    ] = None
    sizes: SizeList = None


@command(
    record="distdemo.bench.records_files:FitReport",
    epilog="Try: distdemo bench fit two.json four.json; distdemo bench fit two.json four.json "
    "--predict 1000 --sizes 1K,1M",
)
def fit(options: FitOptions) -> Result:
    """Fit the α–β model to measured times and predict those of other worlds.

    A message of b bytes takes α + b·β. The number of times that an algorithm pays α and β follows
    from its schedule in distdemo trace. --sizes are those to predict.
    """
    from distdemo.bench.files import read
    from distdemo.bench.fit import make_report
    from distdemo.bench.view_files import fit_view
    from distdemo.versions import versions

    if len(set(map(os.path.realpath, options.files))) < len(options.files):
        raise UsageError(
            "A file is given twice.", "Its times would count twice.", "Give each file once."
        )
    recordings = [read(path) for path in options.files]
    report = make_report(recordings, options.predict or (), options.sizes or ())
    return Result(replace(report, versions=versions()), fit_view)
