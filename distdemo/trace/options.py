"""Options of the commands that run schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from distdemo import schedules
from distdemo.cli.options import (
    ADVANCED,
    DType,
    Ranks,
    ReduceOp,
    Root,
    Seed,
    SizeList,
    Stall,
    WorldOptions,
    count,
)
from distdemo.cli.types import Shape, decimal, offer, parse_shape

MOST_CHUNKS = 4096  # more gain nothing: each chunk of a pipeline adds a round, which costs α
OPS = tuple(op.replace("_", "-") for op in schedules.ops())
NAMES = tuple(dict.fromkeys(each.name for each in schedules.REGISTRY))


# --------------------------------------------------------------------------------------- options

Operation = Annotated[
    str | None,
    typer.Argument(metavar="OP", help=f"{', '.join(OPS)}.", autocompletion=offer(OPS)),
]


def algorithm_option(metavar: str, default: str) -> Any:  # noqa: ANN401 - typer's
    """Declare the option ``--algorithm``; ``default`` is for its help."""
    return typer.Option(
        "--algorithm",
        "-a",
        metavar=metavar,
        autocompletion=offer(NAMES),
        help=f"ring, tree, ... (see trace list); by default {default}.",
    )


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(WorldOptions):
    """Options of every command that runs a schedule."""

    op: Operation = None
    algorithm: Annotated[str | None, algorithm_option("NAME", "the operation's first")] = None
    sizes: SizeList = None
    reduce_op: ReduceOp = "sum"
    root: Root = 0
    dtype: DType = "float32"
    chunks: Annotated[
        int | None,
        count("Number of chunks of the algorithm chain.", 1, MOST_CHUNKS, rich_help_panel=ADVANCED),
    ] = None
    factor: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            parser=decimal(-1e30, 1e30, "2"),
            help="Factor by which premul_sum multiplies each tensor.",
            rich_help_panel=ADVANCED,
        ),
    ] = 2.0
    stall: Stall = None


@dataclass(frozen=True, kw_only=True)
class TraceOptions(ScheduleOptions):
    """Options of ``distdemo trace``."""

    animate: Annotated[
        bool,
        typer.Option(
            "--animate", help="Play it in this terminal: space pauses, arrow keys step, q quits."
        ),
    ] = False
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR",
            min=0.1,
            max=50,
            help="Playback speed; 2 is twice as fast. Implies --animate.",
        ),
    ] = None
    shape: Annotated[
        Shape | None,
        typer.Option(
            metavar="SHAPE",
            parser=parse_shape,
            help="Shape of one tensor or part: 4, 2,3 or scalar.",
            rich_help_panel=ADVANCED,
        ),
    ] = None
    values: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBERS|FILE",
            help="Input values, once per rank, or a file with one line per rank.",
            rich_help_panel=ADVANCED,
        ),
    ] = None
    seed: Seed = None
    ranks: Ranks = None
