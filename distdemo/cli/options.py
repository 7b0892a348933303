"""Every shared option, declared once; each command takes those that mean something to it.

All arrive as text and are parsed in ``cli.parse``, so that a mistake gets our own message
(what, why, what to try) and never a traceback.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from distdemo import backends, ops
from distdemo.dtypes import DTYPES
from distdemo.ops.reduction import REDUCTIONS

RANKS = "Ranks"
DATA = "Data"
OPERATION = "Operation"
OUTPUT = "Output"


def among(names: Iterable[str]) -> Callable[[str], list[str]]:
    """A shell completion that offers those of the names that begin with what was typed."""
    known = tuple(names)
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


def _text(  # noqa: PLR0913 - an option is declared in one call
    *names: str,
    panel: str,
    metavar: str,
    text: str,
    default: str | None = None,
    offers: Iterable[str] = (),
    kind: Any = str | None,  # noqa: ANN401 - a type or a union of types
) -> tuple[Any, Any]:
    """An option with a value: its annotation and default."""
    option = typer.Option(
        *names,
        metavar=metavar,
        help=text,
        rich_help_panel=panel,
        autocompletion=among(offers) if offers else None,
    )
    return Annotated[kind, option], default


def _flag(*names: str, panel: str, text: str) -> tuple[Any, Any]:
    """An option without a value."""
    return Annotated[bool, typer.Option(*names, help=text, rich_help_panel=panel)], False


_OP_ARGUMENT = typer.Argument(
    metavar="OP",
    help="all-reduce, scatter, ...; distdemo ops lists them.",
    autocompletion=among(op.command for op in ops.REGISTRY.values()),
)

OPTIONS: dict[str, tuple[Any, Any]] = {
    "op": (Annotated[str, _OP_ARGUMENT], inspect.Parameter.empty),
    "world_size": _text(
        "--world-size",
        "-n",
        panel=RANKS,
        metavar="N",
        text="How many ranks to start. By default as many as --values has rows, else 4 (p2p 2).",
    ),
    "backend": _text(
        "--backend",
        "-b",
        panel=RANKS,
        metavar="NAME",
        text="auto (nccl where there is a GPU for every rank, else gloo), "
        + ", ".join(backends.REGISTRY)
        + ".",
        default="auto",
        offers=("auto", *backends.REGISTRY),
        kind=str,
    ),
    "device": _text(
        "--device",
        panel=RANKS,
        metavar="DEVICE",
        text="cpu or cuda; by default what the backend is for.",
        offers=("cpu", "cuda"),
    ),
    "timeout": _text(
        "--timeout",
        panel=RANKS,
        metavar="SECONDS",
        text="When to give up, and say who is missing. By default 30 s; beyond 100 ranks 0.3 s a "
        "rank (with spawn 2 s a rank, for the import of torch in each).",
    ),
    "start_method": _text(
        "--start-method",
        panel=RANKS,
        metavar="METHOD",
        text="auto (the fastest that is safe), fork, forkserver or spawn.",
        default="auto",
        offers=("auto", "fork", "forkserver", "spawn"),
        kind=str,
    ),
    "dtype": _text(
        "--dtype",
        panel=DATA,
        metavar="DTYPE",
        text="Element type, torch's name or a short one: float32 or f32, bf16, int64, ...",
        default="float32",
        offers=DTYPES,
        kind=str,
    ),
    "shape": _text(
        "--shape",
        panel=DATA,
        metavar="SHAPE",
        text="Of one tensor: a number, or 2,3. By default 4.",
    ),
    "values": _text(
        "--values",
        panel=DATA,
        metavar="NUMBERS|FILE",
        text="Your own data, once a rank: --values 1,2,3 --values 4,5,6. Or a file with a line a "
        "rank, or - for standard input. scatter takes the root's pieces.",
        kind=list[str] | None,
    ),
    "fill": _text(
        "--fill",
        panel=DATA,
        metavar="NUMBER|rank",
        text="The same number in every element, or each rank's own number.",
    ),
    "reduce_op": _text(
        "--reduce-op",
        panel=OPERATION,
        metavar="OP",
        text=", ".join(REDUCTIONS) + ".",
        default="sum",
        offers=REDUCTIONS,
        kind=str,
    ),
    "async_op": _flag(
        "--async",
        panel=OPERATION,
        text="Ask for a handle (async_op=True), then wait on it; both are timed.",
    ),
    "src": _text("--src", panel=OPERATION, metavar="RANK", text="The sender: 0."),
    "dst": _text("--dst", panel=OPERATION, metavar="RANK", text="The receiver: 1."),
    "nonblocking": _flag(
        "--nonblocking",
        panel=OPERATION,
        text="isend and irecv: see what the buffer holds before and after the wait.",
    ),
    "pattern": _text(
        "--pattern",
        panel=OPERATION,
        metavar="PATTERN",
        text="pair (src to dst), or ring (each rank to its right neighbour).",
        default="pair",
        offers=("pair", "ring"),
        kind=str,
    ),
    "format": _text(
        "--format",
        panel=OUTPUT,
        metavar="FORMAT",
        text="table or json.",
        default="table",
        offers=("table", "json"),
        kind=str,
    ),
    "ranks": _text(
        "--ranks",
        panel=OUTPUT,
        metavar="LIST",
        text="Which ranks to show: 0,5-7 or all. By default all up to 16, then the first and last "
        "and every rank that failed.",
    ),
    "explain": _flag(
        "--explain",
        panel=OUTPUT,
        text="First draw what the operation does, what it costs, and the usual mistake.",
    ),
    "quiet": _flag("--quiet", "-q", panel=OUTPUT, text="Print the verdict alone."),
    "traceback": _flag(
        "--traceback", panel=OUTPUT, text="Show the traceback of the rank at fault."
    ),
}
"""Annotation and default of each shared option by its Python name."""

WORLD = ("world_size", "backend", "device", "timeout", "start_method")
INPUT = ("dtype", "shape", "values", "fill")
VIEW = ("format", "ranks", "explain", "quiet", "traceback")


def root_option(torch_name: str) -> tuple[Any, Any]:
    """``--root``, also under the name that torch gives it in this op."""
    does = {"src": "gives", "dst": "receives"}.get(torch_name, "gives or receives")
    names = ("--root", f"--{torch_name}") if torch_name else ("--root",)
    return _text(*names, panel=OPERATION, metavar="RANK", text=f"The rank that {does}: 0.")


def with_options(
    function: Callable[[dict[str, Any]], None], names: Iterable[str], root_is: str = ""
) -> Callable[..., None]:
    """A command function whose flags are the named options; it gets them as one dictionary."""

    def command(**flags: Any) -> None:  # noqa: ANN401 - typer fills them in by their annotation
        function(flags)

    parameters = []
    for name in names:
        annotation, default = root_option(root_is) if name == "root" else OPTIONS[name]
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command
