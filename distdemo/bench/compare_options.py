"""The options of ``bench compare``."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from distdemo.bench.comparing import THRESHOLD
from distdemo.cli.option_kinds import OUTPUT, text_option

JUDGING = "What counts"

COMPARE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "old_file": (
        Annotated[str, typer.Argument(metavar="OLD.json", help="From bench --output, before.")],
        inspect.Parameter.empty,
    ),
    "new_file": (
        Annotated[str, typer.Argument(metavar="NEW.json", help="The same, after.")],
        inspect.Parameter.empty,
    ),
    "threshold": text_option(
        "--threshold",
        panel=JUDGING,
        metavar="PERCENT",
        text="A change is called one if it is larger than this, and the noise can't explain it: "
        f"{THRESHOLD:.0%}.",
    ),
    "fail_over": text_option(
        "--fail-over",
        panel=JUDGING,
        metavar="PERCENT",
        text="Exit code 1 if a size, or a series over all its sizes, got slower by more than this. "
        "By default comparing never fails.",
    ),
    "compare_output": text_option(
        "--output", panel=OUTPUT, metavar="FILE", text="Write the JSON document, too: a .json."
    ),
}
"""Annotation and default of each by its Python name."""
