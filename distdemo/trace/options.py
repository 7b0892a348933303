"""Options of ``distdemo trace``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

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
from distdemo.cli.types import Numbers, decimal, offer, parse_shape

MOST_CHUNKS = 4096  # more gain nothing: each chunk of a pipeline adds a round, which costs α
OPS = tuple(op.replace("_", "-") for op in schedules.ops())
NAMES = tuple(dict.fromkeys(algorithm.name for algorithm in schedules.REGISTRY))


Operation = Annotated[
    str | None,
    typer.Argument(metavar="OP", help=f"{', '.join(OPS)}.", autocompletion=offer(OPS)),
]


@dataclass(frozen=True, kw_only=True)
class TraceOptions(WorldOptions):
    """Options of ``distdemo trace``."""

    op: Operation = None
    algorithm: Annotated[
        str | None,
        typer.Option(
            "--algorithm",
            "-a",
            metavar="NAME",
            autocompletion=offer(NAMES),
            help="ring, tree, ... (see trace list); by default the operation's first.",
        ),
    ] = None
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
    animate: Annotated[
        bool,
        typer.Option(
            "--animate", help="Show it in place: each key shows the next round, ← the one before."
        ),
    ] = False
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR",
            min=0.1,
            max=50,
            help="Play it without keys; 2 is twice as fast. Implies --animate.",
        ),
    ] = None
    shape: Annotated[
        Numbers | None,
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
            metavar="NUMBERS",
            help="Input values of one rank: 1,2,3. Repeat it for each rank.",
            rich_help_panel=ADVANCED,
        ),
    ] = None
    seed: Seed = None
    ranks: Ranks = None
