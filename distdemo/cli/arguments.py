"""Words of a command line: what people type for the options of a command.

A word is replaced only if it can mean one thing (see ``distdemo.words``). All others are left to
the parser, which refuses them, and ``cli.main`` suggests what is close.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import typer

from distdemo import ops, words

END = "--"
"""Everything after it belongs to the program that ``run`` runs."""
SIZE = re.compile(r"\d+(\.\d+)?[kmgt](i?b)?", re.IGNORECASE)
"""A number of bytes with a unit, which can't be a number of ranks."""


class Syntax:
    """Options and arguments of one command, and the words that people type for them.

    Args:
        command: Command of the parser.

    Attributes:
        options: Options by flag.
        runs_programs: True if further words may belong to a program of the user.
    """

    def __init__(self, command: Any) -> None:
        self._context = typer.Context(command)
        self._arguments = [param for param in command.params if param.param_type_name == "argument"]
        self.options = {
            flag: param
            for param in command.params
            if param.param_type_name == "option"
            for flag in (*param.opts, *param.secondary_opts)
        }
        self.runs_programs = command.name == "run"

    def translate(self, given: Sequence[str]) -> list[str]:
        """Return the words with declared names, and options with the values that they need."""
        result: list[str] = []
        following = list(given)
        while following:
            word = following.pop(0)
            if word.startswith("-") and word != "-":
                result += self._option(word, following)
            elif not self.runs_programs:
                result += self._argument(word, following, result)
            elif word not in words.LAUNCHERS or Path(word).exists():
                result.append(word)
        return result

    def meaning(self, name: str) -> list[str]:
        """Return the command's own words for an option; [] if they aren't certain."""
        same = [flag for flag in self.options if _alike(flag, name)]
        if same:
            return [name] if name in same else same[:1]
        table = words.LAUNCHER_OPTIONS if self.runs_programs else words.OPTIONS
        for typed, means in table.items():
            flags = {word.partition("=")[0] for word in means.split() if word.startswith("-")}
            if _alike(typed, name) and flags <= self.options.keys():
                return means.split()
        choices = [] if self.runs_programs else self.with_value(name)
        return choices[0].split() if len(choices) == 1 else []

    def with_value(self, name: str) -> list[str]:
        """Return the options that have a choice of this name: ``--mode ddp`` for ``--ddp``."""
        if name.startswith("-") and not name.startswith("--"):
            return []
        word = name.removeprefix("--").lower()
        op = ops.find(word)
        names = {word, words.VALUES.get(word), op and op.command}
        return [f"{flag} {choice}" for flag, choice in self.choices if choice in names]

    @cached_property
    def choices(self) -> list[tuple[str, str]]:
        """Options with their choices, which are those that completion offers."""
        return [
            (flag, choice)
            for flag, param in self.options.items()
            if flag == param.opts[0]
            for choice in self._offered(param)
        ]

    def _offered(self, param: Any) -> list[str]:
        # typer offers an empty word where the shell completes files.
        return [item.value for item in param.shell_complete(self._context, "") if item.value]

    def _option(self, word: str, following: list[str]) -> list[str]:
        """Return an option with its value, which is removed from the following words."""
        name, equals, value = word.partition("=")
        *before, last = self.meaning(name) or [name]
        if equals:
            return [*before, f"{last}={value}"]
        if last in words.IMPLIED_VALUES and not self._is_value(last, following):
            return [*before, f"{last}={words.IMPLIED_VALUES[last]}"]
        # Of short options in one word, the last may take a value: ``-qn 2``.
        param = self.options.get(last if last.startswith("--") else f"-{last[-1]}")
        if param is None or param.is_flag or not following:
            return [*before, last]
        return [*before, last, following.pop(0)]

    def _is_value(self, flag: str, following: Sequence[str]) -> bool:
        """Return True if the next word is a value of this option."""
        choices = [choice for option, choice in self.choices if option == flag]
        if choices or not following:
            return bool(following) and following[0] in choices
        if self.runs_programs:  # the next word may be the program
            return following[0].isdecimal()
        return not following[0].startswith("-")

    def _argument(self, word: str, following: list[str], before: Sequence[str]) -> list[str]:
        """Return the command's words for one without dashes: ``hello 4``, ``p2p ring``."""
        if self._is_argument(word):
            return [word]
        sizes = self.options.get("--sizes")
        in_bytes = sizes is not None and sizes.metavar == "BYTES"
        flag = ""
        if in_bytes and SIZE.fullmatch(word):
            flag = "--sizes"
        elif word.isdecimal() and not in_bytes:
            flag = "--world-size"
        if flag in self.options and not set(self.options[flag].opts) & set(before):
            return [flag, word]
        option = f"--{word}"
        is_known = len(word) > 1 and self.meaning(option.partition("=")[0])
        return self._option(option, following) if is_known else [word]

    def _is_argument(self, word: str) -> bool:
        """Return True if the command takes this word as an argument."""
        if not self._arguments:
            return False
        offered = self._offered(self._arguments[0])
        resolved = filter(None, map(ops.resolve, word.split(",")))
        names = {word.lower().replace("_", "-"), *(op.command for op, _ in resolved)}
        return not offered or not names.isdisjoint(offered)


def _alike(one: str, other: str) -> bool:
    """Return True for the same option, also with other dashes, but not for ``-N`` and ``-n``."""
    are_long = one.startswith("--") and other.startswith("--")
    return one == other or (are_long and words.letters(one) == words.letters(other))


def own_words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments before ``--``."""
    return list(arguments[: arguments.index(END)] if END in arguments else arguments)


def last_value(arguments: Sequence[str], option: str) -> str:
    """Return the last value of an option before the arguments are parsed, or an empty string."""
    own = own_words(arguments)
    values = [after for word, after in zip(own, [*own[1:], ""], strict=False) if word == option]
    values += [word.partition("=")[2] for word in own if word.startswith(f"{option}=")]
    return values[-1].lower() if values else ""
