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
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise

from distdemo.cli.contract import Result, command
from distdemo.cli.options import Backend, WorldOptions, WorldSize
from distdemo.cli.session import Session
from distdemo.errors import EXIT_INTERRUPTED, UsageError
from distdemo.interactive.ranks import Ranks, configured
from distdemo.interactive.records import CellReport, Settings, ShellReport
from distdemo.view.blocks import Block, Facts, Paragraph
from distdemo.view.format import plural

PROMPT, MORE = ">>> ", "... "
EXIT = re.compile(r"(exit|quit)\s*(\([^()]*\))?;?")
HELP = (
    ("%ranks --only 0,2", "Run the next lines on these ranks; %ranks alone, on all."),
    ("%ranks 8 --backend mpi", "Start a new world, without the variables; --new with the same."),
    ("%trace all-reduce", "Run any other command of distdemo, on separate ranks."),
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

    The ranks stay, with their variables. A line that gets stuck is explained, and new ranks go on
    with copies of the variables. Without a terminal, lines come from standard input, and the exit
    code is 1 if one of them failed.
    """
    from distdemo.interactive import view

    size = session.world_size(options.world_size)
    world = session.world(size, WorldOptions(backend=options.backend))
    settings = Settings(size, world.backend)
    on_output = None if session.shares_output else lambda *_: None
    with closing(Ranks(settings, on_output)) as ranks:
        cells = Shell(session, ranks).run()
    report = ShellReport(ranks.settings.world_size, ranks.settings.backend, tuple(cells))
    ok = session.is_interactive or None
    return Result(report, view.session_view, is_shown=session.shares_output, ok=ok)


class Shell:
    """The loop of the shell."""

    def __init__(self, session: Session, ranks: Ranks) -> None:
        self._session = session
        self._ranks = ranks
        self._reports: list[CellReport] = []

    def run(self) -> list[CellReport]:
        """Run what is typed until its end, and return the report on each cell."""
        self._welcome()
        is_typed = self._session.is_interactive
        lines = typed_lines() if is_typed else self._piped_lines()
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for source in lines:
                if EXIT.fullmatch(source.strip()):
                    break
                try:
                    self._run_one(source)
                    continue
                except BrokenPipeError:
                    raise
                except KeyboardInterrupt:
                    what = "The line was interrupted."
                except Exception as error:  # the variables must not be lost
                    what = str(error)
                self._add(CellReport(source, ok=False, what=what))
        finally:
            signal.signal(signal.SIGINT, handler)
        return self._reports

    def _run_one(self, source: str) -> None:
        """Run one line.

        Raises:
            UsageError: It is no command, or its words don't fit the command.
        """
        if not source.lstrip().startswith("%"):
            self._add(self._ranks.run(f"<shell {len(self._reports) + 1}>", source))
            return
        name, _, words = source.strip()[1:].partition(" ")
        if name == "help":
            self._show(Facts(HELP))
        elif name != "ranks":
            self._run_command(name, words)
        elif configured(self._ranks, words)[1]:
            self._welcome()

    def _add(self, cell: CellReport) -> None:
        from distdemo.interactive import view

        self._reports.append(cell)
        self._show(*view.cell_view(cell))

    def _show(self, *blocks: Block) -> None:
        if self._session.shares_output and not self._session.quiet:
            from distdemo.view.blocks import show_blocks
            from distdemo.view.console import output

            show_blocks(output(), blocks)

    def _welcome(self) -> None:
        settings = self._ranks.settings
        text = (
            f"{plural(settings.world_size, 'rank')} over {settings.backend}. Each line runs on "
            "every rank; rank, world_size, torch and dist are defined. %help lists commands."
        )
        self._show(Paragraph(text))

    def _piped_lines(self) -> Iterator[str]:
        """Yield the statements of standard input, and show them as if they had been typed."""
        for source in piped_statements(sys.stdin.read()):
            if self._session.shares_output and not self._session.quiet:
                shown = f"{PROMPT}{source}".replace("\n", f"\n{MORE}")
                sys.stdout.write(re.sub(" +$", "", shown, flags=re.MULTILINE) + "\n")
                sys.stdout.flush()
            yield source

    def _run_command(self, name: str, words: str) -> None:
        """Run another command of distdemo, in its own process: this one has no torch.

        Raises:
            UsageError: The command failed. It has said why.
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
        if code:
            raise UsageError(f"distdemo {name} {words}".strip() + f" failed with exit code {code}.")


# -------------------------------------------------------------------------------- what is typed


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
    """Yield the commands and the statements of a text, with the comments after them."""
    for part in re.split(r"^(%.*)$", text, flags=re.MULTILINE):
        try:
            tree = ast.parse(part)
        except (SyntaxError, ValueError):  # a command, or an error that the ranks report
            yield part.strip("\n")
            continue
        starts = {
            min(node.lineno for node in [statement, *getattr(statement, "decorator_list", ())])
            for statement in tree.body
        }
        lines = part.splitlines()
        for start, end in pairwise([*sorted(starts), len(lines) + 1]):
            yield "\n".join(lines[start - 1 : end - 1]).rstrip()


def typed_lines() -> Iterator[str]:
    """Yield each statement that is typed, until Ctrl-D."""
    with suppress(ImportError):
        import_module("readline")  # lets input() edit lines and recall earlier ones
    while True:
        try:
            source = input(PROMPT)
            while is_incomplete(source):
                source = f"{source}\n{input(MORE)}"
        except KeyboardInterrupt:
            sys.stdout.write("\nKeyboardInterrupt\n")
            continue
        except EOFError:
            sys.stdout.write("\n")
            return
        if source.strip():
            yield source
