"""Answer an option that a command doesn't have: with the option that is meant, or who has it."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from distdemo import ops, words
from distdemo.cli.app import is_accepted, typer_command
from distdemo.cli.commands import (
    COMMANDS,
    END,
    OF_OPERATION,
    PROGRAMS,
    find_command,
    find_operation,
    suggestion,
)
from distdemo.errors import UsageError
from distdemo.view.format import listing

MOST = 6
"""Commands that an option can belong to; one of more commands isn't looked for elsewhere."""
CLOSE = 0.6
"""Least similarity of two names, from 0 to 1, that is taken for a relation."""
SEPARATOR = 'Put your program\'s options after "--".'


def unknown_option(option: str, context: Any, arguments: Sequence[str]) -> UsageError:
    """Return the error for an option that the command doesn't have.

    The hint is the first of these: another option of the command, the table's own words on this
    option, another command that has it, the table's words on its name, the command's help.

    Args:
        option: Name of the option, as typed.
        context: Context of the parser.
        arguments: The whole command line.
    """
    name = context.info_name
    what = f"{context.command_path} has no option {option}."
    if context.parent is None:
        commands = [word for word in arguments if find_command([word])[0] in COMMANDS][:1]
        rest = [word for word in arguments if word not in commands]
        line = shlex.join(["distdemo", *(commands or ["hello"]), *rest])
        return UsageError(what, "Options follow the command.", f"Try {line}.")
    why = SEPARATOR if name in PROGRAMS else ""
    flags = context.command.flags
    typed = _Typed(option, name, arguments)
    similar = [other for other in words.other_options(option) if other in flags]
    close = [other for other in words.closest(option, flags) if other not in similar]
    for other in () if close else similar:
        for line in typed.corrected(name, other):
            return UsageError(what, why or _help_of(name, other), f"Try {line}.")
    if words.is_own_hint(option) and not (similar or why):
        return UsageError(what, *(suggestion(option) or ()))
    value = option.lstrip("-")
    if not (similar or close) and (flag := context.command.option_with(value)):
        return UsageError(what, _help_of(name, flag), f"Try {context.command_path} {flag} {value}.")
    if similar or close:
        return UsageError(what, why, f"Did you mean {listing([*similar, *close], 'or')}?")
    if why:
        return UsageError(what, " ".join(context.get_usage().split()), why)
    answer = typed.elsewhere() or suggestion(option)
    if answer is not None and answer[1] == f"Try {context.command_path}.":  # typed already
        answer = None
    purpose = context.command.help.partition("\n")[0].replace("\\[", "[")
    by_default = (f"{name}: {purpose}", f"{context.command_path} --help lists its options.")
    return UsageError(what, *(answer or by_default))


def _help_of(name: str, flag: str) -> str:
    """Return the help of a command's option."""
    params = {flag: param for param in typer_command(name).params for flag in param.opts}
    text = str(params[flag].help).partition(" \\[default")[0]
    return f"{flag}: {text}".replace("\\[", "[")


class _Typed:
    """A command line with an option that its command doesn't have.

    Attributes:
        option: Name of the option.
        command: Name of the command.
        operation: Operation that the line names, or "".
        before: Words between the command and the option, without the operation.
        after: Words that follow the option; the first one may be its value.
    """

    def __init__(self, option: str, command: str, arguments: Sequence[str]) -> None:
        self.option = words.spelled(option)
        self.command = command
        _, _, rest = find_command(arguments)
        self.operation = command
        if ops.find(command) is None:
            named = find_operation(rest)
            _, self.operation, _, rest = named or ("", "", [], rest)
        rest = [word for word in rest[: (*rest, END).index(END)] if word not in ("--help", "-h")]
        names = [word.partition("=")[0] for word in rest]
        at = names.index(option) if option in names else len(rest)
        self.before = rest[:at]
        self.after = rest[at + 1 :]
        if "=" in "".join(rest[at : at + 1]):
            self.after.insert(0, rest[at].partition("=")[2])

    def corrected(self, command: str, name: str) -> list[str]:
        """Return the lines with another command or option that its parser accepts, best first.

        Args:
            command: Name of the command.
            name: Its name of the option.
        """
        params = typer_command(command).params
        takes = {param.metavar for param in params if param.param_type_name == "argument"}
        subject = [self.operation] if self.operation and "OP" in takes else []
        if command in PROGRAMS and command != self.command:
            subject = ["train.py"]
        lines = [[*subject, *self.before, name, *self.after]]
        if command != self.command:
            lines += [[*subject, name, *self.after[:1]], [*subject, name]]
        return [
            shlex.join(["distdemo", *command.split(), *line])
            for line in lines
            if is_accepted([*command.split(), *line])
        ]

    def elsewhere(self) -> tuple[str, str] | None:
        """Return which commands have the option, and a line to try; None if there are none."""
        for name in words.other_options(self.option) or [self.option]:
            owners = [owner for owner in COMMANDS if name in typer_command(owner).flags]
            if not 0 < len(owners) <= MOST:
                continue
            ranked = sorted(owners, key=self._distance)
            lines = list(self._lines(ranked, name))
            hint = f"Try {lines[0]}." if lines else f"distdemo {ranked[0]} --help describes it."
            return f"{name} is an option of {listing(owners)}.", hint
        return None

    def _distance(self, owner: str) -> float:
        """Return how far a command is from the typed one; operations are nearer than others."""
        ratio = difflib.SequenceMatcher(None, self.command, owner).ratio()
        return (1 - ratio if ratio > CLOSE else 1) + (ops.find(owner) is None)

    def _lines(self, owners: Sequence[str], name: str) -> Iterator[str]:
        """Yield the lines of these commands that their parsers accept."""
        for owner in owners:
            drawn = f"{self.command} {owner}"
            if self.command in OF_OPERATION and find_operation([owner]) is not None:
                yield from self.corrected(drawn, name)
            yield from self.corrected(owner, name)
