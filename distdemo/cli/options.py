"""Options that several commands share, declared once, and the mixins of options records.

A command's options are the fields of one record: an annotated type per field. The record is made
of mixins, so it has exactly the options of its command; ``cli.runner`` gives them to Typer. An
option of a single command is declared next to that command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from distdemo import backends
from distdemo.cli.types import (
    MAX_NUMBER,
    MAX_RANKS,
    Numbers,
    offer,
    one_of,
    parse_seconds,
    parse_sizes,
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

# --------------------------------------------------------------- declarations with variable texts


def option(parser: Callable[[Any], Any], metavar: str, text: str, *flags: str, **more: Any) -> Any:
    """Declare an option with a parser of its value; ``text`` is its help."""
    return typer.Option(*flags, parser=parser, metavar=metavar, help=text, **more)


def choice(
    metavar: str,
    names: Iterable[str],
    text: str,
    aliases: Mapping[str, str] | None = None,
    **more: Any,
) -> Any:
    """Declare an option that takes one of these names or aliases; ``text`` is its help."""
    choices = tuple(names)
    parser = one_of(choices, aliases)
    return option(parser, metavar, text, autocompletion=offer(choices), **more)


def count(
    text: str,
    least: int = 1,
    most: int = MAX_NUMBER,
    *flags: str,
    metavar: str = "N",
    **more: Any,
) -> Any:
    """Declare an option that takes a whole number from ``least`` to ``most``."""
    return option(whole(least, most), metavar, text, *flags, **more)


def with_default(text: str, default: str) -> str:
    """Return help that names a default which the value itself, None, doesn't show."""
    return f"{text} [default: {default}]" if default else text


def world_size_option(default: str = "4") -> Any:
    """Declare ``--world-size``; ``default`` describes its default."""
    return count(with_default("Number of ranks.", default), 1, MAX_RANKS, "--world-size", "-n")


def timeout_option(default: str = "30, more for many ranks") -> Any:
    """Declare ``--timeout``; ``default`` describes its default."""
    text = with_default("Time limit of the whole run.", default)
    return option(parse_seconds, "SECONDS", text, rich_help_panel=ADVANCED)


def stall_option(default: str = "") -> Any:
    """Declare ``--stall``; ``default`` describes its default."""
    text = with_default("Time limit without any progress.", default)
    return option(parse_seconds, "SECONDS", text, rich_help_panel=ADVANCED)


def variant_option(default: str = "") -> Any:
    """Declare ``--variant``; ``default`` describes its default."""
    text = "list (one tensor per rank) or single (one tensor that holds all)."
    return choice("VARIANT", ("list", "single"), with_default(text, default))


_BACKENDS = ("auto", *backends.REGISTRY)
_known_backend = one_of(_BACKENDS)


def parse_backend(value: str) -> str:
    """Return the name of a backend; import the module of ``module:name``.

    Raises:
        BadValue: There is no such backend.
        UsageError: The module can't be imported, or registers no such backend.
    """
    return backends.resolved(value.strip()) if ":" in value else _known_backend(value)


# ------------------------------------------------------------------------------- annotated types

_BACKEND = f"{', '.join(_BACKENDS)}, or module:name, which a module of yours registers. "
_BACKEND += "auto is nccl if every rank has a GPU, else gloo."
_DEVICE = "cpu or cuda; by default the one that suits the backend."
_METHOD = f"{', '.join(METHODS)}. auto is the fastest safe one."
_DTYPE = "Element type: torch's name, or a short one such as f32, bf16, i64."
_REDUCE_OP = f"{', '.join(REDUCTIONS)}. Also mean, and, or, xor."
_PATTERN = "; ".join(map(": ".join, PATTERNS.items())) + "."

