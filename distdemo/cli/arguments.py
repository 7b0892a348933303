"""What people type, in the parser's own terms: other orders, other names, values left out."""

from __future__ import annotations

from collections.abc import Container, Sequence

from distdemo import ops
from distdemo.ops.reduction import NAMES as REDUCTIONS

END = "--"
"""What comes after it belongs to the program that ``run`` runs."""
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
"""Other programs' and old names of options, and what to offer: the first that the command has."""
ALONE = {"--sanitize": "--sanitize=calls", "--no-sanitize": "--sanitize=off"}
"""What an option stands for that was given without a value, and whose value follows a ``=``."""
FOLLOWED_BY = {"--uneven": "--sizes"}
"""The option that a list of numbers after this flag is the value of: ``--uneven 3,0,7``."""


def arrange(arguments: Sequence[str], commands: Container[str]) -> list[str]:
    """The command first, under the name that it is known by, and options as they are declared.

    ``distdemo --format json all_reduce``, ``distdemo help scatter``, ``distdemo isend``, ``bench -n
    4 links`` and ``--json`` are what people type, too.

    Args:
        arguments: as they were typed.
        commands: the names of all commands.
    """
    own = list(arguments[: arguments.index(END)] if END in arguments else arguments)
    rest = list(arguments[len(own) :])
    place = next((at for at, word in enumerate(own) if _named(word, commands)), None)
    if place is None:  # the first word that is not an option is meant to be one
        place = next((at for at, word in enumerate(own) if not word.startswith("-")), None)
    if place is None:
        return [*own, *rest]
    words = _named(own[place], commands) or [own[place]]
    others = own[:place] + own[place + 1 :]
    if words == ["help"]:
        return arrange([*others, "--help"], commands)
    words, others = _two_words(words, others, commands)
    if words[0] == "run":  # the parser takes one ``--`` away, and the program's own stays
        return [*words, *_options(others, words[0]), *([END, *rest] if rest else [])]
    return [*words, *_options(others, words[0]), *rest]


def _named(word: str, commands: Container[str]) -> list[str]:
    """The command that a word names, with the options that the name stands for; or nothing."""
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
    """``bench links`` as the one name that it is known by, also with options in between."""
    for place, word in enumerate(others):
        if f"{words[0]} {word}" in commands:
            return [f"{words[0]} {word}", *words[1:]], others[:place] + others[place + 1 :]
        if place == 0 and not word.startswith("-"):
            break  # what follows at once is an argument
    return words, others


def _options(words: Sequence[str], command: str) -> list[str]:
    """The options under the names that they are declared by, each with a value that it needs."""
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
    """What an option was given last, before the arguments are parsed; empty: nothing."""
    own = list(arguments[: arguments.index(END)] if END in arguments else arguments)
    given = [after for word, after in zip(own, [*own[1:], ""], strict=False) if word == option]
    given += [word.partition("=")[2] for word in own if word.startswith(f"{option}=")]
    return given[-1].lower() if given else ""
