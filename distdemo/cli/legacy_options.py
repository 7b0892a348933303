"""Which options a command takes, and how it gets them: as one dictionary of flags."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from distdemo.bench.fit_options import FIT_OPTIONS
from distdemo.cli.engine_options import ENGINE_OPTIONS
from distdemo.cli.option_kinds import OPERATION, text_option
from distdemo.cli.option_table import OPTIONS
from distdemo.doctor.doctor_options import DOCTOR_OPTIONS
from distdemo.ops.contract import Op

ALL = OPTIONS | ENGINE_OPTIONS | DOCTOR_OPTIONS | FIT_OPTIONS
ENGINE = ("launcher", "nnodes", "node_rank", "master")
WORLD = ("world_size", "backend", "device", "timeout", "start_method", *ENGINE)
HELLO = ("start", *WORLD[1:], "format", "ranks", "quiet", "traceback")
INPUT = ("dtype", "shape", "values", "fill", "seed")
ANY_OP = ("group", "split", "inference")
EXPLAIN = (
    "op",
    "world_size",
    "root",
    "reduce_op",
    "dtype",
    "shape",
    "pattern",
    "variant",
    "objects",
    "format",
)
DOCTOR = ("only_topics", "no_world", "peer", "listen", "listen_seconds", "format", "problems")
FIT = (*FIT_OPTIONS, "format", "quiet")
COMPANIONS = {"uneven": ("sizes",), "reduce_op": ("factor",)}
"""Options that come with another one."""
VIEW = ("format", "ranks", "explain", "quiet", "traceback")


def of_op(op: Op) -> tuple[str, ...]:
    """The options of an op's command."""
    own = [name for taken in sorted(op.takes) for name in (taken, *COMPANIONS.get(taken, ()))]
    given = () if op.meets else INPUT
    return (*own, *ANY_OP, *given, *WORLD, *VIEW)


def flags_of(command: Callable[..., Any]) -> frozenset[str]:
    """Every flag that a command function of ``with_options`` knows."""
    declared = inspect.signature(command).parameters.values()
    options = [parameter.annotation.__metadata__[0] for parameter in declared]
    # typer takes the first flag of an annotation for its default until it looks closer.
    found = (flag for option in options for flag in (option.default, *(option.param_decls or ())))
    return frozenset(flag for flag in found if isinstance(flag, str))


def root_option(torch_name: str) -> tuple[Any, Any]:
    """``--root``, also under the name that torch gives it in this op."""
    does = {"src": "gives", "dst": "receives"}.get(torch_name, "gives or receives")
    names = ("--root", f"--{torch_name}") if torch_name else ("--root",)
    return text_option(*names, panel=OPERATION, metavar="RANK", text=f"The rank that {does}: 0.")


def with_options(
    function: Callable[[dict[str, Any]], None], names: Iterable[str], root_is: str = ""
) -> Callable[..., None]:
    """A command function whose flags are the named options; it gets them as one dictionary."""

    def command(**flags: Any) -> None:  # noqa: ANN401 - typer fills them in by their annotation
        function(flags)

    parameters = []
    for name in names:
        annotation, default = root_option(root_is) if name == "root" else ALL[name]
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command
