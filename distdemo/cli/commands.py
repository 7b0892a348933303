"""The list of the commands, and the command that a command line names."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from distdemo import ops, words

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
OF_OPERATION = ("explain",)
"""Commands that take the options of the operation that their line names."""

PANELS: dict[str, dict[str, str]] = {
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
        **{op.command: op.doc.summary for op in ops.REGISTRY.values()},
    },
    PROGRAM: {
        "run": "Run your program on every rank; name the line that hangs it.",
        "parity": "Compare your program on one rank and on N, tensor by tensor.",
        "postmortem": "Find the rank and line at fault in a hang (--live) or crash.",
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
COMMANDS = {name: (panel, line) for panel, lines in PANELS.items() for name, line in lines.items()}
"""Help panel and first line of help of each command, by name."""
_BY_LETTERS = {words.letters(name): name for name in COMMANDS} | words.meanings("command")


def subcommands(name: str) -> list[str]:
    """Return the names of a command's subcommands: ``links`` of ``bench links``."""
    return [other.split()[1] for other in COMMANDS if other.startswith(f"{name} ")]


def find_command(args: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Return the command that a command line begins with, options that are implied, and the rest.

    The first word is ``all-reduce``, in any spelling, or another name of a command or an operation.
    """
    word, *rest = args
    name = _BY_LETTERS.get(words.letters(word), word)
    if rest and f"{name} {rest[0].lower()}" in COMMANDS:
        return f"{name} {rest[0].lower()}", [], rest[1:]
    resolved = ops.resolve(word)
    if name in COMMANDS or resolved is None:
        return name, [], rest
    op, form = resolved
    return op.command, form.flags.split(), rest


def find_operation(args: Sequence[str]) -> tuple[str, str, list[str], list[str]] | None:
    """Return the operation that arguments name, or None.

    Returns:
        The word as typed, its operation's command, options that are implied, and the rest.
    """
    end = args.index(END) if END in args else len(args)
    named = [at for at, word in enumerate(args[:end]) if ops.resolve(word) is not None]
    named.sort(key=lambda at: ops.find(args[at]) is None)  # "ring" can be the value of --pattern
    for at in named:
        command, flags, _ = find_command([args[at]])
        return args[at], command, flags, [*args[:at], *args[at + 1 :]]
    return None


def suggestion(name: str, *, is_close: bool = False) -> tuple[str, str] | None:
    """Return what there is for a word of another tool or a wish, and what to try, or None.

    Args:
        name: Word as typed.
        is_close: True to accept a word that is only close to a known one.
    """
    hint = words.hint(name)
    if hint is None and is_close and len(words.letters(name)) > words.LEAST:
        hint = next(map(words.hint, words.closest(name, words.HINTS)), None)
    return None if hint is None else (answer_of(hint), f"Try {hint.instead}.")


def about(name: str) -> tuple[str, str] | None:
    """Return what a word means anywhere in distdemo and what to try, or None.

    It is a topic, a word of another tool or a wish, an operation, an algorithm or a command.
    """
    topic = words.TOPICS.get(words.letters(name))
    if topic is not None:
        return answer_of(topic), f"Try {topic.instead}."
    known = suggestion(name)
    if known is not None:
        return known
    command, _, _ = find_command([name])
    if command not in COMMANDS:
        return None
    line = f"explain {name}" if ops.resolve(name) is not None else f"{command} --help"
    return f"{command}: {COMMANDS[command][1]}", f"Try distdemo {line}."


def answer_to(line: Sequence[str]) -> tuple[str, str] | None:
    """Return the answer to a question and what to try; None for another command line.

    The answer is `about` the first word that means something: ``ring`` in ``what is a ring``.
    """
    opening, *rest = " ".join(line).split()
    if opening.lower() not in words.OPENINGS:
        return None
    answers = (about(word.strip("?!.,\"'")) for word in rest)
    by_default = f"learn: {COMMANDS['learn'][1]}", "Try distdemo learn."
    return next(filter(None, answers), by_default)


def answer_of(hint: words.Word) -> str:
    """Return what there is instead of a word, as a sentence."""
    if hint.answer:
        return hint.answer
    command, _, _ = find_command(shlex.split(hint.instead)[1:])
    return f"{command}: {COMMANDS[command][1]}"
