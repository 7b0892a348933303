"""The options of the op commands: a mixin per setting that an op may take.

``options_of`` composes the record of one op.
"""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, cast

import typer

from distdemo.cli.options import (
    OUTPUT,
    Destination,
    DType,
    Group,
    Options,
    Pattern,
    Ranks,
    ReduceOp,
    Root,
    Seed,
    Sender,
    SplitWorld,
    WorldOptions,
    count,
    variant_option,
    with_default,
    world_size_option,
)
from distdemo.cli.types import BadValue, Shape, decimal, parse_shape
from distdemo.ops.contract import Op

RING_SIZE = ", for a ring or an exchange 4"


def flag_of(name: str) -> str:
    """Return the flag of an option: ``--reduce-op``."""
    return f"--{name.replace('_', '-')}"


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
    """Options of every op."""

    group: Group = None
    split: SplitWorld = None
    ranks: Ranks = None
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Draw the operation first.", rich_help_panel=OUTPUT),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ReduceOptions(Options):
    """The reduce op, and the factor of ``premul_sum``."""

    reduce_op: ReduceOp = "sum"
    factor: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            parser=decimal(-1e30, 1e30, "2"),
            help="Factor that --reduce-op premul_sum multiplies every rank's tensor by.",
        ),
    ] = 2.0


@dataclass(frozen=True, kw_only=True)
class RootOptions(Options):
    """The root."""

    root: Root = 0


@dataclass(frozen=True, kw_only=True)
class PairOptions(Options):
    """Pair and kind of point-to-point calls."""

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


@dataclass(frozen=True, kw_only=True)
class PatternOptions(Options):
    """The pattern of point-to-point calls."""

    pattern: Pattern = "pair"


@dataclass(frozen=True, kw_only=True)
class AsyncOptions(Options):
    """A handle to wait on."""

    async_op: Annotated[
        bool, typer.Option("--async", help="Call with async_op=True and wait on the handle.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class VariantOptions(Options):
    """A list of tensors, or a single one."""

    variant: Annotated[str | None, variant_option("list")] = None


@dataclass(frozen=True, kw_only=True)
class UnevenOptions(Options):
    """Tensors of unequal lengths."""

    uneven: Annotated[
        bool, typer.Option("--uneven", help="Use tensors of lengths 1, 2, 3, ...")
    ] = False
    sizes: Annotated[
        Lengths | None,
        typer.Option(
            metavar="LENGTHS", parser=parse_lengths, help="Lengths of the ranks' tensors: 3,0,7."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SplitsOptions(Options):
    """Parts of unequal lengths."""

    splits: Annotated[
        list[Lengths] | None,
        typer.Option(
            metavar="LENGTHS",
            parser=parse_splits,
            help="Length of the part for each rank, once or once per rank: 1,2,0,3. Without a "
            "value: 1,2,3, ...",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ObjectsOptions(Options):
    """Python objects instead of tensors."""

    objects: Annotated[
        bool,
        typer.Option(
            "--objects",
            help="Send Python objects, as pickles, instead of tensors; --values takes JSON.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class BarrierOptions(Options):
    """A late rank, and the barrier that names it."""

    straggler: Annotated[
        Straggler | None,
        typer.Option(metavar="RANK:SECONDS", parser=parse_straggler, help="Delay this rank."),
    ] = None
    monitored: Annotated[
        bool,
        typer.Option("--monitored", help="Use monitored_barrier, which names the late ranks."),
    ] = False


def shape_option(default: str = "") -> Any:
    """Declare ``--shape``; ``default`` describes its default."""
    text = with_default("Shape of one tensor: 4, 2,3 or scalar.", default)
    return typer.Option(metavar="SHAPE", parser=parse_shape, help=text)


@dataclass(frozen=True, kw_only=True)
class ShapeOptions(Options):
    """Type and shape of a tensor."""

    dtype: DType = "float32"
    shape: Annotated[Shape | None, shape_option()] = None


@dataclass(frozen=True, kw_only=True)
class DataOptions(ShapeOptions):
    """The data that an op moves."""

    values: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NUMBERS",
            help="Input values of one rank: 1,2,3. Repeat it for every rank.",
        ),
    ] = None
    seed: Seed = None


MIXINS: tuple[tuple[str, type], ...] = (
    ("reduce_op", ReduceOptions),
    ("root", RootOptions),
    ("src", PairOptions),
    ("pattern", PatternOptions),
    ("async_op", AsyncOptions),
    ("variant", VariantOptions),
    ("uneven", UnevenOptions),
    ("splits", SplitsOptions),
    ("objects", ObjectsOptions),
    ("monitored", BarrierOptions),
)
"""Mixins with an option that selects them if the op takes it, in the order of help."""


@cache
def options_of(op: Op) -> type[OpOptions]:
    """Return the record of an op's options, with the op's own defaults in their help."""
    mixins = [mixin for name, mixin in MIXINS if name in op.takes]
    size = f"{op.default_size(None)}{RING_SIZE if 'pattern' in op.takes else ''}"
    own: list[tuple[str, Any, Any]] = [
        ("world_size", Annotated[int | None, world_size_option(size)], None)
    ]
    if not op.is_barrier:
        mixins.append(DataOptions)
        default = ",".join(map(str, op.default_shape))
        own.append(("shape", Annotated[Shape | None, shape_option(default)], None))
    if op.root_is:
        does = "sends" if op.root_is == "src" else "receives"
        text = f"Rank that {does}; a group rank if there is a group."
        root = count(text, 0, None, "--root", f"--{op.root_is}", metavar="RANK")
        own.append(("root", Annotated[int, root], 0))
    bases = (OpOptions, *reversed(mixins), WorldOptions)  # the fields of the last base come first
    made = make_dataclass(f"{op.name}_options", own, bases=bases, frozen=True, kw_only=True)
    return cast("type[OpOptions]", made)
