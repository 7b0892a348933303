"""The Typer app, and the command that a command line names. Commands are imported when invoked."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from distdemo import ops, words
from distdemo.cli.contract import Result
from distdemo.cli.runner import UNDERSTOOD, runnable
from distdemo.cli.types import unknown_call
from distdemo.errors import UsageError
from distdemo.view.format import listing

LEARN = "Learn"
OPERATIONS = "Operations"
PROGRAM = "Your program"
MACHINE = "This machine"
MORE = "More"
"""Commands that the list in help only names."""
END = "--"
"""Word that the program's arguments follow, for ``PROGRAMS``."""
PROGRAMS = ("run", "parity")
"""Commands that take a program with its arguments."""

_OPS = {op.command: op for op in ops.REGISTRY.values()}
_PANELS: dict[str, dict[str, str]] = {
    LEARN: {
        "learn": "Learn step by step; write exercises, a notebook, slides.",
        "explain": "List the operations, or draw one: data, moves, cost.",
        "shell": "Type Python that runs on every rank (notebooks: %%ranks).",
        "mistakes": "Run common bugs: what each does, the report, and the fix.",
        "trace": "Show a collective step by step, with every byte counted.",
        "train": "Train a model on every rank, and prove it data-parallel.",
    },
    OPERATIONS: {
        "hello": "Start ranks that introduce themselves: try this first.",
        **{name: op.doc.summary for name, op in _OPS.items()},
    },
    PROGRAM: {
        "run": "Run your program on every rank; name the line that hangs it.",
        "parity": "Compare your program on one rank and on N, tensor by tensor.",
        "postmortem": "Find the rank and line at fault after a hang or a crash.",
    },
    MACHINE: {
        "check": "Verify every operation, form and type, with a report for CI.",
        "bench": "Measure an operation and judge it by the machine's limits.",
        "doctor": "Check what worlds need: network, memory, torch, MPI, GPUs.",
        "backends": "Try every backend: available or not, why, and how to get it.",
        "warm": "Keep torch loaded, so that the next commands start faster.",
    },
    MORE: {
        "trace list": "List the algorithms with their formulas and sources, or their costs on N "
        "ranks.",
        "bench links": "Measure every pair of ranks and find slow links and ranks.",
        "bench compare": "Compare two measurements and tell changes from noise.",
        "bench fit": "Fit the α–β model to measured times and predict those of other worlds.",
        "rpc": "Call functions on other workers, and take a training step over them (maintenance "
        "mode).",
    },
}
"""Names of the commands with the first line of their help, by help panel."""
COMMANDS = {name: (panel, line) for panel, lines in _PANELS.items() for name, line in lines.items()}
"""Help panel and first line of help of each command, by name."""
PYTEST = "pytest"
"""Row of the list in help that is no command of distdemo."""
_BY_LETTERS = {words.letters(name): name for name in COMMANDS} | words.COMMANDS
_PLACES = {
    **dict.fromkeys(_OPS, "demo.command:command_of"),
    "bench links": "bench.command:links",
    "bench compare": "bench.command_files:compare",
    "bench fit": "bench.command_files:fit",
    "hello": "demo.command:hello",
    "explain": "demo.command:explain",
    "trace list": "trace.command:list_algorithms",
    "backends": "check.command:list_backends",
    "mistakes": "learn.command:mistakes",
    "shell": "interactive.command:shell",
}
"""Functions of the commands that aren't the function of the same name in their own folder."""


class _PlainTypes:
    """Mixin that leaves the types of Python out of help: metavars name the values."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters. Help calls this."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # the command's own
        for param in params:
            if param.param_type_name == "argument":  # typer shows its metavar as its name
                param.display_type_rich = lambda ctx: None  # noqa: ARG005 - by name
            elif param.metavar is None:
                param.metavar = ""
        return params


class _Collecting:
    """A parser as its options see it, which keeps every value of an option, not only the last."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def add_option(self, *, action: str, **settings: Any) -> None:
        """Add an option to the parser."""
        every = {"store": "append", "store_const": "append_const"}
        self._parser.add_option(action=every.get(action, action), **settings)


