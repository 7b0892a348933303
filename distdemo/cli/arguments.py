"""Normalise argv: other names, options before the command, missing values.

A word is replaced only if it can mean one thing (see ``distdemo.words``). All others are left to
the parser, which refuses them, and ``cli.main`` suggests what is close.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import typer

from distdemo import ops, words

END = "--"
"""Everything after it belongs to the program that ``run`` runs."""
SIZE = re.compile(r"\d+(\.\d+)?[kmgt](i?b)?", re.IGNORECASE)
"""A number of bytes with a unit, which can't be a number of ranks."""


def normalize_argv(
    arguments: Sequence[str], commands: Collection[str], command_of: Callable[[str], Any]
) -> list[str]:
    """Return the arguments with the command first, and with declared names.

    People also type ``distdemo --format json all_reduce``, ``distdemo help scatter``, ``distdemo
    isend``, ``bench -n 4 links``, ``p2p ring`` and ``--json``.

    Args:
        arguments: Arguments as typed.
        commands: Names of all commands.
        command_of: Function that returns the parser's command of a name.
    """
    own = own_words(arguments)
    rest = list(arguments[len(own) :])
    found, others = _split_command(own, commands)
    if found == ["help"]:
        return normalize_argv([*others, "--help"], commands, command_of)
    if found and found[0] in commands:
        syntax = Syntax(command_of(found[0]))
        found, others = found[:1], syntax.translate([*found[1:], *others])
        if syntax.runs_programs and rest:  # the parser removes one ``--``; the program's own stays
            rest = [END, *rest]
    return [*found, *others, *rest]


# ------------------------------------------------------------------------------------- the command


