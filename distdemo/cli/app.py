"""The Typer app, and the command that a command line names. Commands are imported when invoked."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from distdemo import ops, words
from distdemo.cli.arguments import END, Syntax, own_words
from distdemo.cli.runner import runnable

COLLECTIVES = "Collectives: run one, prove it, see it"
POINT_TO_POINT = "Point to point"
MEASURE = "Measure: how fast, and is that normal"
PROGRAMS = "Your code, and what collectives are for"
AROUND = "Look around"

_OPS = {op.command: op for op in ops.REGISTRY.values()}
COMMANDS: dict[str, tuple[str, str, str]] = {
    **{
        name: (
            "distdemo.demo.command:command_of",
            POINT_TO_POINT if "pattern" in op.takes else COLLECTIVES,
            op.doc.summary,
        )
        for name, op in _OPS.items()
    },
    "bench": (
        "distdemo.bench.command:bench",
        MEASURE,
        "Measure an operation's speed and compare it with the machine's limits.",
    ),
    "bench links": (
        "distdemo.bench.command_links:links",
        MEASURE,
        "Measure every pair of ranks and find slow links and ranks.",
    ),
    "bench compare": (
        "distdemo.bench.command_files:compare",
        MEASURE,
        "Compare two measurements and tell changes from noise.",
    ),
    "bench fit": (
        "distdemo.bench.command_files:fit",
        MEASURE,
        "Fit the α–β model to measured times and predict those of other worlds.",
    ),
    "trace": (
        "distdemo.trace.command:trace",
        COLLECTIVES,
        "Show a collective step by step, with every byte counted.",
    ),
    "trace list": (
        "distdemo.trace.command:list_algorithms",
        COLLECTIVES,
        "List the algorithms with their formulas and sources, or their costs on N ranks.",
    ),
    "run": ("distdemo.run.command:run", PROGRAMS, "Run your own program on every rank."),
    "postmortem": (
        "distdemo.postmortem.command:postmortem",
        PROGRAMS,
        "Name the rank and line at fault, from what a hung or crashed job left behind.",
    ),
    "train": (
        "distdemo.train.command:train",
        PROGRAMS,
        "Train a small classifier on every rank, and prove that the training is data-parallel.",
    ),
    "rpc": (
        "distdemo.rpc.command:rpc",
        PROGRAMS,
        "Call functions on other workers, and take a training step over them (maintenance mode).",
    ),
    "learn": (
        "distdemo.learn.command:learn",
        AROUND,
        "Learn collectives step by step: predict, run, compare.",
    ),
    "shell": (
        "distdemo.interactive.command:shell",
        AROUND,
        "Type Python that runs on every rank.",
    ),
    "hello": (
        "distdemo.demo.command:hello",
        AROUND,
        "Start ranks that introduce themselves: the first thing to try.",
    ),
    "check": (
        "distdemo.check.command:check",
        AROUND,
        "Run the smoke check for CI: every operation, form and type, verified exactly.",
    ),
    "backends": (
        "distdemo.check.command:list_backends",
        AROUND,
        "Try every backend: available or not, why, and how to get it.",
    ),
    "ops": ("distdemo.demo.command:list_ops", AROUND, "List the operations and their forms."),
    "explain": (
        "distdemo.demo.command:explain",
        AROUND,
        "Draw an operation: what each rank holds, what moves where, the cost, the usual mistake.",
    ),
    "mistakes": (
        "distdemo.learn.command:mistakes",
        AROUND,
        "Run common bugs: what each does, what the sanitizer reports, and the fix.",
    ),
    "doctor": (
        "distdemo.doctor.command:doctor",
        AROUND,
        "Check what worlds need: network, memory, torch, MPI, GPUs, environment variables.",
    ),
}
"""Each command's function, help panel and first line of help, by name."""


class _PlainTypes:
    """Mixin that leaves the types of Python out of help: metavars name the values."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters. Help calls this."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # the command's own
        for param in params:
            if param.param_type_name == "argument":  # typer shows its metavar as its name
                param.display_type_rich = lambda ctx: None  # noqa: ARG005 - by name
            elif param.name in ("install_completion", "show_completion"):  # see ``main.run``
                param.metavar = "[SHELL]"
            elif param.metavar is None:
                param.metavar = ""
        return params


class Command(_PlainTypes, TyperCommand):
    """A command."""


class Commands(_PlainTypes, TyperGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order in which help lists them."""
        return command_names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command without options, for the list in help, or None."""
        if cmd_name not in COMMANDS:
            return None
        _, panel, line = COMMANDS[cmd_name]
        return TyperCommand(cmd_name, short_help=_escaped(line), rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that these words start with. Shell completion calls this, too."""
        # Only completion calls this with raw words. Normalising twice would add another ``--``.
        if ctx.resilient_parsing:
            args = normalize_argv(args)
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and typer_command(name), rest


