"""Which op is traced, by which algorithms, cut in how many chunks. Needs no torch."""

from __future__ import annotations

from distdemo import ops
from distdemo.cli.parse import unknown, whole
from distdemo.errors import UsageError
from distdemo.ops.contract import Op
from distdemo.trace import algorithms
from distdemo.trace.algorithms.contract import Algorithm
from distdemo.trace.plans import check_chunks

DEFAULT_OP = "all-reduce"


def parse_traced_op(text: str | None) -> Op:
    """The op, all-reduce if none was named.

    Raises:
        UsageError: there is no such op, or it has no algorithm.
    """
    word = text or DEFAULT_OP
    op = ops.find(word)
    commands = [ops.REGISTRY[name].command for name in algorithms.ops()]
    if op is None:
        _refuse_algorithm(word.lower())
        raise unknown("operation", commands, word, "distdemo trace")
    if op.name not in algorithms.ops():
        raise UsageError(
            f"No algorithm of {op.command} is known here.",
            f"Those that have some: {', '.join(commands)}.",
            f"Try distdemo trace {commands[0]}, or distdemo explain {op.command}.",
        )
    return op


def _refuse_algorithm(word: str) -> None:
    """Refuse an algorithm in the place of an op, with the command that was meant."""
    having = [ops.REGISTRY[each.op].command for each in algorithms.REGISTRY if each.name == word]
    if having:
        raise UsageError(
            f"{word} is an algorithm, no operation.",
            f"Done by it: {', '.join(having)}.",
            f"Try distdemo trace {having[0]} --algorithm {word}.",
        )


def parse_algorithms(op: Op, text: str | None) -> tuple[Algorithm, ...]:
    """Those that were named, each once; all of the op if none was.

    Raises:
        UsageError: the op has no such algorithm; says which it has.
    """
    known = {each.name: each for each in algorithms.of_op(op.name)}
    if text is None:
        return tuple(known.values())
    words = [word.strip().lower().replace("_", "-") for word in text.split(",") if word.strip()]
    if not words:
        raise UsageError(
            "--algorithm names nothing.",
            f"{op.command} has: {', '.join(known)}.",
            f"Try --algorithm {next(iter(known))}.",
        )
    for word in words:
        if word not in known:
            raise unknown(f"algorithm of {op.command}", list(known), word, "--algorithm")
    return tuple(known[word] for word in dict.fromkeys(words))


def parse_one_algorithm(op: Op, text: str | None) -> Algorithm:
    """The one that was named, or the op's first.

    Raises:
        UsageError: the op has no such algorithm, or several were named.
    """
    found = parse_algorithms(op, text)
    if text is not None and len(found) > 1:
        raise UsageError(
            f"--algorithm {text}: one at a time.",
            "Rounds are shown of one algorithm; several are compared.",
            f"Try --algorithm {found[0].name}, or add --compare or --simulate.",
        )
    return found[0]


def parse_chunks(found: tuple[Algorithm, ...], text: str | None) -> int | None:
    """In how many chunks; None: as many as the algorithm likes.

    Raises:
        UsageError: none of these algorithms leaves it open, or it is no sensible number.
    """
    if text is None:
        return None
    chunks = whole("--chunks", text, "It counts chunks.", "Try --chunks 8.")
    check_chunks(found, chunks)
    return chunks
