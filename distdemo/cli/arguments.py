"""Normalise argv: aliases, options before the command, missing values."""

from __future__ import annotations

from collections.abc import Container, Sequence

from distdemo import ops
from distdemo.ops.reduction import NAMES as REDUCTIONS

END = "--"
"""Everything after it belongs to the program that ``run`` runs."""
OTHER_NAMES = {
    "--nproc-per-node": "--world-size",  # torchrun
    "-np": "--world-size",  # mpiexec
}
RENAMED = {
    "--size": ("--sizes", "--min-bytes", "--shape"),
    "--idle": ("--stall", "--timeout"),
    "--write": ("--output",),
    "--iterations": ("--iters",),
}
"""Names of options in other programs, and what to suggest: the first that the command has."""
IMPLIED_VALUES = {"--sanitize": "--sanitize=calls", "--no-sanitize": "--sanitize=off"}
"""Meaning of an option without a value, where a value must follow ``=``."""
LIST_OPTIONS = {"--uneven": "--sizes"}
"""Option that takes the list of numbers after this flag: ``--uneven 3,0,7``."""


def normalize_argv(arguments: Sequence[str], commands: Container[str]) -> list[str]:
    """Return the arguments with the command first, and with declared names.

    People also type ``distdemo --format json all_reduce``, ``distdemo help scatter``, ``distdemo
    isend``, ``bench -n 4 links`` and ``--json``.

    Args:
        arguments: Arguments as typed.
        commands: Names of all commands.
    """
    own = own_words(arguments)
    rest = list(arguments[len(own) :])
    index = next((i for i, word in enumerate(own) if _command_words(word, commands)), None)
    if index is None:  # assume that the first word that isn't an option is meant as one
        index = next((i for i, word in enumerate(own) if not word.startswith("-")), None)
    if index is None:
        return [*own, *rest]
    words = _command_words(own[index], commands) or [own[index]]
    others = own[:index] + own[index + 1 :]
    if words == ["help"]:
        return normalize_argv([*others, "--help"], commands)
    words, others = _two_words(words, others, commands)
    if words[0] == "run":  # the parser removes one ``--``, and the program's own stays
        return [*words, *_options(others, words[0]), *([END, *rest] if rest else [])]
    return [*words, *_options(others, words[0]), *rest]


def _command_words(word: str, commands: Container[str]) -> list[str]:
    """Return the command that a word names, with the options that the name implies, or []."""
    dashed = word.replace("_", "-")
    if dashed in commands or word == "help":
        return [dashed]
    if word.startswith("-"):
        return []
    resolved = ops.resolve(word)
    if resolved is None:
        return []
    op, flags = resolved
    return [op.command, *flags]


def _two_words(
    words: list[str], others: list[str], commands: Container[str]
) -> tuple[list[str], list[str]]:
    """Join ``bench links`` into one name, also with options in between."""
    for index, word in enumerate(others):
        if f"{words[0]} {word}" in commands:
            return [f"{words[0]} {word}", *words[1:]], others[:index] + others[index + 1 :]
        if index == 0 and not word.startswith("-"):
            break  # the next word is an argument
    return words, others


def _options(words: Sequence[str], command: str) -> list[str]:
    """Return the options with their declared names, each with the value that it needs."""
    options: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        name = OTHER_NAMES.get(name, name)
        if name == "--op" and (value or following) in REDUCTIONS and command != "check":
            name = "--reduce-op"
        options += ["--format", "json"] if name == "--json" else [name + equals + value]
        options[-1] = IMPLIED_VALUES.get(options[-1], options[-1])
        if name in LIST_OPTIONS and following.replace(",", "").isdigit():
            options.append(LIST_OPTIONS[name])
    return options


def own_words(arguments: Sequence[str]) -> list[str]:
    """Return the arguments before ``--``."""
    return list(arguments[: arguments.index(END)] if END in arguments else arguments)


def last_value(arguments: Sequence[str], option: str) -> str:
    """Return the last value of an option before the arguments are parsed, or an empty string."""
    words = own_words(arguments)
    values = [after for word, after in zip(words, [*words[1:], ""], strict=False) if word == option]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    return values[-1].lower() if values else ""
