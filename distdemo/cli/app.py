"""The Typer app. Commands are imported when invoked."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from copy import copy
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from distdemo import ops, words
from distdemo.cli.commands import (
    COMMANDS,
    END,
    MORE,
    OF_OPERATION,
    PANELS,
    PROGRAM,
    PROGRAMS,
    answer_to,
    find_command,
    find_operation,
    subcommands,
)
from distdemo.cli.contract import Result
from distdemo.cli.runner import UNDERSTOOD, runnable
from distdemo.cli.types import ParserError, unknown_call
from distdemo.errors import UsageError
from distdemo.view.format import listing

PYTEST = "pytest"
"""Row of the list in help that is no command of distdemo."""
IMPLIED_VALUES = {"--check-replicas": "1", "--sanitize": "calls"}
"""Values of options that may be left out."""
ANY_TEXT = "?"
"""Text that only an option accepts that takes any text."""
_OPTIONS = words.meanings("option")
_OPS = {op.command: op for op in ops.REGISTRY.values()}
_EXPLAINED = {f"explain {name}": op for name, op in _OPS.items()}
_PLACES = {
    **dict.fromkeys(_OPS, "demo.command:command_of"),
    **dict.fromkeys(_EXPLAINED, "demo.command:explain_of"),
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


class Command(TyperCommand):
    """A command, which also takes other names of its options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters. Help names their values by metavars, not by types of Python."""
        params: list[Any] = super().get_params(ctx)
        for param in params:
            if param.param_type_name == "argument":  # its metavar is shown as its name
                param.display_type_rich = lambda ctx: None  # noqa: ARG005 - by name
            elif param.metavar is None:
                param.metavar = ""
        return params

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            UsageError: An option has two different values, or there are too many arguments.
        """
        normalized = self.normalized(args)
        if not ctx.resilient_parsing:  # the shell completes
            self._check_repeated(ctx, args, normalized)
            self._check_listed(ctx, normalized)
        rest = super().parse_args(ctx, normalized)
        if rest and not ctx.resilient_parsing:
            extra = " ".join(rest)
            what = f"Unexpected argument {extra!r}."
            hint = f"{ctx.command_path} --help lists its options."
            if extra.isdecimal() and "-n" in self.flags:
                hint = f"Try {ctx.command_path} -n {extra}."
            elif flag := self.option_with(extra):
                hint = f"Try {ctx.command_path} {flag} {extra}."
            raise UsageError(what, " ".join(ctx.get_usage().split()), hint)
        return rest

    @property
    def flags(self) -> list[str]:
        """Names of the options."""
        return [flag for param in self.params for flag in (*param.opts, *param.secondary_opts)]

    def option_with(self, value: str) -> str:
        """Return the option that has this word among its choices, or ""."""
        options = (param for param in self.params if param.param_type_name == "option")
        return next((param.opts[0] for param in options if self._is_choice(param, value)), "")

    def _is_choice(self, param: Any, text: str) -> bool:
        """Return True if the shell's completion offers this text as the option's value."""
        offered = param.shell_complete(typer.Context(self), text.lower())
        return any(item.type == "plain" and item.value == text.lower() for item in offered)

    def _is_value(self, param: Any, text: str) -> bool:
        """Return True if an option takes this text, and not any text: it is a choice or a number.

        Options without values have no choices, and those that are repeated need none.
        """
        if param.is_flag or param.multiple:
            return False
        flag = param.opts[0]
        is_number = self._takes(flag, text) and not self._takes(flag, ANY_TEXT)
        return is_number or self._is_choice(param, text)

    def _check_listed(self, ctx: Any, line: Sequence[str]) -> None:
        """Raise `UsageError` if the values of an option's list are separated by blanks."""
        line = line[: (*line, END).index(END)]
        options = {flag: param for param in self.params for flag in param.opts}
        for flag, value, word in zip(line, line[1:], line[2:], strict=False):
            param: Any = options.get(flag)
            if param is None or param.param_type_name == "argument" or word.startswith("-"):
                continue
            both = f"{value},{word}"
            is_list = self._is_value(param, value) and self._is_value(param, word)
            if is_list and self._takes(flag, both):
                raise UsageError(
                    f"Unexpected argument {word!r}.",
                    f"The values of {flag} are separated by commas.",
                    f"Try {flag} {both}.",
                )

    def _check_repeated(self, ctx: Any, typed: Sequence[str], normalized: Sequence[str]) -> None:
        """Raise `UsageError` for an option that has two values, whatever its names."""
        parser = self.make_parser(ctx)
        single = [
            param
            for param in self.params
            if param.param_type_name == "option" and not param.multiple
        ]
        for param in single:  # collect every value, not only the last
            collecting = copy(param)
            collecting.multiple = True
            collecting.add_to_parser(parser, ctx)
        texts_of, _, _ = parser.parse_args(list(normalized))
        for param in single:
            texts = list(map(str, texts_of.get(param.name) or ()))
            if len(set(texts)) < 2:
                continue
            names = dict.fromkeys(
                word.partition("=")[0]
                for word, meant in zip(typed, normalized, strict=False)
                if meant.partition("=")[0] in (*param.opts, *param.secondary_opts)
            )
            raise UsageError(
                f"{param.opts[0]} has different values: {listing(texts)}.",
                f"{listing(list(names))} are names of one option." if len(names) > 1 else "",
                f"Give {param.opts[0]} once.",
            )

    def normalized(self, args: Sequence[str]) -> list[str]:
        """Return the arguments with the command's own names of its options, and implied values."""
        end = args.index(END) if END in args else len(args)
        meant = [declared(word, self.flags) for word in args[:end]]
        meant = [
            f"{flag}={IMPLIED_VALUES[flag]}"
            if flag in IMPLIED_VALUES and flag in self.flags and not self._takes(flag, following)
            else flag
            for flag, following in zip(meant, [*meant[1:], ""], strict=False)
        ]
        if END in args and self.name in PROGRAMS:  # the parser removes one "--"
            meant.append(END)
        return [*meant, *args[end:]]

    def _takes(self, flag: str, text: str) -> bool:
        """Return True if this text can be the option's value."""
        param: Any = next(param for param in self.params if flag in param.opts)
        try:
            param.process_value(None, text)
        except (typer.BadParameter, UsageError):
            return False
        return True


