"""Which words of a command line are distdemo's own, and which those of a user's program."""

from __future__ import annotations

from collections.abc import Container, Sequence

from distdemo.errors import UsageError

END = "--"
"""What comes after it belongs to the program that ``run`` runs."""


def own(arguments: Sequence[str]) -> list[str]:
    """The words before the first ``--``; all of them if there is none."""
    words = list(arguments)
    return words[: words.index(END)] if END in words else words


def kept_apart(arguments: Sequence[str]) -> list[str]:
    """The same with a second ``--``: the parser takes the first away and leaves the other."""
    ours = own(arguments)
    rest = list(arguments)[len(ours) :]
    return [*ours, END, *rest] if rest else ours


def joined(arguments: Sequence[str], names: Container[str]) -> list[str]:
    """The same with a command of two words, ``bench links``, as the one word that it is known by.

    The second may also come after options: ``bench -n 4 links``.

    Args:
        arguments: the command first.
        names: of all commands.
    """
    words = list(arguments)
    for place, word in enumerate(own(words[1:]), start=1):
        if f"{words[0]} {word}" in names:
            return [f"{words[0]} {word}", *words[1:place], *words[place + 1 :]]
        if place == 1 and not word.startswith("-"):
            break  # what follows at once is an argument
    return words


def foreign(option: str) -> UsageError:
    """``run`` got an option that it does not know: it may be the program's."""
    return UsageError(
        f"run has no option {option}.",
        "If it is your program's own, it comes after --, so that nobody has to guess whose it is.",
        f"Try distdemo run FILE.py -n 4 -- {option} ...; distdemo run --help lists run's options.",
    )
