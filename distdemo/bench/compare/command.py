"""``distdemo bench compare``: two files of bench, and whether a change is real."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distdemo.bench.compare.records import Change
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.types import parse_share
from distdemo.view.format import percent


@command(
    record="distdemo.bench.compare.records:CompareReport",
    epilog="Try: distdemo bench --output old.json; distdemo bench --output new.json; "
    "distdemo bench compare old.json new.json --fail-over 10%",
)
def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD.json", help="What bench wrote before.")],
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="What bench wrote after.")],
    fail_over: Annotated[
        float | None,
        typer.Option(
            "--fail-over",
            metavar="PERCENT",
            parser=parse_share,
            help="Exit with 1 if anything got slower than this, or if that can't be told.",
        ),
    ] = None,
) -> Result:
    """Tell a real change between two measurements from noise.

    Compares the launches' medians of the series that both files have. A change counts from 10% on,
    or from --fail-over on.
    """
    from dataclasses import replace

    from distdemo.bench.compare.compare import compare as compare_files
    from distdemo.bench.recording import read
    from distdemo.versions import versions

    found = replace(compare_files(read(old), read(new), fail_over), versions=versions())
    errors: tuple[Error, ...] = ()
    if not found.ok:
        slower = any(each.change is Change.SLOWER for each in found.outcomes)
        what = "It got slower" if slower else "It cannot be told whether it got slower"
        errors = (Error(f"{what} by more than {percent(found.threshold)}."),)
    return Result(found, view="distdemo.bench.compare.view", errors=errors)
