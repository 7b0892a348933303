"""Options that several commands share, each declared once.

An option of a single command is declared next to that command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from distdemo import backends
from distdemo.cli.types import (
    RankList,
    Sizes,
    Split,
    file_to_write,
    offer,
    one_of,
    parse_plot,
    parse_ranks,
    parse_seconds,
    parse_sizes,
    parse_split,
    whole,
)
from distdemo.dtypes import DTYPES
from distdemo.dtypes import NAMES as DTYPE_NAMES
from distdemo.joined.engines import ENGINES
from distdemo.launcher.start_method import METHODS
from distdemo.ops.p2p import PATTERNS
from distdemo.ops.reduction import NAMES as REDUCTION_NAMES
from distdemo.ops.reduction import REDUCTIONS

OUTPUT = "Output"
ADVANCED = "Advanced"
NODES = "Beyond this machine"


def choice(
    metavar: str,
    names: Iterable[str],
    text: str,
    aliases: Mapping[str, str] | None = None,
    **more: Any,
) -> Any:
    """Declare an option that takes one of these names or aliases; ``text`` is its help."""
    parser, completion = one_of(names, aliases), offer(names)
    return typer.Option(
        metavar=metavar, parser=parser, autocompletion=completion, help=text, **more
    )


def count(
    text: str,
    least: int = 1,
    most: int | None = 10**12,
    *flags: str,
    metavar: str = "N",
    **more: Any,
) -> Any:
    """Declare an option that takes a whole number from ``least`` to ``most``."""
    return typer.Option(*flags, metavar=metavar, parser=whole(least, most), help=text, **more)


_BACKENDS = ("auto", *backends.REGISTRY)

WorldSize = Annotated[int | None, count("Number of ranks.", 1, None, "--world-size", "-n")]
Backend = Annotated[
    str,
    choice(
        "NAME",
        _BACKENDS,
        f"{', '.join(_BACKENDS)}. auto is nccl if every rank has a GPU, else gloo.",
    ),
]
Device = Annotated[
    str | None,
    choice(
        "DEVICE",
        ("cpu", "cuda"),
        "cpu or cuda; by default the one that suits the backend.",
        rich_help_panel=ADVANCED,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        parser=parse_seconds,
        help="Time limit of the whole run.",
        rich_help_panel=ADVANCED,
    ),
]
Stall = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        parser=parse_seconds,
        help="Time limit without any progress.",
        rich_help_panel=ADVANCED,
    ),
]
StartMethod = Annotated[
    str,
    choice(
        "METHOD",
        METHODS,
        f"{', '.join(METHODS)}. auto is the fastest safe one.",
        rich_help_panel=ADVANCED,
    ),
]
DType = Annotated[
    str,
    choice(
        "DTYPE",
        DTYPES,
        "Element type: torch's name, or a short one such as f32, bf16, i64.",
        DTYPE_NAMES,
    ),
]
ReduceOp = Annotated[str, choice("OP", REDUCTIONS, f"{', '.join(REDUCTIONS)}.", REDUCTION_NAMES)]
Root = Annotated[int, count("Root rank.", 0, metavar="RANK")]
Sender = Annotated[int | None, count("Sending rank.", 0, metavar="RANK")]
Destination = Annotated[int | None, count("Receiving rank.", 0, metavar="RANK")]
Pattern = Annotated[
    str,
    choice("PATTERN", PATTERNS, "; ".join(map(": ".join, PATTERNS.items())) + "."),
]
Variant = Annotated[
    str | None,
    choice(
        "VARIANT",
        ("list", "single"),
        "list (one tensor per rank) or single (one tensor that holds all).",
    ),
]
Group = Annotated[
    RankList | None,
    typer.Option(
        "--group",
        metavar="RANKS",
        parser=parse_ranks,
        help="Run on a group of these ranks only: 0,2 or 1-3.",
    ),
]
SplitWorld = Annotated[
    Split | None,
    typer.Option(
        "--split",
        metavar="N|%N|/N",
        parser=parse_split,
        help="Split into N groups of neighbours; %N: by rank modulo N; /N: groups of N ranks.",
    ),
]
Ranks = Annotated[
    RankList | None,
    typer.Option(
        "--ranks",
        metavar="LIST",
        parser=parse_ranks,
        help="Ranks to show: 0,5-7 or all.",
        rich_help_panel=OUTPUT,
    ),
]
SizeList = Annotated[
    Sizes | None,
    typer.Option("--sizes", metavar="BYTES", parser=parse_sizes, help="Sizes in bytes: 1K,16M."),
]
Seed = Annotated[
    int | None,
    count("Seed of the random numbers.", 0, 2**31 - 2, metavar="NUMBER", rich_help_panel=ADVANCED),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        parser=parse_plot,
        help="Draw a plot as .png or .svg (needs matplotlib).",
        rich_help_panel=OUTPUT,
    ),
]
Calls = Annotated[bool, typer.Option("--calls", help="Show what each rank called, and how often.")]
Timeline = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE",
        parser=file_to_write(".json"),
        help="Write a timeline of all calls as a .json, for Perfetto.",
        rich_help_panel=OUTPUT,
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Treat warnings and incomplete comparisons as failures.")
]


DEFAULTS = {"world_size": "4", "timeout": "30, more for many ranks", "src": "0", "dst": "1"}
"""Texts for help on what an option without a value means, by field, unless a command differs."""


@dataclass(frozen=True, kw_only=True)
class WorldOptions:
    """Options of every command that starts a world."""

    world_size: WorldSize = None
    backend: Backend = "auto"
    device: Device = None
    timeout: Timeout = None
    start_method: StartMethod = "auto"

    @property
    def given(self) -> set[str]:
        """Names of the options that differ from their defaults."""
        return {each.name for each in fields(self) if getattr(self, each.name) != each.default}


# ------------------------------------------------------------------------ options of every command

Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print only the verdict.", rich_help_panel=OUTPUT),
]
Traceback = Annotated[
    bool,
    typer.Option("--traceback", help="Show the traceback of an error.", rich_help_panel=OUTPUT),
]
# --------------------------------------------------- options of commands that can join a world

Launcher = Annotated[
    str,
    choice(
        "NAME",
        ("auto", "local", *ENGINES),
        f"What started this process: auto, local (no launcher), {', '.join(ENGINES)}.",
        rich_help_panel=NODES,
    ),
]
Nodes = Annotated[
    int | None,
    count("Number of nodes that run this command.", rich_help_panel=NODES),
]
NodeRank = Annotated[
    int | None,
    count(
        "Number of this node; node 0 shows the result.", 0, metavar="NODE", rich_help_panel=NODES
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="HOST[:PORT]",
        help="Address of node 0, which opens the port while it runs. [default: port 29500]",
        rich_help_panel=NODES,
    ),
]
