"""The options of ``bench fit``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from distdemo.bench.fitting import MOST_RANKS
from distdemo.cli.option_kinds import OPERATION, OUTPUT, text_option

PREDICTING = "Worlds that one does not have"

_FILES = typer.Argument(
    metavar="FILE.json",
    help="From bench --output; runs on several numbers of ranks are fitted as one.",
)

FIT_OPTIONS: dict[str, tuple[Any, Any]] = {
    "fit_files": (Annotated[list[str] | None, _FILES], None),
    "algorithm": text_option(
        "--algorithm",
        panel=OPERATION,
        metavar="NAME",
        text="Take α and β by this algorithm: ring, tree, ... By default by the one that fits "
        "best, where timing can tell.",
    ),
    "predicted": text_option(
        "--predict",
        panel=PREDICTING,
        metavar="N",
        text=f"What so many ranks would take, on paper; up to {MOST_RANKS:,}. May be given "
        "several times.",
        kind=list[str] | None,
    ),
    "predicted_sizes": text_option(
        "--size",
        panel=PREDICTING,
        metavar="BYTES",
        text="With --predict: this size, 64K or 1G, instead of those measured. May be given "
        "several times.",
        kind=list[str] | None,
    ),
    "against": text_option(
        "--against",
        panel=PREDICTING,
        metavar="FILE.json",
        text="A run that is not fitted: its ranks are predicted, and its times shown beside. May "
        "be given several times.",
        kind=list[str] | None,
    ),
    "fit_output": text_option(
        "--output", panel=OUTPUT, metavar="FILE", text="Write the JSON document, too: a .json."
    ),
    "fit_plot": text_option(
        "--plot",
        panel=OUTPUT,
        metavar="FILE",
        text="Draw what was measured and the fitted curves: a .png, .svg or .pdf. Needs "
        "matplotlib.",
    ),
}
"""Annotation and default of each by its Python name."""
