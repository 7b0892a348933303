"""``distdemo shell``: type Python that runs on every rank."""

from __future__ import annotations

import ast
import codeop
import re
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import pairwise

from distdemo import backends
from distdemo.calls.records import CallCount
from distdemo.calls.text import calls_text
from distdemo.cli.app import is_accepted
from distdemo.cli.commands import COMMANDS, find_command
from distdemo.cli.contract import Result, command
from distdemo.cli.options import Backend, WorldOptions, WorldSize
from distdemo.cli.session import Session
from distdemo.errors import EXIT_INTERRUPTED, EXIT_USAGE, UsageError
from distdemo.interactive.ranks import Ranks, configured
from distdemo.interactive.records import (
    FAILS,
    MORE,
    PROMPT,
    CellReport,
    Settings,
    ShellReport,
)
from distdemo.view.blocks import Block, Facts, Paragraph
from distdemo.view.console import Signs
from distdemo.view.format import plural

EXIT = re.compile(r"(exit|quit)\s*(\([^()]*\))?;?")
ASKS_HELP = re.compile(r"help\s*(\(\s*\))?;?|\?")
CONTINUES = re.compile(r"\s|#|$|[])}]|(elif|else|except|finally|case)\b")
"""Beginning of a line that doesn't begin a statement."""
HELP = (
    ("t = torch.ones(2) * rank", "Run Python on every rank; the variables stay."),
    ("dist.all_reduce(t)", "Show what every rank holds before and after a collective."),
    ("t", "Show every rank's value; t; hides it."),
    ("%ranks --only 0,2", "Run the next lines on these ranks; %ranks alone, on all."),
    ("%ranks 8 --backend mpi", "Start a new world, without the variables; --new with the same."),
    ("%calls", "List the calls of the last line, by rank."),
    ("%trace all-reduce", "Run any other command of distdemo, on separate ranks."),
    ("... # fails", "Mark a line that is meant to fail: it doesn't count as failed."),
    ("exit()", "End the shell, as Ctrl-D does."),
)


@dataclass(frozen=True, kw_only=True)
class ShellOptions:
    """Options of ``distdemo shell``."""

    world_size: WorldSize = None
    backend: Backend = "auto"


@command(
    record="distdemo.interactive.records:ShellReport",
    epilog="Try: distdemo shell; distdemo shell -n 2 --backend mpi; distdemo shell < lesson.py",
)
def shell(session: Session, options: ShellOptions) -> Result:
    """Type Python that runs on every rank (notebooks: %%ranks).

    The ranks stay, with their variables. A line that is a collective shows the data before and
    after it. A line that gets stuck is explained, and new ranks go on with copies of the variables.
    Without a terminal, lines come from standard input, and the exit code is 1 if one of them failed
    that isn't marked with # fails.
    """
    from distdemo.interactive import view

    size = session.world_size(options.world_size)
    world = session.world(size, WorldOptions(backend=options.backend))
    settings = Settings(size, backends.REGISTRY[world.backend].option)
    on_output = None if session.shares_output else lambda *_: None
    lines = typed_lines() if session.is_interactive else piped_statements(session.read_input())
    with closing(Ranks(settings, on_output)) as ranks:
        report = Shell(session, ranks).run(lines)
    ok = session.is_interactive or None
    return Result(report, view.session_view, is_shown=session.shares_output, ok=ok)


class Shell:
    """The loop of the shell."""

    def __init__(self, session: Session, ranks: Ranks) -> None:
        self._session = session
        self._ranks = ranks
        self._cells: list[CellReport] = []
        self._refused: list[CellReport] = []
        self._calls: tuple[CallCount, ...] = ()  # of the last line

    def run(self, lines: Iterable[str]) -> ShellReport:
        """Run statements and commands, and return the report on the session."""
        from distdemo.interactive.view import show_typed

        self._welcome()
        echoes = self._shows and not self._session.is_interactive
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for source in lines:
                if EXIT.fullmatch(source.strip()):
                    break
                if echoes:
                    show_typed(source)
                self._run_one("%help" if ASKS_HELP.fullmatch(source.strip()) else source)
        finally:
            signal.signal(signal.SIGINT, handler)
        settings = self._ranks.settings
        refused = () if self._session.is_interactive else tuple(self._refused)  # they were seen
        return ShellReport(settings.world_size, settings.backend, tuple(self._cells), refused)

    def _run_one(self, source: str) -> None:
        """Run one line or command, and show the result."""
        is_command = source.lstrip().startswith("%")
        try:
            if is_command:
                self._run_command(source)
            else:
                cell = self._ranks.run(f"<shell {len(self._cells) + 1}>", source)
                self._calls = cell.calls
                line = "" if cell.ok or cell.what else meant_command(source)
                hint = f"Commands of distdemo begin with %. Did you mean {line}?"
                self._add(replace(cell, what=hint) if line else cell)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            self._add(CellReport(source, ok=False, what="The line was interrupted."))
        except Exception as error:  # the variables must not be lost
            is_refused = is_command and isinstance(error, UsageError)
            cell = CellReport(source, ok=False, what=str(error))
            self._add(cell, is_refused=is_refused and not cell.expected_to_fail)

    def _run_command(self, source: str) -> None:
        """Run a command: one of the shell, or another one of distdemo.

        Raises:
            UsageError: The words don't fit the command.
        """
        name, _, words = FAILS.split(source)[0].strip()[1:].partition(" ")
        if name == "help":
            self._show(lambda _: [Facts(HELP)])
        elif name == "calls":
            self._show(lambda _: [Paragraph(calls_text(self._calls), verbatim=True)])
        elif name != "ranks":
            self._run_distdemo(source, name, words)
        elif configured(self._ranks, words)[1]:
            self._welcome()

    def _run_distdemo(self, source: str, name: str, words: str) -> None:
        """Run another command of distdemo, in its own process: this one has no torch.

        Raises:
            UsageError: The words have no closing quotation mark.
            KeyboardInterrupt: Ctrl-C ended it.
        """
        shown = None if self._session.shares_output else subprocess.DEVNULL
        handler = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C ends the other process
        try:
            line = [sys.executable, "-m", "distdemo", name, *shlex.split(words)]
            code = subprocess.run(line, stdout=shown, check=False).returncode  # noqa: S603 - this Python and ourselves
        except ValueError as error:
            raise UsageError(f"%{name} {words}: {str(error).lower()}.") from None
        finally:
            signal.signal(signal.SIGINT, handler)
        if code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        what = f"distdemo {name} {words}".strip() + f" failed with exit code {code}."
        cell = CellReport(source, ok=not code, what=what if code else "")
        if code == EXIT_USAGE and not cell.expected_to_fail:  # it has said why
            self._refused.append(cell)
        elif code or cell.expected_to_fail:
            self._add(cell)

    def _add(self, cell: CellReport, *, is_refused: bool = False) -> None:
        """Show the report on a line, and keep it."""
        from distdemo.interactive.view import cell_view

        (self._refused if is_refused else self._cells).append(cell)
        self._show(partial(cell_view, cell))

    @property
    def _shows(self) -> bool:
        """True if standard output has more than the result."""
        return self._session.shares_output and not self._session.quiet

    def _show(self, blocks: Callable[[Signs], Iterable[Block]]) -> None:
        if self._shows:
            from distdemo.view.blocks import show_blocks
            from distdemo.view.console import output, signs

            console = output()
            show_blocks(console, blocks(signs(console)))

    def _welcome(self) -> None:
        settings = self._ranks.settings
        text = (
            f"{plural(settings.world_size, 'rank')} over {settings.backend}. Each line runs on "
            "every rank; rank, world_size, torch and dist are defined. help shows what to type."
        )
        self._show(lambda _: [Paragraph(text)])


