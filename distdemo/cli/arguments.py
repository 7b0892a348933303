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
ALONE = {"--sanitize": "--sanitize=calls", "--no-sanitize": "--sanitize=off"}
"""Meaning of an option without a value, where a value must follow ``=``."""
FOLLOWED_BY = {"--uneven": "--sizes"}
"""Option that takes the list of numbers after this flag: ``--uneven 3,0,7``."""


def normalize_argv(arguments: Sequence[str], commands: Container[str]) -> list[str]:
    """Return the arguments with the command first, and with declared names.

    People also type ``distdemo --format json all_reduce``, ``distdemo help scatter``, ``distdemo
    isend``, ``bench -n 4 links`` and ``--json``.

    Args:
        arguments: Arguments as typed.
        commands: Names of all commands.
    """
    own = list(arguments[: arguments.index(END)] if END in arguments else arguments)
    rest = list(arguments[len(own) :])
    place = next((at for at, word in enumerate(own) if _named(word, commands)), None)
    if place is None:  # assume that the first word that isn't an option is meant as one
        place = next((at for at, word in enumerate(own) if not word.startswith("-")), None)
    if place is None:
        return [*own, *rest]
    words = _named(own[place], commands) or [own[place]]
    others = own[:place] + own[place + 1 :]
    if words == ["help"]:
        return normalize_argv([*others, "--help"], commands)
    words, others = _two_words(words, others, commands)
    if words[0] == "run":  # the parser removes one ``--``, and the program's own stays
        return [*words, *_options(others, words[0]), *([END, *rest] if rest else [])]
    return [*words, *_options(others, words[0]), *rest]


def _named(word: str, commands: Container[str]) -> list[str]:
    """Return the command that a word names, with the options that the name implies, or []."""
    dashed = word.replace("_", "-")
    if dashed in commands or word == "help":
        return [dashed]
    if word.startswith("-"):
        return []
    found = ops.resolve(word)
    return [] if found is None else [found[0].command, *found[1]]


def _two_words(
    words: list[str], others: list[str], commands: Container[str]
) -> tuple[list[str], list[str]]:
    """Join ``bench links`` into one name, also with options in between."""
    for place, word in enumerate(others):
        if f"{words[0]} {word}" in commands:
            return [f"{words[0]} {word}", *words[1:]], others[:place] + others[place + 1 :]
        if place == 0 and not word.startswith("-"):
            break  # the next word is an argument
    return words, others


def _options(words: Sequence[str], command: str) -> list[str]:
    """Return the options with their declared names, each with the value that it needs."""
    found: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        name = OTHER_NAMES.get(name, name)
        if name == "--op" and (value or following) in REDUCTIONS and command != "check":
            name = "--reduce-op"
        found += ["--format", "json"] if name == "--json" else [name + equals + value]
        found[-1] = ALONE.get(found[-1], found[-1])
        if name in FOLLOWED_BY and following.replace(",", "").isdigit():
            found.append(FOLLOWED_BY[name])
    return found


def last_value(arguments: Sequence[str], option: str) -> str:
    """Return the last value of an option before the arguments are parsed, or an empty string."""
    own = list(arguments[: arguments.index(END)] if END in arguments else arguments)
    given = [after for word, after in zip(own, [*own[1:], ""], strict=False) if word == option]
    given += [word.partition("=")[2] for word in own if word.startswith(f"{option}=")]
    return given[-1].lower() if given else ""