class Commands(TyperGroup):
    """The group of all commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters. Their panel in help would keep the commands off the screen."""
        params: list[Any] = super().get_params(ctx)
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
            named = find_operation(rest) if name in OF_OPERATION else None
            if named is not None:
                word, op, flags, rest = named
                ctx.meta[UNDERSTOOD] = word, " ".join([op, *flags])
                name = f"{name} {op}"
            return name, typer_command(name), [*flags, *rest]
        if ctx.resilient_parsing:  # the shell completes an unknown command
            return None, None, rest
        answer = answer_to(args)
        if answer is not None:
            raise UsageError(f"There is no command {name!r}.", *answer)
        choices = " ".join(f"{panel}: {', '.join(lines)}." for panel, lines in PANELS.items())
        raise unknown_call("command", COMMANDS, name, choices)


app = typer.Typer(
    name="distdemo",
    cls=Commands,
    help="Collective communication in PyTorch: run it on real ranks, verify it, see it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
    epilog="First: distdemo hello. Then: distdemo learn; distdemo explain scatter\n\n"
    f"{MORE}: {', '.join(PANELS[MORE])}; COMMAND --help",
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


@cache
def function_of(name: str) -> Any:
    """Return the function of a command. Those of the ops are made by one function."""
    own = f"{name.replace(' ', '.')}.command:{name.rsplit(maxsplit=1)[-1]}"
    place = _imported(f"distdemo.{_PLACES.get(name, own)}")
    op = (_OPS | _EXPLAINED).get(name)
    return place if op is None else place(op)


def records_of(name: str) -> list[type]:
    """Return the record classes of a command's JSON documents."""
    return [_imported(place) for place in function_of(name).info.record.split()]


def result_of(words: Sequence[str]) -> Result:
    """Run a command line in this process and return its result, which isn't shown.

    Raises:
        DistdemoError: The command can't be carried out.
    """
    result: Result = app(args=[*words], obj=True, prog_name="distdemo", standalone_mode=False)
    return result


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
        context_settings={"help_option_names": ["--help", "-h"], "allow_extra_args": True},
    )(runnable(name if name in COMMANDS else name.split(maxsplit=1)[0], function))
    made: Any = typer.main.get_command(single)
    for param in made.params:
        param.help = _escaped(param.help or "")
    return made


def is_accepted(args: Sequence[str]) -> bool:
    """Return True if the parser accepts a command line."""
    group: Any = typer.main.get_command(app)
    try:
        name, found, rest = group.resolve_command(typer.Context(group), list(args))
        found.make_context(name, rest)
    except (ParserError, UsageError, typer.Exit):
        return False
    return True


def requested(args: Sequence[str]) -> tuple[str, str]:
    """Return the command that a command line asks for, or its first word, and the output format."""
    own = list(args[: args.index(END)] if END in args else args)
    names = (find_command(own[start:])[0] for start in range(len(own)))
    name = next((name for name in names if name in COMMANDS), (*own, "")[0])
    formats = ["table"]
    for word, following in zip(own, [*own[1:], ""], strict=True):
        flag, equals, value = declared(word, ["--format"]).partition("=")
        if flag == "--format":
            formats.append(value if equals else following)
    return name, formats[-1].lower()


def declared(word: str, flags: Sequence[str]) -> str:
    """Return a word of a command line, with the command's own name if it is an option's other name.

    Args:
        word: ``--world_size=4``, ``-np``, or any other word.
        flags: Names of the command's options.
    """
    name, equals, value = word.partition("=")
    if name in flags:
        return word
    same = {words.letters(flag): flag for flag in flags if flag.startswith("--")}
    meant = _OPTIONS.get(name.replace("_", "-"), "")
    if any(flag.startswith(name) for flag in flags):  # --size may be a typo of --sizes
        meant = ""
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
