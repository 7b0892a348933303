"""The list of commands, and the app that finds them: a command is imported when it is needed."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from distdemo import ops
from distdemo.cli.arguments import arrange
from distdemo.cli.runner import runnable

COLLECTIVES = "Collectives: run one, prove it, see it"
POINT_TO_POINT = "Point to point"
MEASURE = "Measure: how fast, and is that normal"
PROGRAMS = "Your code, and what collectives are for"
AROUND = "Look around"

COMMANDS: dict[str, tuple[str, str, str]] = {
    **{
        op.command: (
            f"distdemo.demo.command:{op.name}",
            POINT_TO_POINT if "pattern" in op.takes else COLLECTIVES,
            op.words.summary,
        )
        for op in ops.REGISTRY.values()
    },
    "bench": (
        "distdemo.bench.command:bench",
        MEASURE,
        "How fast an operation is, beside what this machine can do.",
    ),
    "bench links": (
        "distdemo.bench.links.command:links",
        MEASURE,
        "Latency and bandwidth between every pair of ranks, and which links or ranks are slow.",
    ),
    "bench compare": (
        "distdemo.bench.compare.command:compare",
        MEASURE,
        "Whether a change between two measurements is real, or noise.",
    ),
    "bench fit": (
        "distdemo.bench.fit.command:fit",
        MEASURE,
        "The α–β model of what was measured, and what other worlds would take by it.",
    ),
    "trace": (
        "distdemo.trace.command:trace",
        COLLECTIVES,
        "How a collective is done, step by step, with every byte counted.",
    ),
    "trace compare": (
        "distdemo.trace.compare.command:compare",
        COLLECTIVES,
        "Run, verify and time an operation's algorithms and the backend's own call.",
    ),
    "trace simulate": (
        "distdemo.trace.compare.command:simulate",
        COLLECTIVES,
        "Count rounds and bytes of an operation's algorithms on paper.",
    ),
    "trace list": (
        "distdemo.trace.command:list_algorithms",
        COLLECTIVES,
        "List the algorithms with their formulas and sources.",
    ),
    "run": ("distdemo.run.command:run", PROGRAMS, "Run your own program on every rank."),
    "sanitize": (
        "distdemo.sanitizer.command:sanitize",
        PROGRAMS,
        "Compare what ranks have recorded, and say which rank and line is at fault.",
    ),
    "train": (
        "distdemo.train.command:train",
        PROGRAMS,
        "Train a small classifier on every rank, and prove that it is data-parallel.",
    ),
    "rpc": (
        "distdemo.rpc.command:rpc",
        PROGRAMS,
        "Call functions on other workers, and train a model over the calls (maintenance mode).",
    ),
    "hello": (
        "distdemo.demo.command:hello",
        AROUND,
        "Start ranks that introduce themselves: the first thing to try.",
    ),
    "check": (
        "distdemo.check.command:check",
        AROUND,
        "The smoke check for CI: every operation, form and type, each verified exactly.",
    ),
    "backends": (
        "distdemo.check.command:list_backends",
        AROUND,
        "Which backends are here, by trying each; why not, and how to get them.",
    ),
    "ops": ("distdemo.demo.command:list_ops", AROUND, "List the operations and their forms."),
    "explain": (
        "distdemo.demo.command:explain",
        AROUND,
        "Draw an operation: what each rank holds, what moves where, the cost, the usual mistake.",
    ),
    "mistakes": (
        "distdemo.mistakes.command:mistakes",
        AROUND,
        "Run the usual mistakes: what comes of each, what the sanitizer says, and the repair.",
    ),
    "doctor": (
        "distdemo.doctor.command:doctor",
        AROUND,
        "What stands in the way: network, memory, torch, MPI, GPUs, variables.",
    ),
}
"""Function, panel of help and first line of help of each command, by its name."""


class Commands(TyperGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - click's, or typer's own copy
        """The names, in the order of help."""
        return names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - likewise
        """What a list says of the command of this name, or None; ``built`` makes the command."""
        if cmd_name not in COMMANDS:
            return None
        _, panel, line = COMMANDS[cmd_name]
        return TyperCommand(cmd_name, short_help=_escaped(line), rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - likewise
        """The command that these words begin with; a shell that completes a line asks here."""
        # Otherwise they have been arranged before: twice, ``run`` would get another ``--``.
        words = arrange(args, names()) if ctx.resilient_parsing else args
        name, _, rest = super().resolve_command(ctx, words)
        return name, name and built(name), rest


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
    text = _escaped(inspect.cleandoc(function.__doc__ or ""))
    # It keeps a paragraph's line breaks, and then breaks its lines again.
    text = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(
        name,
        help=text,
        epilog=function.traits.epilog,
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


def _escaped(text: str) -> str:
    """A text of help; typer would take a bracket for markup of its own."""
    return text.replace("[", "\\[")


def _attribute(place: str) -> Any:  # noqa: ANN401 - a function, or a class
    """``distdemo.bench.command:bench``, imported."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