class Command(_PlainTypes, TyperCommand):
    """A command, which also takes other names of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            UsageError: An option has two different values.
        """
        normalized = self.normalized(args)
        if not ctx.resilient_parsing:  # the shell completes, or see `format_of`
            self._check_repeated(ctx, args, normalized)
        return super().parse_args(ctx, normalized)

    def _check_repeated(self, ctx: Any, typed: Sequence[str], normalized: Sequence[str]) -> None:
        """Raise `UsageError` for an option that has two values, whatever its names."""
        parser = self.make_parser(ctx)
        single = [
            param
            for param in self.get_params(ctx)
            if param.param_type_name == "option" and not param.multiple
        ]
        for param in single:
            param.add_to_parser(_Collecting(parser), ctx)
        every, _, _ = parser.parse_args(list(normalized))
        for param in single:
            texts = every.get(param.name) or ()
            if len(set(texts)) < 2:
                continue
            try:
                values = [param.process_value(ctx, text) for text in texts]
            except typer.BadParameter as error:
                error.param = param
                raise
            if any(value != values[0] for value in values):
                names = [
                    word.partition("=")[0]
                    for word, meant in zip(typed, normalized, strict=False)
                    if meant.partition("=")[0] in (*param.opts, *param.secondary_opts)
                ]
                names = list(dict.fromkeys(names))
                raise UsageError(
                    f"{param.opts[0]} has different values: {listing(list(map(str, texts)))}.",
                    f"{listing(names)} are names of one option." if len(names) > 1 else "",
                    f"Give {param.opts[0]} once.",
                )

    def normalized(self, args: Sequence[str]) -> list[str]:
        """Return the arguments with the command's own names of its options."""
        end = args.index(END) if END in args else len(args)
        flags = [flag for param in self.params for flag in (*param.opts, *param.secondary_opts)]
        words = [declared(word, flags) for word in args[:end]]
        if END in args and self.name in PROGRAMS:  # the parser removes one "--"
            words.append(END)
        return [*words, *args[end:]]


