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
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distdemo.cli.contract import Result, command
from distdemo.cli.options import Backend, WorldOptions, WorldSize
from distdemo.cli.session import Session
from distdemo.errors import DistdemoError, UsageError
from distdemo.files import read_file
from distdemo.interactive.records import (
    Calls,
    Cell,
    CellReport,
    NewWorld,
    Settings,
    ShellReport,
)
from distdemo.view.blocks import Block, Facts, Paragraph
from distdemo.view.format import plural

if TYPE_CHECKING:
    from distdemo.interactive.client import Ranks

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

    size = session.world_size(options.world_size)
    world = session.world(size, WorldOptions(backend=options.backend))
    settings = Settings(size, world.backend, options.sanitize)
    with ExitStack() as held:
        opened = Shell(session, settings, held)
        opened.run()
    last = opened.ranks.settings
    found = ShellReport(last.world_size, last.backend, tuple(opened.reports))
    ok = session.is_interactive or None
    return Result(found, view.session_view, is_shown=session.shares_output, ok=ok)


class Shell:
    """The loop of the shell.

    Args:
        session: Session of the command.
        settings: World to start with.
        held: Stack that ends the ranks.
    """

    def __init__(self, session: Session, settings: Settings, held: ExitStack) -> None:
        from distdemo.interactive.client import Ranks
        from distdemo.run.view_output import Stream

        self.reports: list[CellReport] = []
        self._session = session
        self._only: frozenset[int] | None = None
        self._stream = Stream(frozenset())
        self._held = held
        self.ranks = self._held.enter_context(closing(Ranks(settings, self._on_output)))
        self._separate: Ranks | None = None  # for mistakes

    def run(self) -> None:
        """Run what is typed until its end."""
        self._welcome()
        is_typed = self._session.is_interactive
        lines = typed_lines(self._complete) if is_typed else piped_lines(self._session)
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for source in lines:
                if EXIT.fullmatch(source.strip()):
                    return
                try:
                    self._run_one(source)
                    continue
                except BrokenPipeError:
                    raise
                except KeyboardInterrupt:
                    what = "The line was interrupted."
                except (DistdemoError, RuntimeError) as error:
                    what = str(error)
                except Exception as error:  # noqa: BLE001 - the variables must not be lost
                    what = f"{type(error).__name__}: {error}"
                self._add(CellReport(source, ok=False, what=what))
        finally:
            signal.signal(signal.SIGINT, handler)

    def _run_one(self, source: str) -> None:
        """Run one line.

        Raises:
            UsageError: It is no command, or its words don't fit the command.
        """
        if not source.lstrip().startswith("%"):
            file = f"<shell {len(self.reports) + 1}>"
            self._add(self._run_cell(self.ranks, file, source))
            return
        try:
            name, *words = shlex.split(source.strip()[1:]) or [""]
        except ValueError as error:
            raise UsageError(f"{source.strip()}: {str(error).lower()}.") from None
        if name not in COMMANDS:
            raise UsageError(f"%{name}: there is no such command.", "", "Try %help.")
        act = getattr(self, f"_do_{name}")
        try:
            signature(act).bind(*words)
        except TypeError:
            defaults = [each.default for each in signature(act).parameters.values()]
            count = "at most one word" if "" in defaults else "one word"
            takes = f"{count}, as in {COMMANDS[name][0]}" if defaults else "no words"
            raise UsageError(f"%{name} takes {takes}.") from None
        act(*words)

    def _run_cell(self, ranks: Ranks, file: str, source: str) -> CellReport:
        from distdemo.run.view_output import Stream
        from distdemo.view.console import output

        self._stream = Stream(frozenset(range(ranks.settings.world_size)))
        cell = Cell(file, source, self._only if ranks is self.ranks else None)
        if self._session.is_interactive:
            cell = replace(cell, width=max(40, output().width - LABEL))
        found = ranks.run(cell)
        self._stream.flush()
        return found

    def _add(self, cell: CellReport) -> None:
        from distdemo.interactive import view

        self.reports.append(cell)
        self._show(*view.cell_view(cell))

    def _show(self, *blocks: Block) -> None:
        if self._session.shares_output and not self._session.quiet:
            from distdemo.view.blocks import show_blocks
            from distdemo.view.console import output

            show_blocks(output(), blocks)

    def _welcome(self) -> None:
        settings = self.ranks.settings
        text = (
            f"{plural(settings.world_size, 'rank')} over {settings.backend}. Each line runs on "
            "every rank; rank, world_size, torch and dist are defined. %help lists commands."
        )
        self._show(Paragraph(text))

    def _on_output(self, rank: int, data: bytes) -> None:
        if self._session.shares_output:
            self._stream.write(rank, data)  # a new one for every cell

    def _complete(self, prefix: str) -> list[str]:
        """Return the names that begin so."""
        if prefix.startswith("%"):
            return [f"%{name}" for name in COMMANDS if name.startswith(prefix[1:])]
        before, dot, start = prefix.rpartition(".")
        try:
            names = self.ranks.pull(f"dir({before})" if dot else "[*globals()]")[0]
        except (DistdemoError, RuntimeError):
            return []
        return sorted(f"{before}{dot}{name}" for name in names if name.startswith(start))

    # ------------------------------------------------------------------------------ commands

    def _do_only(self, ranks: str = "") -> None:
        self._only = self.ranks.ranks(ranks) if ranks else None

    def _do_world(self, size: str) -> None:
        if not size.isdecimal():
            raise UsageError(f"%world {size}: that isn't a number of ranks.")
        self._start(replace(self.ranks.settings, world_size=int(size)))

    def _do_backend(self, name: str) -> None:
        self._start(replace(self.ranks.settings, backend=name))

    def _do_reset(self) -> None:
        self._start(self.ranks.settings)

    def _start(self, settings: Settings) -> None:
        self.ranks.ask(NewWorld(settings))
        self._only = None
        self._welcome()

    def _do_calls(self) -> None:
        from distdemo.calls.text import calls_text

        calls = self.ranks.ask(Calls())[0]
        text = calls_text(calls) if calls else "These ranks have made no call yet."
        self._show(Paragraph(text, verbatim=True))

    def _do_trace(self) -> None:
        _, last = self.ranks.ask(Calls())
        if not last:
            raise UsageError("This world has made no call yet.", "", "Try dist.all_reduce(t).")
        op = last.partition(" ")[0].replace("_", "-")
        words = ["trace", op, "-n", str(self.ranks.settings.world_size)]
        shown = None if self._session.shares_output else subprocess.DEVNULL
        handler = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C ends the other process
        try:
            subprocess.run([sys.executable, "-m", "distdemo", *words], stdout=shown, check=False)  # noqa: S603 - this Python and ourselves
        finally:
            signal.signal(signal.SIGINT, handler)

    def _do_load(self, name: str) -> None:
        try:
            file = Path(name).expanduser().resolve()
            source = read_file(file).decode("utf-8-sig")
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(f"{name} can't be read.", f"{error}.") from error
        self._add(self._run_cell(self.ranks, str(file), source))

    def _do_mistake(self, name: str) -> None:
        from distdemo.interactive.client import Ranks
        from distdemo.learn.catalogue import MISTAKES, find

        mistake = find(MISTAKES, name)
        if mistake is None:
            raise UsageError(
                f"%mistake {name}: there is no such mistake.", "", f"Try {', '.join(MISTAKES)}."
            )
        settings = replace(self.ranks.settings, world_size=mistake.world_size)
        text = f"This runs on {settings.world_size} separate ranks; yours stay as they are."
        self._show(Paragraph(text), Paragraph(mistake.source().rstrip(), verbatim=True))
        source = f"{mistake.source().rstrip()}\n\n\nwork(rank, world_size)\n"
        if self._separate is None:
            self._separate = self._held.enter_context(closing(Ranks(settings, self._on_output)))
        elif self._separate.settings != settings:
            self._separate.ask(NewWorld(settings))
        found = self._run_cell(self._separate, f"{mistake.module}.py", source)
        self._add(replace(found, ok=True, variables=""))  # it has shown what it should

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


