"""The list of commands, and the app that finds them: a command is imported when it is needed."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from distdemo import ops
from distdemo.cli.arguments import arrange
from distdemo.cli.runner import runnable

COLLECTIVES = "Collectives: run one, prove it, see it"
POINT_TO_POINT = "Point to point"
MEASURE = "Measure: how fast, and is that normal"
PROGRAMS = "Your code, and what collectives are for"
AROUND = "Look around"

COMMANDS: dict[str, tuple[str, str]] = {
    **{
        op.command: (
            f"distdemo.demo.command:{op.name}",
            POINT_TO_POINT if "pattern" in op.takes else COLLECTIVES,
        )
        for op in ops.REGISTRY.values()
    },
    "bench": ("distdemo.bench.command:bench", MEASURE),
    "bench links": ("distdemo.bench.links.command:links", MEASURE),
    "bench compare": ("distdemo.bench.compare.command:compare", MEASURE),
    "bench fit": ("distdemo.bench.fit.command:fit", MEASURE),
    "trace": ("distdemo.trace.command:trace", COLLECTIVES),
    "run": ("distdemo.run.command:run", PROGRAMS),
    "train": ("distdemo.train.command:train", PROGRAMS),
    "rpc": ("distdemo.rpc.command:rpc", PROGRAMS),
    "hello": ("distdemo.demo.command:hello", AROUND),
    "check": ("distdemo.check.command:check", AROUND),
    "backends": ("distdemo.check.command:list_backends", AROUND),
    "ops": ("distdemo.demo.command:list_ops", AROUND),
    "explain": ("distdemo.demo.command:explain", AROUND),
    "doctor": ("distdemo.doctor.command:doctor", AROUND),
}
"""Function and panel of help of each command, by its name."""


class Commands(TyperGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - click's, or typer's own copy
        """The names, in the order of help."""
        return names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - likewise
        """The command of this name, or None."""
        return built(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - likewise
        """The command that these words begin with; a shell that completes a line asks here."""
        # Otherwise they have been arranged before: twice, ``run`` would get another ``--``.
        words = arrange(args, names()) if ctx.resilient_parsing else args
        return super().resolve_command(ctx, words)


app = typer.Typer(
    name="distdemo",
    cls=Commands,
    help="Collective communication in PyTorch: run it on real ranks, prove it right, see it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="Try: distdemo all-reduce; distdemo explain scatter; distdemo p2p --nonblocking",
)


def _version(wanted: bool) -> None:
    if wanted:
        from distdemo.versions import versions

        found = versions()
        typer.echo(
            f"distdemo {found['distdemo']} (torch {found['torch']}, Python {found['python']})"
        )
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Show versions.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Collective communication in PyTorch: run it on real ranks, prove it right, see it."""


def names() -> list[str]:
    """Of all commands."""
    return list(COMMANDS)


def function_of(name: str) -> Any:  # noqa: ANN401 - a function marked as a command
    """The function of a command."""
    return _attribute(COMMANDS[name][0])


def records_of(name: str) -> list[type]:
    """The classes of records that a command's document is made of: one, or one a mode."""
    return [_attribute(place) for place in function_of(name).traits.record.split()]


def joins(name: str) -> bool:
    """Whether the command of this name can be a part of a world that others start too."""
    return name in COMMANDS and function_of(name).traits.joins


@cache
def built(name: str) -> Any:  # noqa: ANN401 - click's command
    """The command that typer makes of its function."""
    function = function_of(name)
    # Typer's help would take a bracket for markup of its own.
    text = inspect.cleandoc(function.__doc__ or "").replace("[", "\\[")
    # It keeps a paragraph's line breaks, and then breaks its lines again.
    text = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(
        name,
        help=text,
        short_help=text.partition("\n")[0],
        epilog=function.traits.epilog,
        rich_help_panel=COMMANDS[name][1],
        context_settings={"help_option_names": ["--help", "-h"]},
    )(runnable(name, function))
    return typer.main.get_command(alone)


def options_of(name: str) -> list[str]:
    """Every option of a command; empty if there is no such command."""
    return [flag for each in built(name).params for flag in each.opts] if name in COMMANDS else []


def takers(option: str) -> list[str]:
    """The commands that take an option; if every operation does, they are one entry."""
    found = [name for name in COMMANDS if option in options_of(name)]
    every = {op.command for op in ops.REGISTRY.values()}
    if not every <= set(found):
        return found
    return ["every operation", *(name for name in found if name not in every)]


def _attribute(place: str) -> Any:  # noqa: ANN401 - a function, or a class
    """``distdemo.bench.command:bench``, imported."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
