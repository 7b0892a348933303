"""``distdemo shell``: type Python that runs on every rank."""

from __future__ import annotations

import codeop
import re
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distdemo.cli.contract import Result, command
from distdemo.cli.options import Backend, WorldOptions, WorldSize
from distdemo.cli.session import Session
from distdemo.errors import EXIT_INTERRUPTED, EXIT_USAGE, DistdemoError, UsageError
from distdemo.files import read_file
from distdemo.interactive.records import Calls, Cell, CellReport, Settings, ShellReport
from distdemo.view.blocks import Block, Facts, Paragraph
from distdemo.view.format import plural

if TYPE_CHECKING:
    from distdemo.interactive.ranks import Ranks

PROMPT, MORE = ">>> ", "... "
INDENT = "    "
CONTINUES = re.compile(r"(elif|else|except|finally)\b")
EXIT = re.compile(r"(exit|quit)\s*(\([^()]*\))?;?")
HISTORY = "~/.local/state/distdemo/shell_history"
LABEL = 14  # characters of ``ranks 0-1, 3`` before a value
COMMANDS = {
    "only": ("%only 0,2", "Run the next lines on these ranks; %only alone, on all."),
    "world": ("%world 8", "Start a new world of 8 ranks, without the variables."),
    "backend": ("%backend mpi", "Start a new world over this backend, without the variables."),
    "reset": ("%reset", "Start new ranks with the same settings, without the variables."),
    "calls": ("%calls", "List the calls of this world."),
    "trace": ("%trace", "Draw the last collective as rounds, with example data."),
    "load": ("%load 'my lesson.py'", "Run a file of plain Python on the ranks."),
    "mistake": ("%mistake order", "Run one of `distdemo mistakes` on separate ranks."),
    "help": ("%help", "List these commands; exit() or Ctrl-D ends the shell."),
}
"""An example of each command, and what it does."""


@dataclass(frozen=True, kw_only=True)
class ShellOptions:
    """Options of ``distdemo shell``."""

    world_size: WorldSize = None
    backend: Backend = "auto"
    sanitize: Annotated[
        bool, typer.Option("--sanitize/--no-sanitize", help="Compare the ranks' calls.")
    ] = True