def piped_lines(session: Session) -> Iterator[str]:
    """Yield each statement of standard input, and show it as if it had been typed."""

    def shown() -> str:
        while not held[-1].strip():
            held.pop()
        if session.shares_output and not session.quiet:
            for line, prompt in zip(held, [PROMPT, *[MORE] * len(held)], strict=False):
                sys.stdout.write(f"{prompt}{line}".rstrip() + "\n")
            sys.stdout.flush()
        source = "\n".join(held)
        held.clear()
        return source

    held: list[str] = []
    for line in sys.stdin:
        text = line.rstrip("\n")
        inside = not text.strip() or text[0] in " \t#" or CONTINUES.match(text)
        if held and not inside and not is_incomplete("\n".join([*held, ""])):
            yield shown()
        if text.strip() or held:
            held.append(text)
        if held and not inside and not is_incomplete("\n".join(held)):
            yield shown()
    if held:
        yield shown()


def typed_lines(complete: Callable[[str], list[str]]) -> Iterator[str]:
    """Yield each statement that is typed, until Ctrl-D.

    Args:
        complete: Function that returns the names that begin with a text.
    """
    ask = _toolkit(complete) or _plain()
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


def _toolkit(complete: Callable[[str], list[str]]) -> Callable[[], str] | None:
    """Return a function that asks for a statement, or None without prompt_toolkit."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import FileHistory, InMemoryHistory
        from prompt_toolkit.key_binding import KeyBindings
    except ImportError:
        return None

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

    @keys.add("tab", filter=Condition(lambda: not _line_before(buffer)))
    def _(_: object) -> None:
        buffer.insert_text(INDENT)

    @keys.add("enter", filter=Condition(lambda: _line_before(buffer).endswith(":")))
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


def _line_before(buffer: Any) -> str:
    """Return the line up to the cursor, without blanks at both ends."""
    return str(buffer.document.current_line_before_cursor).strip()


def _plain() -> Callable[[], str]:
    """Return a function that asks for a statement by ``input``."""
    with suppress(ImportError):
        import readline  # noqa: F401 - for editing and the history

    def ask() -> str:
        source = input(PROMPT)
        while is_incomplete(source):
            source = f"{source}\n{input(MORE)}"
        return source

    return ask


def last_name(text: str) -> str:
    """Return the dotted name that a line ends with."""
    found = re.search(r"[\w.%]*$", text)
    return "" if found is None else found[0]