# -------------------------------------------------------------------------------- what is typed


def meant_command(line: str) -> str:
    """Return the command that a failed line is, with its %; empty if it is none.

    ``trace list`` and ``distdemo hello`` are commands, ``trace = 1 / 0`` is Python.
    """
    words = line.removeprefix("distdemo ").split()
    if "\n" in line or not words or find_command(words)[0] not in COMMANDS:
        return ""
    with suppress(SyntaxError, ValueError):
        ast.parse(line)
        if len(words) > 1:
            return ""
    asked = [word for word in words if word not in ("--help", "-h")]  # the parser would show it
    return f"%{' '.join(words)}" if is_accepted(asked) else ""


def is_incomplete(source: str) -> bool:
    """Return True if a statement needs more lines; an indented one ends with an empty line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the ranks show them
        try:
            if codeop.compile_command(source, "<shell>", "exec") is None:
                return True
        except (SyntaxError, ValueError, OverflowError):
            return False
    last = source.rpartition("\n")[2]
    return bool(last.strip()) and last.startswith((" ", "\t"))


def piped_statements(text: str) -> Iterator[str]:
    """Yield the commands and the statements of a text, with the comments after them.

    A statement that isn't Python is yielded, too: the ranks report it, and the rest runs.
    """
    for part in re.split(r"^(%.*)$", text, flags=re.MULTILINE):
        if part.startswith("%"):
            yield part
            continue
        lines = part.split("\n")
        while lines:
            right, wrong = _parted(lines)
            yield from _statements(lines[:right])
            if wrong > right:
                yield "\n".join(lines[right:wrong]).strip("\n")
            lines = lines[wrong:]


def _parted(lines: list[str]) -> tuple[int, int]:
    """Return the ends of the lines that are Python, and of the statement after them that isn't."""
    try:
        ast.parse("\n".join(lines))
    except (SyntaxError, ValueError) as error:  # ValueError: it has a null character
        last = getattr(error, "lineno", None) or len(lines)
    else:
        return len(lines), len(lines)
    begins = [number for number, line in enumerate(lines) if not CONTINUES.match(line)]
    right = 0
    for number in reversed(begins):
        if number < last:
            with suppress(SyntaxError, ValueError):
                ast.parse("\n".join(lines[:number]))
                right = number
                break
    return right, next((number for number in begins if number > right), len(lines))


def _statements(lines: list[str]) -> Iterator[str]:
    """Yield the statements in lines of Python."""
    starts = {
        min(node.lineno for node in [statement, *getattr(statement, "decorator_list", ())])
        for statement in ast.parse("\n".join(lines)).body
    }
    for start, end in pairwise([*sorted(starts), len(lines) + 1]):
        yield "\n".join(lines[start - 1 : end - 1]).rstrip()


def typed_lines() -> Iterator[str]:
    """Yield each statement that is typed, until Ctrl-D."""
    with suppress(ImportError):
        import_module("readline")  # lets input() edit lines and recall earlier ones
    while True:
        try:
            source = _typed(PROMPT)
            while is_incomplete(source):
                source = f"{source}\n{_typed(MORE)}"
        except KeyboardInterrupt:
            sys.stdout.write("\nKeyboardInterrupt\n")
            continue
        except EOFError:
            sys.stdout.write("\n")
            return
        if source.strip():
            yield source


def _typed(prompt: str) -> str:
    """Return a line that is typed, and show it again with colours."""
    from distdemo.interactive.view import show_again

    line = input(prompt)
    show_again(line, prompt)
    return line