class Commands(_PlainTypes, TyperGroup):
    """The group of all commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters. Their panel in help would keep the commands off the screen."""
        params = super().get_params(ctx)
        for param in params:
            param.hidden = True
        return params

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order in which help lists them; to completion, all of them."""
        if ctx.resilient_parsing:
            return list(COMMANDS)
        return [*(name for name, (panel, _) in COMMANDS.items() if panel != MORE), PYTEST]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command without options, for the list in help, or None."""
        rows = COMMANDS | {PYTEST: (PROGRAM, words.HINTS[PYTEST].answer)}
        if cmd_name not in rows:
            return None
        panel, line = rows[cmd_name]
        return TyperCommand(cmd_name, short_help=_escaped(line), rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that these words start with, and its arguments.

        Raises:
            UsageError: There is no such command.
        """
        name, flags, rest = find_command(args)
        if name in COMMANDS:
            typed = args[: len(args) - len(rest)]
            ctx.meta[UNDERSTOOD] = " ".join(typed), " ".join([name, *flags])
            return name, typer_command(name), [*flags, *rest]
        if ctx.resilient_parsing:  # the shell completes an unknown command
            return None, None, rest
        choices = " ".join(f"{panel}: {', '.join(lines)}." for panel, lines in _PANELS.items())
        raise unknown_call("command", COMMANDS, name, choices)


app = typer.Typer(
    name="distdemo",
    cls=Commands,
    help="Collective communication in PyTorch: run it on real ranks, verify it, see it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="First: distdemo hello. Then: distdemo learn; distdemo explain scatter\n\n"
    f"{MORE}: {', '.join(_PANELS[MORE])}; COMMAND --help",
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


def subcommands(name: str) -> list[str]:
    """Return the names of a command's subcommands: ``links`` of ``bench links``."""
    return [other.split()[1] for other in COMMANDS if other.startswith(f"{name} ")]


@cache
def function_of(name: str) -> Any:
    """Return the function of a command. Those of the ops are made by one function."""
    own = f"{name.replace(' ', '.')}.command:{name.rsplit(maxsplit=1)[-1]}"
    place = _imported(f"distdemo.{_PLACES.get(name, own)}")
    return place(_OPS[name]) if name in _OPS else place


def records_of(name: str) -> list[type]:
    """Return the record classes of a command's JSON documents."""
    return [_imported(place) for place in function_of(name).info.record.split()]


def result_of(words: Sequence[str]) -> Result:
    """Run a command line in this process and return its result, which isn't shown.

    Raises:
        DistdemoError: The command can't be carried out.
    """
    results: list[Result] = []
    app(args=list(words), obj=results, prog_name="distdemo", standalone_mode=False)
    return results[0]


@cache
def typer_command(name: str) -> Any:
    """Return the Typer command of this name."""
    function = function_of(name)
    text = _escaped(inspect.cleandoc(function.__doc__ or ""))
    # Typer keeps line breaks within a paragraph, and then wraps the lines again.
    text = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    more = [
        f"distdemo {name} {word}: {COMMANDS[f'{name} {word}'][1]}" for word in subcommands(name)
    ]
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(
        name,
        cls=Command,
        help=text,
        epilog="\n\n".join([function.info.epilog, *more]),
        context_settings={"help_option_names": ["--help", "-h"]},
    )(runnable(name, function))
    made: Any = typer.main.get_command(single)
    for param in made.params:
        param.help = _escaped(param.help or "")
    return made


def find_command(args: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Return the command that a command line begins with, options that are implied, and the rest.

    The first word is ``all-reduce``, in any spelling, or another name of a command or an operation.
    """
    word, *rest = args
    resolved = ops.resolve(word)
    name = _BY_LETTERS.get(words.letters(word), word)
    if rest and f"{name} {rest[0].lower()}" in COMMANDS:
        return f"{name} {rest[0].lower()}", [], rest[1:]
    if name in COMMANDS or resolved is None:
        return name, [], rest
    op, flags = resolved
    return op.command, list(flags), rest


def format_of(args: Sequence[str]) -> tuple[str, str]:
    """Return the command and the output format that a command line asks for.

    The command's own parser reads the line and skips what is invalid, or that of hello if there is
    no such command.
    """
    own = list(args[: args.index(END)] if END in args else args)
    starts = (start for start, word in enumerate(own) if find_command([word])[0] in COMMANDS)
    start = next(starts, None)
    if start is None:
        name = own[0] if own else ""
        command, line = "hello", own
    else:
        name, flags, rest = find_command(own[start:])
        command, line = name, [*own[:start], *flags, *rest]
    context = typer_command(command).make_context(
        command,
        line,
        resilient_parsing=True,
        ignore_unknown_options=True,
        allow_extra_args=True,
    )
    return name, context.params.get("format") or "table"


def declared(word: str, flags: Sequence[str]) -> str:
    """Return a word of a command line, with the command's own name if it is an option's other name.

    Args:
        word: ``--world_size=4``, ``-np``, or any other word.
        flags: Names of the command's options.
    """
    name, equals, value = word.partition("=")
    if name in flags:
        return words.IMPLIED_VALUES.get(word, word)
    same = {words.letters(flag): flag for flag in flags if flag.startswith("--")}
    meant = words.OPTIONS.get(name.replace("_", "-"), "")
    if name.startswith("--"):
        meant = same.get(words.letters(name), meant)
    return f"{meant}{equals}{value}" if meant.partition("=")[0] in flags else word


def _escaped(text: str) -> str:
    """Escape brackets, which Typer would read as markup."""
    return text.replace("[", "\\[")


def _imported(place: str) -> Any:
    """Import ``distdemo.bench.command:bench``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
