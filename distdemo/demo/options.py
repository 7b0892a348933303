"""The options of the op commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import typer

from distdemo import ops
from distdemo.cli.options import (
    OUTPUT,
    Destination,
    DType,
    Group,
    Pattern,
    Ranks,
    ReduceOp,
    Root,
    Seed,
    Sender,
    SplitWorld,
    Variant,
    WorldOptions,
)
from distdemo.cli.types import BadValue, Shape, decimal, parse_shape
from distdemo.ops.contract import Op

COMPANIONS = {"uneven": ("sizes",), "reduce_op": ("factor",)}
"""Extra options that an op has because it takes another one."""
DATA = ("dtype", "shape", "values", "seed")
"""Options of every op that moves data."""


class Lengths(tuple[int, ...]):
    """Lengths of tensors along their first dimension."""

    __slots__ = ()


class Straggler(NamedTuple):
    """A delayed rank and its delay in seconds."""

    rank: int
    delay_s: float


def parse_lengths(text: str) -> Lengths:
    """Parse lengths of 0 or more: ``3,0,7``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise BadValue(text, "these are not lengths.", "A length is 0 or more.", "3,0,7")
    return Lengths(map(int, parts))


def parse_splits(text: str) -> Lengths:
    """Parse lengths; empty for ``auto``, which is 1, 2, 3, ..."""
    return Lengths() if text == "auto" else parse_lengths(text)


def parse_straggler(text: str) -> Straggler:
    """Parse a rank and its delay in seconds: ``2:0.5``."""
    rank, _, delay = text.partition(":")
    try:
        straggler = Straggler(int(rank), float(delay.removesuffix("s")))
    except ValueError:
        straggler = Straggler(0, 0)
    if not 0 < straggler.delay_s < 1e6:
        raise BadValue(text, "that is not RANK:SECONDS.", "It delays one rank.", "1:0.5")
    return straggler


@dataclass(frozen=True, kw_only=True)
class OpOptions(WorldOptions):
    """Options of the op commands. Each op takes a subset."""

    reduce_op: ReduceOp = "sum"
    factor: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            parser=decimal(-1e30, 1e30, "2"),
            help="Factor that --reduce-op premul_sum multiplies each rank's tensor by.",
        ),
    ] = 2.0
    root: Root = 0
    src: Sender = None
    dst: Destination = None
    nonblocking: Annotated[
        bool,
        typer.Option(
            "--nonblocking",
            "--async",
            help="Use isend and irecv, and show the buffer before and after the wait.",
        ),
    ] = False
    pattern: Pattern = "pair"
    async_op: Annotated[
        bool, typer.Option("--async", help="Call with async_op=True and wait on the handle.")
    ] = False
    variant: Variant = None
    uneven: Annotated[
        bool, typer.Option("--uneven", help="Use a different length on each rank: 1, 2, 3, ...")
    ] = False
    sizes: Annotated[
        Lengths | None,
        typer.Option(
            metavar="LENGTHS", parser=parse_lengths, help="Length on each rank: 3,0,7. Uneven."
        ),
    ] = None
    splits: Annotated[
        list[Lengths] | None,
        typer.Option(
            metavar="LENGTHS",
            parser=parse_splits,
            help="Length of the part for each rank, once or once per rank: 1,2,0,3. Without a "
            "value: 1,2,3, ...",
        ),
    ] = None
    objects: Annotated[
        bool,
        typer.Option(
            "--objects",
            help="Send Python objects, as pickles, instead of tensors; --values takes JSON.",
        ),
    ] = False
    straggler: Annotated[
        Straggler | None,
        typer.Option(metavar="RANK:SECONDS", parser=parse_straggler, help="Delay this rank."),
    ] = None
    monitored: Annotated[
        bool,
        typer.Option("--monitored", help="Use monitored_barrier, which names the late ranks."),
    ] = False
    dtype: DType = "float32"
    shape: Annotated[
        Shape | None,
        typer.Option(
            metavar="SHAPE",
            parser=parse_shape,
            help="Shape of one tensor: 4, 2,3 or scalar.",
        ),
    ] = None
    values: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBERS",
            help="Input values of one rank: 1,2,3. Repeat it for each rank.",
        ),
    ] = None
    seed: Seed = None
    group: Group = None
    split: SplitWorld = None
    ranks: Ranks = None
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Draw the operation first.", rich_help_panel=OUTPUT),
    ] = False


def takes(op: Op) -> set[str]:
    """Return the options of an op that not every op has."""
    companions = {name for option in op.takes for name in COMPANIONS.get(option, ())}
    return {*op.takes, *companions, *(() if op.is_barrier else DATA)}


OF_SOME_OPS = {name for op in ops.REGISTRY.values() for name in takes(op)}
