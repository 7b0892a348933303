"""``distdemo bench compare``: two files of bench, and whether a change is real."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from distdemo.bench.compare.records import THRESHOLD, Gate
from distdemo.cli.contract import Error, Result, command
from distdemo.cli.types import BadValue
from distdemo.view.format import percent

MOST = 1000  # percent


def parse_percent(text: str | float) -> float:
    """A share from percent: ``10%`` or ``10``. 0.1 without a sign could mean either: refused."""
    if not isinstance(text, str):
        return text
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value <= MOST:
        raise BadValue(text, "that is not a percentage.", f"It is 0% to {MOST}%.", "10%")
    if 0 < value < 1 and "%" not in text:
        why = f"It could mean {value:g}% or {100 * value:g}%."
        raise BadValue(text, "percent, or a share?", why, f"{100 * value:g}%")
    return value / 100


@command(
    record="distdemo.bench.compare.records:CompareReport",
    epilog="Try: distdemo bench --output old.json; distdemo bench --output new.json; "
    "distdemo bench compare old.json new.json --fail-over 10%",
)
def compare(
    old: Annotated[Path, typer.Argument(metavar="OLD.json", help="What bench wrote before.")],
    new: Annotated[Path, typer.Argument(metavar="NEW.json", help="What bench wrote after.")],
    threshold: Annotated[
        float,
        typer.Option(
            "--threshold",
            metavar="PERCENT",
            parser=parse_percent,
            show_default=f"{THRESHOLD:.0%}",
            help="Smallest change that counts.",
        ),
    ] = THRESHOLD,
    fail_over: Annotated[
        float | None,
        typer.Option(
            "--fail-over",
            metavar="PERCENT",
            parser=parse_percent,
            help="Exit with 1 if anything got slower than this, or if that can't be told.",
        ),
    ] = None,
) -> Result:
    """Whether a change between two measurements is real, or noise.

    Compares the launches' medians of the series that both files have. A change that the machine
    itself may explain, because its own limits changed by more, cannot be told.
    """
    from dataclasses import replace

    from distdemo.bench.compare.compare import compare as compare_files
    from distdemo.bench.recording import read
    from distdemo.versions import versions

    found = replace(compare_files(read(old), read(new), threshold, fail_over), versions=versions())
    errors: tuple[Error, ...] = ()
    if not found.ok:
        fails = any(each.gate is Gate.FAILS for each in found.every())
        what = "It got slower" if fails else "It cannot be told whether it got slower"
        errors = (Error(f"{what} by more than {percent(found.fail_over or 0.0)}."),)
    return Result(found, view="distdemo.bench.compare.view", errors=errors)
