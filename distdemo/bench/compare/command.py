"""``distdemo bench compare``: compare two bench files and tell changes from noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from distdemo.bench.compare.compare import Change
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.options import choice
from distdemo.cli.types import parse_share
from distdemo.errors import UsageError


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
    fail_on: Annotated[
        str | None,
        choice(
            "OUTCOME",
            (Change.SLOWER.value, Change.UNKNOWN.value),
            "With --fail-over: slower, or undecided to fail on both. [default: slower]",
        ),
    ] = None


@command(
    record="distdemo.bench.compare.compare:CompareReport",
    epilog="Try: distdemo bench --output old.json; distdemo bench --output new.json; "
    "distdemo bench compare old.json new.json --fail-over 10%",
)
def compare(options: CompareOptions) -> Result:
    """Compare two measurements and tell changes from noise.

    Compares the launches' medians of the series that both files have. The smallest
    change that counts is 10%, or --fail-over.
    """
    from distdemo.bench.compare.compare import compare as compare_files
    from distdemo.bench.compare.view import compare_view, verdict_text
    from distdemo.bench.files import read
    from distdemo.versions import versions

    if options.fail_on is not None and options.fail_over is None:
        raise UsageError(
            "--fail-on requires --fail-over.",
            "Without it nothing is a failure.",
            "Try --fail-over 10%.",
        )
    files = read(options.old), read(options.new)
    report = compare_files(*files, options.fail_over, Change(options.fail_on or Change.SLOWER))
    errors = () if report.ok else (Error(verdict_text(report)),)
    return Result(replace(report, versions=versions()), compare_view, errors=errors)
