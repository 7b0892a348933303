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


def _text(*names: str, panel: str, metavar: str, text: str, **more: Any) -> Any:  # noqa: ANN401 - typer's own type
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **more)


OPTIONS: dict[str, tuple[Any, Any]] = {
    "op": (
        Annotated[
            str,
            typer.Argument(
                metavar="OP",
                help="all-reduce, scatter, ...; distdemo ops lists them.",
                autocompletion=among(op.command for op in ops.REGISTRY.values()),
            ),
        ],
        inspect.Parameter.empty,
    ),
    "world_size": (
        Annotated[
            str | None,
            _text("--world-size", "-n", panel=RANKS, metavar="N", text="How many ranks to start."),
        ],
        None,
    ),
    "backend": (
        Annotated[
            str,
            _text(
                "--backend",
                "-b",
                panel=RANKS,
                metavar="NAME",
                text="auto (nccl where there is a GPU for every rank, else gloo), "
                + ", ".join(backends.REGISTRY)
                + ".",
                autocompletion=among(("auto", *backends.REGISTRY)),
            ),
        ],
        "auto",
    ),
    "device": (
        Annotated[
            str | None,
            _text(
                "--device",
                panel=RANKS,
                metavar="DEVICE",
                text="cpu or cuda; by default what the backend is for.",
                autocompletion=among(("cpu", "cuda")),
            ),
        ],
        None,
    ),
    "timeout": (
        Annotated[
            str | None,
            _text(
                "--timeout",
                panel=RANKS,
                metavar="SECONDS",
                text="When to give up, and say who is missing. By default 30 s, and 0.3 s a rank "
                "beyond 100 ranks.",
            ),
        ],
        None,
    ),
    "start_method": (
        Annotated[
            str,
            _text(
                "--start-method",
                panel=RANKS,
                metavar="METHOD",
                text="auto (the fastest that is safe), fork, forkserver or spawn.",
                autocompletion=among(("auto", "fork", "forkserver", "spawn")),
            ),
        ],
        "auto",
    ),
    "dtype": (
        Annotated[
            str,
            _text(
                "--dtype",
                panel=DATA,
                metavar="DTYPE",
                text="Element type, torch's name or a short one: float32 or f32, bf16, int64, ...",
                autocompletion=among(DTYPES),
            ),
        ],
        "float32",
    ),
    "shape": (
        Annotated[
            str | None,
            _text(
                "--shape",
                panel=DATA,
                metavar="SHAPE",
                text="Of one tensor: a number, or 2,3. By default 4.",
            ),
        ],
        None,
    ),
    "values": (
        Annotated[
            list[str] | None,
            _text(
                "--values",
                panel=DATA,
                metavar="NUMBERS|FILE",
                text="Your own data, once a rank: --values 1,2,3 --values 4,5,6. Or a file with a "
                "line a rank, or - for standard input.",
            ),
        ],
        None,
    ),
    "fill": (
        Annotated[
            str | None,
            _text(
                "--fill",
                panel=DATA,
                metavar="NUMBER|rank",
                text="The same number in every element, or each rank's own number.",
            ),
        ],
        None,
    ),
    "reduce_op": (
        Annotated[
            str,
            _text(
                "--reduce-op",
                panel=OPERATION,
                metavar="OP",
                text=", ".join(REDUCTIONS) + ".",
                autocompletion=among(REDUCTIONS),
            ),
        ],
        "sum",
    ),
    "async_op": (
        Annotated[
            bool,
            typer.Option(
                "--async",
                help="Ask for a handle (async_op=True), then wait on it; both are timed.",
                rich_help_panel=OPERATION,
            ),
        ],
        False,
    ),
    "src": (
        Annotated[
            str | None, _text("--src", panel=OPERATION, metavar="RANK", text="The sender: 0.")
        ],
        None,
    ),
    "dst": (
        Annotated[
            str | None, _text("--dst", panel=OPERATION, metavar="RANK", text="The receiver: 1.")
        ],
        None,
    ),
    "nonblocking": (
        Annotated[
            bool,
            typer.Option(
                "--nonblocking",
                help="isend and irecv: see what the buffer holds before and after the wait.",
                rich_help_panel=OPERATION,
            ),
        ],
        False,
    ),
    "pattern": (
        Annotated[
            str,
            _text(
                "--pattern",
                panel=OPERATION,
                metavar="PATTERN",
                text="pair (src to dst), or ring (each rank to its right neighbour).",
                autocompletion=among(("pair", "ring")),
            ),
        ],
        "pair",
    ),
    "format": (
        Annotated[
            str,
            _text(
                "--format",
                panel=OUTPUT,
                metavar="FORMAT",
                text="table or json.",
                autocompletion=among(("table", "json")),
            ),
        ],
        "table",
    ),
    "ranks": (
        Annotated[
            str | None,
            _text(
                "--ranks",
                panel=OUTPUT,
                metavar="LIST",
                text="Which ranks to show: 0,5-7 or all. By default all up to 16, then the first "
                "and last and every rank that failed.",
            ),
        ],
        None,
    ),
    "explain": (
        Annotated[
            bool,
            typer.Option(
                "--explain",
                help="First draw what the operation does, what it costs, and the usual mistake.",
                rich_help_panel=OUTPUT,
            ),
        ],
        False,
    ),
    "quiet": (
        Annotated[
            bool,
            typer.Option(
                "--quiet",
                "-q",
                help="Print the verdict alone.",
                rich_help_panel=OUTPUT,
            ),
        ],
        False,
    ),
    "traceback": (
        Annotated[
            bool,
            typer.Option(
                "--traceback",
                help="Show the traceback of the rank at fault.",
                rich_help_panel=OUTPUT,
            ),
        ],
        False,
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
    text = f"The rank that {does}: 0."
    option = _text(*names, panel=OPERATION, metavar="RANK", text=text)
    return Annotated[str | None, option], None


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