@command(
    record="distdemo.interactive.records:ShellReport",
    epilog="Try: distdemo shell; distdemo shell -n 2 --backend mpi; distdemo shell < lesson.py",
)
def shell(session: Session, options: ShellOptions) -> Result:
    """Type Python that runs on every rank.

    The ranks stay, with their variables. A line that gets stuck is explained, and new ranks go on
    with copies of the variables. Without a terminal, lines come from standard input, and the exit
    code is 1 if one of them failed.
    """
    from distdemo.interactive import view
    from distdemo.interactive.ranks import Ranks

    size = session.world_size(options.world_size)
    world = session.world(size, WorldOptions(backend=options.backend))
    settings = Settings(size, world.backend, options.sanitize)
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
        self._only: frozenset[int] | None = None
        self._reports: list[CellReport] = []

    def run(self) -> list[CellReport]:
        """Run what is typed until its end, and return the report on each cell."""
        self._welcome()
        is_typed = self._session.is_interactive
        lines = typed_lines(self._complete) if is_typed else self._piped_lines()
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
                except (DistdemoError, RuntimeError) as error:
                    what = str(error)
                except Exception as error:  # the variables must not be lost
                    what = f"{type(error).__name__}: {error}"
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
            self._run_cell(f"<shell {len(self._reports) + 1}>", source)
            return
        try:
            name, *words = shlex.split(source.strip()[1:]) or [""]
        except ValueError as error:
            raise UsageError(f"{source.strip()}: {str(error).lower()}.") from None
        if name not in COMMANDS:
            raise UsageError(f"%{name}: there is no such command.", "", "Try %help.")
        act = getattr(self, f"_do_{name}")
        parameters = signature(act).parameters.values()
        required = sum(parameter.default == parameter.empty for parameter in parameters)
        if not required <= len(words) <= len(parameters):
            count = "one word" if required else "at most one word"
            takes = f"{count}, as in {COMMANDS[name][0]}" if parameters else "no words"
            raise UsageError(f"%{name} takes {takes}.")
        act(*words)

    def _run_cell(self, file: str, source: str) -> None:
        from distdemo.view.console import output

        cell = Cell(file, source, self._only)
        if self._session.is_interactive:
            cell = replace(cell, width=max(40, output().width - LABEL))
        self._add(self._ranks.run(cell))

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

    def _complete(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix."""
        if prefix.startswith("%"):
            return [f"%{name}" for name in COMMANDS if name.startswith(prefix[1:])]
        before, dot, start = prefix.rpartition(".")
        try:
            names = self._ranks.pull(f"dir({before})" if dot else "[*globals()]")[0]
        except (DistdemoError, RuntimeError):
            return []
        return sorted(f"{before}{dot}{name}" for name in names if name.startswith(start))

    def _piped_lines(self) -> Iterator[str]:
        """Yield the statements of standard input, and show them as if they had been typed."""
        for lines in piped_statements(sys.stdin):
            if self._session.shares_output and not self._session.quiet:
                for line, prompt in zip(lines, [PROMPT, *[MORE] * len(lines)], strict=False):
                    sys.stdout.write(f"{prompt}{line}".rstrip() + "\n")
                sys.stdout.flush()
            yield "\n".join(lines)

    # ------------------------------------------------------------------------------ commands

    def _do_only(self, ranks: str = "") -> None:
        self._only = self._ranks.parse(ranks) if ranks else None

    def _do_world(self, size: str) -> None:
        if not size.isdecimal():
            raise UsageError(f"%world {size}: that isn't a number of ranks.")
        self._start(replace(self._ranks.settings, world_size=int(size)))

    def _do_backend(self, name: str) -> None:
        self._start(replace(self._ranks.settings, backend=name))

    def _do_reset(self) -> None:
        self._start(self._ranks.settings)

    def _start(self, settings: Settings) -> None:
        self._ranks.ask(settings)
        self._only = None
        self._welcome()

    def _do_calls(self) -> None:
        from distdemo.calls.text import calls_text

        calls, _ = self._ranks.ask(Calls())
        text = calls_text(calls) if calls else "These ranks have made no call yet."
        self._show(Paragraph(text, verbatim=True))

    def _do_trace(self) -> None:
        _, last_call = self._ranks.ask(Calls())
        if not last_call:
            raise UsageError("This world has made no call yet.", "", "Try dist.all_reduce(t).")
        op = last_call.partition(" ")[0].replace("_", "-")
        self._run_command("trace", op, "-n", str(self._ranks.settings.world_size))

    def _do_mistake(self, name: str) -> None:
        self._run_command("mistakes", name)

    def _run_command(self, *words: str) -> None:
        """Run another command of distdemo, in its own process: this one has no torch.

        Raises:
            UsageError: The command failed. It has said why.
            KeyboardInterrupt: Ctrl-C ended it.
        """
        shown = None if self._session.shares_output else subprocess.DEVNULL
        handler = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C ends the other process
        try:
            done = subprocess.run(  # noqa: S603 - this Python and ourselves
                [sys.executable, "-m", "distdemo", *words], stdout=shown, check=False
            )
        finally:
            signal.signal(signal.SIGINT, handler)
        if done.returncode == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if done.returncode:
            what = "can't be carried out" if done.returncode == EXIT_USAGE else "failed"
            raise UsageError(f"distdemo {shlex.join(words)} {what}.")

    def _do_load(self, name: str) -> None:
        try:
            file = Path(name).expanduser().resolve()
            source = read_file(file).decode("utf-8-sig")
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(f"{name} can't be read.", f"{error}.") from error
        self._run_cell(str(file), source)

    def _do_help(self) -> None:
        self._show(Facts(tuple(COMMANDS.values())))


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


def piped_statements(file: Iterator[str]) -> Iterator[list[str]]:
    """Yield the lines of each statement; a block ends before a line that doesn't continue it."""
    lines: list[str] = []
    for line in file:
        text = line.rstrip("\n")
        continues = not text.strip() or text[0] in " \t#" or CONTINUES.match(text)
        if lines and not continues and not is_incomplete("\n".join([*lines, ""])):
            yield _without_blank_end(lines)
            lines = []
        if text.strip() or lines:
            lines.append(text)
        if lines and not continues and not is_incomplete("\n".join(lines)):
            yield _without_blank_end(lines)
            lines = []
    if lines:
        yield _without_blank_end(lines)


def _without_blank_end(lines: list[str]) -> list[str]:
    while not lines[-1].strip():
        lines.pop()
    return lines


def typed_lines(complete: Callable[[str], list[str]]) -> Iterator[str]:
    """Yield each statement that is typed, until Ctrl-D.

    Args:
        complete: Function that returns the names that begin with a text.
    """
    try:
        ask = _toolkit(complete)
    except ImportError:
        ask = _ask_plainly
    while True:
        try:
            source = ask()
        except KeyboardInterrupt:
            sys.stdout.write("KeyboardInterrupt\n")
            continue
        except EOFError:
            sys.stdout.write("\n")
            return
        if source.strip():
            yield source


def _ask_plainly() -> str:
    source = input(PROMPT)
    while is_incomplete(source):
        source = f"{source}\n{input(MORE)}"
    return source


def _toolkit(complete: Callable[[str], list[str]]) -> Callable[[], str]:
    """Return a function that asks for a statement.

    Raises:
        ImportError: prompt_toolkit isn't installed.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory, InMemoryHistory
    from prompt_toolkit.key_binding import KeyBindings

    class Known(Completer):
        def get_completions(self, document: Any, _: Any) -> Iterator[Completion]:
            word = last_name(document.text_before_cursor)
            for name in complete(word) if word else ():
                yield Completion(name, start_position=-len(word))

    path = Path(HISTORY).expanduser()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    history = FileHistory(str(path)) if path.parent.is_dir() else InMemoryHistory()
    keys = KeyBindings()
    session: PromptSession[str] = PromptSession(
        history=history, completer=Known(), complete_while_typing=False, key_bindings=keys
    )
    buffer = session.default_buffer

    def line_before_cursor() -> str:
        return buffer.document.current_line_before_cursor.strip()

    @keys.add("tab", filter=Condition(lambda: not line_before_cursor()))
    def _(_: object) -> None:
        buffer.insert_text(INDENT)

    @keys.add("enter", filter=Condition(lambda: line_before_cursor().endswith(":")))
    def _(_: object) -> None:
        buffer.newline()
        buffer.insert_text(INDENT)

    def ask() -> str:
        return session.prompt(
            PROMPT,
            multiline=Condition(lambda: is_incomplete(buffer.text)),
            prompt_continuation=lambda _width, _line, wraps: "" if wraps else MORE,
        )

    return ask


def last_name(text: str) -> str:
    """Return the dotted name that a line ends with."""
    return str(re.findall(r"[\w.%]*$", text)[0])