app = typer.Typer(
    name="distdemo",
    cls=Commands,
    help="Collective communication in PyTorch: run it on real ranks, prove it right, see it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="Try: distdemo learn; distdemo all-reduce; distdemo explain scatter",
)


def _version(show: bool) -> None:
    if show:
        from distdemo.versions import versions

        own, torch, python = (versions()[name] for name in ("distdemo", "torch", "python"))
        typer.echo(f"distdemo {own} (torch {torch}, Python {python})")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Show versions.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Declare the options of distdemo itself."""


def command_names() -> list[str]:
    """Return the names of all commands."""
    return list(COMMANDS)


def subcommands(name: str) -> list[str]:
    """Return the names of a command's subcommands: ``links`` of ``bench links``."""
    return [other.split()[1] for other in COMMANDS if other.startswith(f"{name} ")]


@cache
def function_of(name: str) -> Any:
    """Return the function of a command. Those of the ops are made by one function."""
    place = _imported(COMMANDS[name][0])
    return place(_OPS[name]) if name in _OPS else place


def records_of(name: str) -> list[type]:
    """Return the record classes of a command's JSON documents."""
    return [_imported(place) for place in function_of(name).info.record.split()]


def joins(name: str) -> bool:
    """Return True if the command can run as one node of a joined world."""
    return name in COMMANDS and function_of(name).info.joins


@cache
def typer_command(name: str) -> Any:
    """Return the Typer command of this name."""
    function = function_of(name)
    text = _escaped(inspect.cleandoc(function.__doc__ or ""))
    # Typer keeps line breaks within a paragraph, and then wraps the lines again.
    text = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(
        name,
        cls=Command,
        help=text,
        epilog=function.info.epilog,
        context_settings={"help_option_names": ["--help", "-h"]},
    )(runnable(name, function))
    made: Any = typer.main.get_command(single)
    for param in made.params:
        param.help = _escaped(param.help or "")
    return made


def normalize_argv(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the command first, and with declared names.

    People also type ``distdemo --format json all_reduce``, ``distdemo help scatter``, ``distdemo
    isend``, ``p2p ring`` and ``--json``.
    """
    own = own_words(arguments)
    rest = list(arguments[len(own) :])
    index = 0
    if own and own[0].startswith("-"):  # the options are first
        meant = (place for place, word in enumerate(own) if command_words(word))
        index = next(meant, len(own))
    if index == len(own):
        return list(arguments)
    following = own[index + 1 :]
    name, *implied = command_words(own[index]) or [own[index]]
    if following and f"{name} {following[0]}" in COMMANDS:
        name = f"{name} {following.pop(0)}"
    others = [*implied, *own[:index], *following]
    if name == "help":
        return normalize_argv([*others, "--help"])
    if name not in COMMANDS:
        return [name, *others, *rest]
    syntax = Syntax(typer_command(name))
    if syntax.runs_programs and rest:  # the parser removes one ``--``; the program's own stays
        rest = [END, *rest]
    return [name, *syntax.translate(others), *rest]


def command_words(word: str) -> list[str]:
    """Return the command that a word names, with the options that the name implies, or []."""
    dashed = word.replace("_", "-")
    if dashed in COMMANDS or word == "help":
        return [dashed]
    if word.startswith("-"):
        return []
    if word.endswith(words.BENCH_SUFFIX):
        measured = ops.find(word.removesuffix(words.BENCH_SUFFIX))
        return [] if measured is None else ["bench", measured.command]
    resolved = ops.resolve(word)
    if resolved is not None:
        op, flags = resolved
        return [op.command, *flags]
    if dashed in words.COMMANDS:
        return words.COMMANDS[dashed].split()
    if ".py" in (Path(word).suffix, Path(word.rpartition(":")[0]).suffix):
        return ["run", word]
    return []


def options_of(name: str) -> list[str]:
    """Return every option of a command, or those of distdemo itself."""
    made: Any = typer_command(name) if name in COMMANDS else typer.main.get_command(app)
    return [flag for param in made.params for flag in param.opts if flag.startswith("-")]


def commands_with(option: str, command: str) -> list[str]:
    """Return the commands of the same feature that have an option, or of all features.

    To import all features takes longer than most commands. If every operation has the option, they
    are one entry.
    """
    home = COMMANDS[command][0].partition(":")[0] if command in COMMANDS else ""
    beside = [name for name, (place, _, _) in COMMANDS.items() if place.startswith(f"{home}:")]
    names = [name for name in beside if option in options_of(name)]
    names = names or [name for name in COMMANDS if option in options_of(name)]
    if not _OPS.keys() <= set(names):
        return names
    return ["every operation", *(name for name in names if name not in _OPS)]


def _escaped(text: str) -> str:
    """Escape brackets, which Typer would read as markup."""
    return text.replace("[", "\\[")


def _imported(place: str) -> Any:
    """Import ``distdemo.bench.command:bench``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