WorldSize = Annotated[int | None, world_size_option()]
Backend = Annotated[str, option(parse_backend, "NAME", _BACKEND, autocompletion=offer(_BACKENDS))]
Device = Annotated[str | None, choice("DEVICE", ("cpu", "cuda"), _DEVICE, rich_help_panel=ADVANCED)]
Timeout = Annotated[float | None, timeout_option()]
StartMethod = Annotated[str, choice("METHOD", METHODS, _METHOD, rich_help_panel=ADVANCED)]
DType = Annotated[str, choice("DTYPE", DTYPES, _DTYPE, DTYPE_NAMES)]
ReduceOp = Annotated[str, choice("OP", REDUCTIONS, _REDUCE_OP, REDUCTION_NAMES)]
Root = Annotated[int, count("Root rank.", 0, metavar="RANK")]
Pattern = Annotated[str, choice("PATTERN", PATTERNS, _PATTERN)]
SizeList = Annotated[Numbers | None, option(parse_sizes, "BYTES", "Sizes in bytes: 1K,16M.")]
Excluded = Annotated[
    list[str] | None,
    typer.Option(
        "--except",
        metavar="PATTERN",
        help="Parameters that aren't compared, such as 'experts.*'; repeatable.",
        show_default=False,
    ),
]
Calls = Annotated[bool, typer.Option("--calls", help="Show what each rank called, and how often.")]
# ----------------------------------------------------------------------------------------- mixins


class Options:
    """Base of the options records."""

    @property
    def given(self) -> set[str]:
        """Names of the options that differ from their defaults."""
        options = fields(self)  # type: ignore[arg-type]  # every subclass is a dataclass
        return {option.name for option in options if getattr(self, option.name) != option.default}


@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """Number of ranks."""

    world_size: WorldSize = None


@dataclass(frozen=True, kw_only=True)
class StartOptions(Options):
    """Time limit and start of a world."""

    timeout: Timeout = None
    start_method: StartMethod = "auto"


@dataclass(frozen=True, kw_only=True)
class WorldsOptions(StartOptions):
    """Options of a command that starts worlds of several sizes."""

    backend: Backend = "auto"
    device: Device = None


@dataclass(frozen=True, kw_only=True)
class WorldOptions(WorldsOptions, SizeOptions):
    """Options of every command that starts a world of one size."""


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(Options):
    """User's program."""

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE[:FUNCTION] [-- ARGS]",
            help="Script, or a function in it; put the program's arguments after --.",
            show_default=False,
        ),
    ] = None
    module: Annotated[
        str | None,
        typer.Option(
            "--module",
            "-m",
            metavar="MODULE[:FUNCTION]",
            help="Module instead of a file, as for python -m.",
        ),
    ] = None
    own_group: Annotated[
        bool, typer.Option("--own-group", help="FUNCTION creates the process group itself.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class OutputOptions(Options):
    """Options of every command; the runner adds the formats and suffixes of the command."""

    format: str = "table"
    output: Path | None = None
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print only the verdict.", rich_help_panel=OUTPUT),
    ] = False
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Print more: start method, versions, times, last ranks.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    traceback: Annotated[
        bool,
        typer.Option("--traceback", help="Show the traceback of an error.", rich_help_panel=OUTPUT),
    ] = False


_LAUNCHER = f"What started this process: auto, local (no launcher), {', '.join(ENGINES)}."
_MASTER = "Address of node 0, which opens the port while it runs. [default: port 29500]"
_NODE = "Number of this node; node 0 shows the result."


@dataclass(frozen=True, kw_only=True)
class NodeOptions(Options):
    """Options of commands that can join a world."""

    launcher: Annotated[
        str, choice("NAME", ("auto", "local", *ENGINES), _LAUNCHER, rich_help_panel=NODES)
    ] = "auto"
    nnodes: Annotated[
        int | None, count("Number of nodes that run this command.", rich_help_panel=NODES)
    ] = None
    node_rank: Annotated[int | None, count(_NODE, 0, metavar="NODE", rich_help_panel=NODES)] = None
    master: Annotated[str | None, option(str, "HOST[:PORT]", _MASTER, rich_help_panel=NODES)] = None