def _split_command(own: list[str], commands: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the words of the command, [] if there is none, and the other words."""
    while len(own) > 1 and _is_filler(own[0], own[1], commands):
        own = own[1:]
    index: int | None = 0
    if not own or own[0].startswith("-"):  # the options are first
        found = (i for i, word in enumerate(own) if _command_words(word, commands))
        index = next(found, None)
    if index is None:
        return [], own
    others = own[:index] + own[index + 1 :]
    return _two_words(_command_words(own[index], commands) or [own[index]], others, commands)


def _is_filler(word: str, following: str, commands: Collection[str]) -> bool:
    """Return True if a word adds nothing to the command that follows it."""
    if word == "run":  # a file may have the name of an operation
        files = Path(following), Path(f"{following}.py")
        return ops.resolve(following) is not None and not any(each.exists() for each in files)
    return word in words.FILLERS and bool(_command_words(following, commands))


def _command_words(word: str, commands: Collection[str]) -> list[str]:
    """Return the command that a word names, with the options that the name implies, or []."""
    dashed = word.replace("_", "-")
    if dashed in commands or word == "help":
        return [dashed]
    if word.startswith("-"):
        return []
    if word.endswith(words.BENCH_SUFFIX):
        tested = ops.find(word.removesuffix(words.BENCH_SUFFIX))
        return [] if tested is None else ["bench", tested.command]
    resolved = ops.resolve(word)
    if resolved is not None:
        op, flags = resolved
        return [op.command, *flags]
    if dashed in words.COMMANDS:
        return words.COMMANDS[dashed].split()
    if ".py" in (Path(word).suffix, Path(word.rpartition(":")[0]).suffix):
        return ["run", word]
    last = [name for name in commands if name.partition(" ")[2] == dashed]
    return last if len(last) == 1 else []  # ``links`` is ``bench links``


def _two_words(
    found: list[str], others: list[str], commands: Collection[str]
) -> tuple[list[str], list[str]]:
    """Join ``bench links`` into one name, also with options in between."""
    for index, word in enumerate(others):
        if f"{found[0]} {word}" in commands:
            return [f"{found[0]} {word}", *found[1:]], others[:index] + others[index + 1 :]
        if index == 0 and not word.startswith("-"):
            break  # the next word is an argument
    return found, others


# ------------------------------------------------------------------------------------ its options


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
        self._params = command.params
        self.options = {
            flag: each
            for each in self._params
            if not _is_argument(each)
            for flag in (*each.opts, *each.secondary_opts)
        }
        self.runs_programs = command.name == "run"

    def translate(self, given: Sequence[str]) -> list[str]:
        """Return the words with declared names, and each option with the value that it needs."""
        result: list[str] = []
        following = list(given)
        while following:
            word = following.pop(0)
            if word.startswith("-") and word != "-":
                result += self._option(word, following)
            else:
                result += self._argument(word, following, result)
        return result

    def meaning(self, name: str) -> list[str]:
        """Return the command's own words for an option; [] if they aren't certain."""
        if name in self.options:
            return [name]
        if name.startswith("--"):
            same = [flag for flag in self.options if _alike(flag, name)]
            if same:
                return same[:1]
        table = words.LAUNCHER_OPTIONS if self.runs_programs else words.OPTIONS
        for typed, means in table.items():
            if _alike(typed, name) and self._has(means):
                return means.split()
        found = [] if self.runs_programs else self.with_value(name)
        return found[0].split() if len(found) == 1 else []

    def with_value(self, name: str) -> list[str]:
        """Return the options that have a choice of this name: ``--mode ddp`` for ``--ddp``."""
        if name.startswith("-") and not name.startswith("--"):
            return []
        word = name.removeprefix("--").lower()
        op = ops.find(word)
        names = {word, words.VALUES.get(word), op and op.command}
        return [f"{flag} {name}" for flag, name in self.choices if name in names]

    @cached_property
    def choices(self) -> list[tuple[str, str]]:
        """Each option with each of its choices, which are those that completion offers."""
        return [
            (flag, name)
            for flag, each in self.options.items()
            if flag == each.opts[0]
            for name in self._offered(each)
        ]

    def _offered(self, param: Any) -> list[str]:
        # typer offers an empty word where the shell completes files.
        return [each.value for each in param.shell_complete(self._context, "") if each.value]

    def _has(self, means: str) -> bool:
        """Return True if the command has all options among these words."""
        flags = (word.partition("=")[0] for word in means.split() if word.startswith("-"))
        return all(flag in self.options for flag in flags)

    def _takes_value(self, word: str) -> bool:
        """Return True if the next word is the value of this option, or of these short ones."""
        if word in self.options:
            return not self.options[word].is_flag
        flags = [f"-{letter}" for letter in word[1:]]
        if word.startswith("--") or not all(flag in self.options for flag in flags):
            return False
        *before, last = [self.options[flag].is_flag for flag in flags]
        return all(before) and not last

    def _option(self, word: str, following: list[str]) -> list[str]:
        """Return an option with its value, which is removed from the following words."""
        name, equals, value = word.partition("=")
        *before, last = self.meaning(name) or [name]
        if equals:
            return [*before, f"{last}={value}"]
        if last in words.LIST_OPTIONS and following and _is_list(following[0]):
            return [*before, last, words.LIST_OPTIONS[last], following.pop(0)]
        if not self._takes_value(last):
            return [*before, last]
        if last in words.IMPLIED_VALUES and not self._is_value(last, following):
            return [*before, f"{last}={words.IMPLIED_VALUES[last]}"]
        values, following[:] = following[:1], following[1:]
        return [*before, last, *values]

    def _is_value(self, flag: str, following: Sequence[str]) -> bool:
        """Return True if the next word is a value of this option."""
        choices = [name for each, name in self.choices if each == flag]
        if self.runs_programs and not choices:  # the next word may be the program
            return bool(following) and following[0].isdecimal()
        if not following or not choices:
            return bool(following) and not following[0].startswith("-")
        return following[0] in choices

    def _argument(self, word: str, following: list[str], before: Sequence[str]) -> list[str]:
        """Return the command's words for one without dashes: ``hello 4``, ``p2p ring``."""
        if self.runs_programs:
            return [] if word in words.LAUNCHERS and not Path(word).exists() else [word]
        if self._is_argument(word) or word in words.FILLERS:
            return [word]
        sizes = self.options.get("--sizes")
        in_bytes = sizes is not None and sizes.metavar == "BYTES"
        flag = "--sizes" if in_bytes and SIZE.fullmatch(word) else ""
        if word.isdecimal() and not in_bytes:
            flag = "--world-size"
        if flag in self.options and not set(self.options[flag].opts) & set(before):
            return [flag, word]
        option = f"--{word}"
        known = len(word) > 1 and self.meaning(option.partition("=")[0])
        return self._option(option, following) if known else [word]

    def _is_argument(self, word: str) -> bool:
        """Return True if the command takes this word as an argument."""
        argument = next(filter(_is_argument, self._params), None)
        if argument is None:
            return False
        offered = self._offered(argument)
        found = map(ops.resolve, word.split(","))
        names = {word.lower().replace("_", "-"), *(each[0].command for each in found if each)}
        return not offered or not names.isdisjoint(offered)


def _is_argument(param: Any) -> bool:
    return bool(param.param_type_name == "argument")


def _alike(one: str, other: str) -> bool:
    """Return True for the same option, also with other dashes, but not for ``-N`` and ``-n``."""
    long = one.startswith("--") and other.startswith("--")
    return one == other or (long and words.letters(one) == words.letters(other))


def _is_list(word: str) -> bool:
    return word.replace(",", "").isdigit()


def own_words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments before ``--``."""
    return list(arguments[: arguments.index(END)] if END in arguments else arguments)


def last_value(arguments: Sequence[str], option: str) -> str:
    """Return the last value of an option before the arguments are parsed, or an empty string."""
    own = own_words(arguments)
    values = [after for word, after in zip(own, [*own[1:], ""], strict=False) if word == option]
    values += [word.partition("=")[2] for word in own if word.startswith(f"{option}=")]
    return values[-1].lower() if values else ""
