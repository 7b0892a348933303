"""The options of ``trace`` that mean something else, or nothing, elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from distdemo import ops
from distdemo.bench.fitting import MOST_RANKS
from distdemo.cli.option_kinds import (
    DATA,
    OPERATION,
    OUTPUT,
    RANKS,
    among,
    flag_option,
    text_option,
)

if TYPE_CHECKING:
    from distdemo.trace.scheduling import FaultKind

VIEWS = "What to see"
MODEL = "Predicted times: α a message, β a byte"
DEFAULT_RANKS = 4
BUDGET = 2.0  # seconds of timing, a size
FAULTS: dict[FaultKind, str] = {
    "drop": "it is not sent",
    "neighbour": "it goes to the rank after the right one",
    "twice": "it is reduced twice",
}
"""What can be done wrong on purpose, and what that means."""

_OPS = tuple(
    op.command for op in ops.REGISTRY.values() if not op.meets and "pattern" not in op.takes
)


def _algorithms() -> list[str]:
    """Their names, for a shell; no other command waits until all of them are imported."""
    from distdemo.trace import algorithms

    return list(dict.fromkeys(each.name for each in algorithms.REGISTRY))


_OP = typer.Argument(
    metavar="OP",
    help=f"{', '.join(_OPS)}. By default all-reduce.",
    show_default=False,
    autocompletion=among(_OPS),
)

TRACE_OPTIONS: dict[str, tuple[Any, Any]] = {
    "trace_op": (Annotated[str | None, _OP], None),
    "trace_algorithm": text_option(
        "--algorithm",
        "-a",
        panel=OPERATION,
        metavar="NAME[,NAME]",
        text="ring, naive, ...; --list says which there are. By default the operation's first, "
        "with --compare and --simulate all.",
        offers=_algorithms,
    ),
    "trace_chunks": text_option(
        "--chunks",
        panel=OPERATION,
        metavar="NUMBER",
        text="In how many chunks an algorithm cuts that leaves it open: chain. By default as many "
        "as ranks, 16 at most.",
    ),
    "trace_ranks": text_option(
        "--world-size",
        "-n",
        panel=RANKS,
        metavar="N",
        text=f"How many ranks: {DEFAULT_RANKS}. With --simulate up to {MOST_RANKS:,}.",
    ),
    "trace_size": text_option(
        "--size",
        panel=DATA,
        metavar="BYTES[,BYTES]",
        text="B of the formulas, 64K or 1M: one rank's tensor, or all parts where a rank has one "
        "for each. By default an element a chunk; with --compare 1K,64K,1M,16M, with --simulate "
        "1K,1M,1G.",
    ),
    "trace_shape": text_option(
        "--shape",
        panel=DATA,
        metavar="SHAPE",
        text="Or the shape of one tensor, or of one part: a number, 2,3, or scalar.",
    ),
    "trace_reduce_op": text_option(
        "--reduce-op", panel=OPERATION, metavar="OP", text="sum (the default), max, avg, ..."
    ),
    "trace_list": flag_option(
        "--list", panel=VIEWS, text="The algorithms, their formulas and where they are from."
    ),
    "compare": flag_option(
        "--compare",
        panel=VIEWS,
        text="All algorithms of the operation side by side, and the backend's own: run, verified, "
        "timed, beside the α–β model.",
    ),
    "simulate": flag_option(
        "--simulate",
        panel=VIEWS,
        text="Rounds, bytes and times on paper: nothing is run.",
    ),
    "animate": flag_option(
        "--animate",
        panel=VIEWS,
        text="Play it in this terminal: space pauses, arrows step, + and - change the speed, q "
        "ends it.",
    ),
    "speed": text_option(
        "--speed", panel=VIEWS, metavar="FACTOR", text="With --animate: so many times as fast."
    ),
    "spoil": text_option(
        "--spoil",
        panel=VIEWS,
        metavar="KIND[:ROUND[:RANK]]",
        text="Spoil one message on purpose, and see it noticed: "
        + ", ".join(f"{name} ({meaning})" for name, meaning in FAULTS.items())
        + ". Exit code 1; 0 where it does no harm.",
        offers=FAULTS,
    ),
    "trace_budget": text_option(
        "--budget",
        panel=VIEWS,
        metavar="SECONDS",
        text=f"With --compare: for timing each size: {BUDGET:g}.",
    ),
    "alpha": text_option(
        "--alpha",
        panel=MODEL,
        metavar="TIME",
        text="What a message costs however small it is: 5us. By default --compare measures both, "
        "and --simulate predicts no times.",
    ),
    "beta": text_option(
        "--beta",
        panel=MODEL,
        metavar="TIME|BANDWIDTH",
        text="What each byte of it costs: 0.1ns, or 10GB/s.",
    ),
    "link_file": text_option(
        "--fit",
        panel=MODEL,
        metavar="FILE.json",
        text="Take both from what bench --output wrote, fitted as bench fit does. May be given "
        "several times, for runs on other numbers of ranks.",
        kind=list[str] | None,
    ),
    "html": text_option(
        "--html",
        panel=OUTPUT,
        metavar="FILE",
        text="Write one page that plays it in any browser, without a network.",
    ),
    "trace_output": text_option(
        "--output",
        panel=OUTPUT,
        metavar="FILE",
        text="Write it all, every round and transfer too, by the ending: .json or .txt.",
    ),
    "trace_plot": text_option(
        "--plot",
        panel=OUTPUT,
        metavar="FILE",
        text="With --compare or --simulate: draw times (or bytes) against size: a .png, .svg or "
        ".html. Needs matplotlib.",
    ),
}
"""Annotation and default of each by its Python name."""
