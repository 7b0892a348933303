"""``distdemo shell``: type Python that runs on every rank."""

from __future__ import annotations

import codeop
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distdemo import backends
from distdemo.cli.contract import Result, command
from distdemo.cli.options import Backend, WorldOptions, WorldSize
from distdemo.cli.session import Session
from distdemo.errors import DistdemoError, UsageError
from distdemo.interactive.records import (
    Calls,
    Cell,
    CellReport,
    Names,
    NewWorld,
    Settings,
    ShellReport,
    report,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Self

    from distdemo.view.blocks import Block
    from distdemo.view.console import Signs

PROMPT, MORE = ">>> ", "... "
CONTINUES = ("elif", "else", "except", "finally")
HISTORY = "~/.local/state/distdemo/shell_history"
COMMANDS = {
    "only": "%only 0,2 runs the next lines on these ranks; %only on all.",
    "world": "%world 8 starts a new world of 8 ranks.",
    "backend": "%backend mpi starts a new world over this backend.",
    "reset": "%reset starts a new world.",
    "calls": "%calls lists the calls of this world.",
    "trace": "%trace draws the last collective as rounds.",
    "load": "%load FILE runs a file.",
    "mistake": "%mistake NAME runs a mistake of `distdemo mistakes`.",
    "help": "%help lists these commands; exit() or Ctrl-D ends the shell.",
}


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
    with Shell(session, settings) as opened:
        opened.run()
    last = opened.settings
    found = ShellReport(last.world_size, last.backend, tuple(opened.reports))
    ok = None if not session.is_interactive else True
    return Result(found, view.session_view, is_shown=session.shares_output, ok=ok)


class Shell:
    """The loop of the shell.

    Args:
        session: Session of the command.
        settings: World to start with.
    """

    def __init__(self, session: Session, settings: Settings) -> None:
        from distdemo.interactive.client import Ranks
        from distdemo.run.view_output import Stream

        self.reports: list[CellReport] = []
        self._session = session
        self._only: frozenset[int] | None = None
        self._count = 0
        self._stream = Stream(frozenset(range(settings.world_size)))
        self._ranks = Ranks(settings, self._on_output)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ranks.close()

    @property
    def settings(self) -> Settings:
        """Settings of the present world."""
        return self._ranks.settings

    def run(self) -> None:
        """Run what is typed until its end."""
        self._welcome()
        lines = Terminal(self._complete) if self._session.is_interactive else Piped(self._session)
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for source in lines.read():
                if source.strip() in ("exit", "exit()", "quit", "quit()"):
                    return
                try:
                    self._run_one(source)
                except DistdemoError as error:
                    self._add(CellReport(source, ok=False, what=str(error)))
        finally:
            signal.signal(signal.SIGINT, handler)

    def _welcome(self) -> None:
        from distdemo.view.blocks import Paragraph

        size, backend = self.settings.world_size, self.settings.backend
        text = (
            f"{size} ranks over {backend}. Each line runs on every rank; rank, world_size, torch "
            "and dist are defined. %help lists commands."
        )
        self._show(lambda _: [Paragraph(text)])

    def _run_one(self, source: str) -> None:
        if source.startswith("%"):
            name, *words = shlex.split(source[1:])
            act = getattr(self, f"_do_{name}", None) if name in COMMANDS else None
            if act is None:
                raise UsageError(f"%{name}: there is no such command.", "", "Try %help.")
            act(*words[:1])
        else:
            self._run_cell(source)

    def _run_cell(self, source: str, file: str = "") -> None:
        self._count += 1
        self._ranks.wait()
        done = self._ranks.run(Cell(file or f"<shell {self._count}>", source, self._only))
        self._stream.flush()
        self._add(report(source, done))

    def _add(self, cell: CellReport) -> None:
        from distdemo.interactive import view

        self.reports.append(cell)
        self._show(partial(view.cell_view, cell))

    def _show(self, blocks: Callable[[Signs], Iterable[Block]]) -> None:
        if self._session.shares_output and not self._session.quiet:
            from distdemo.view.blocks import show_blocks
            from distdemo.view.console import output, signs

            console = output()
            show_blocks(console, blocks(signs(console)))

    def _on_output(self, rank: int, data: bytes) -> None:
        if self._session.shares_output:
            self._stream.write(rank, data)

    def _complete(self, prefix: str) -> list[str]:
        """Return the names that begin so."""
        if prefix.startswith("%"):
            return [f"%{name}" for name in COMMANDS if name.startswith(prefix[1:])]
        done = self._ranks.request(Names(prefix))
        return list(done.payload[0]) if done.ok else []

    # ------------------------------------------------------------------------------ commands

    def _do_only(self, text: str = "") -> None:
        try:
            ranks = frozenset(int(each) for each in text.split(",") if each)
        except ValueError:
            ranks = frozenset({-1})
        if not ranks <= set(range(self.settings.world_size)):
            raise UsageError(f"%only {text}: no such ranks.", "", "Try %only 0,2.")
        self._only = ranks or None

    def _do_world(self, text: str = "") -> None:
        if not text.isdecimal():
            raise UsageError("%world takes a number of ranks.", "", "Try %world 8.")
        self._start(replace(self.settings, world_size=int(text)))

    def _do_backend(self, text: str = "") -> None:
        if text not in backends.REGISTRY:
            raise UsageError(
                f"%backend {text}: there is no such backend.",
                "",
                f"Try {', '.join(backends.REGISTRY)}.",
            )
        self._start(replace(self.settings, backend=text))

    def _do_reset(self) -> None:
        self._start(self.settings)

    def _start(self, settings: Settings) -> None:
        from distdemo.run.view_output import Stream

        done = self._ranks.request(NewWorld(settings))
        if not done.ok:
            raise UsageError("The ranks can't be started.", done.what)
        self._only = None
        self._stream = Stream(frozenset(range(settings.world_size)))
        self._welcome()

    def _do_calls(self) -> None:
        from distdemo.sanitizer.text import calls_text
        from distdemo.view.blocks import Paragraph

        text = calls_text(self._ranks.request(Calls()).payload[0])
        self._show(lambda _: [Paragraph(text, verbatim=True)])

    def _do_trace(self) -> None:
        _, last = self._ranks.request(Calls()).payload
        if not last:
            raise UsageError("This world has made no call yet.", "", "Try dist.barrier() first.")
        op = last.partition(" ")[0].replace("_", "-")
        words = ["trace", op, "-n", str(self.settings.world_size)]
        subprocess.run([sys.executable, "-m", "distdemo", *words], check=False)  # noqa: S603 - this Python and ourselves

    def _do_load(self, name: str = "") -> None:
        try:
            source = Path(name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(f"{name} can't be read.", f"{error}.") from error
        self._run_cell(source, str(Path(name).resolve()))

    def _do_mistake(self, name: str = "") -> None:
        from distdemo.learn.mistakes.catalogue import MISTAKES

        mistake = MISTAKES.get(name.replace("_", "-"))
        if mistake is None:
            raise UsageError("%mistake takes a name.", "", f"Try {', '.join(MISTAKES)}.")
        if self.settings.world_size != mistake.world_size:
            self._start(replace(self.settings, world_size=mistake.world_size))
        from distdemo.view.blocks import Paragraph

        source = mistake.text().rstrip()
        self._show(lambda _: [Paragraph(source, verbatim=True)])
        with TemporaryDirectory() as folder:
            file = Path(folder, f"{mistake.module}.py")
            file.write_text(f"{source}\n\n\nwork(rank, world_size)\n", encoding="utf-8")
            self._do_load(str(file))

    def _do_help(self) -> None:
        from distdemo.view.blocks import Paragraph

        self._show(lambda _: [Paragraph("\n".join(COMMANDS.values()), verbatim=True)])


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


class Piped:
    """Statements of standard input, which are shown as if they had been typed."""

    def __init__(self, session: Session) -> None:
        self._echo = session.shares_output and not session.quiet

    def read(self) -> Iterator[str]:
        """Yield one complete statement after another."""
        held: list[str] = []
        for line in sys.stdin:
            text = line.rstrip("\n")
            inside = text.startswith((" ", "\t")) or text.startswith(CONTINUES)
            if held and not inside and not is_incomplete("\n".join([*held, ""])):
                yield self._shown(held)
                held = []
            if text.strip() or held:
                held.append(text)
            if held and text.strip() and not is_incomplete("\n".join(held)) and not inside:
                yield self._shown(held)
                held = []
        if held:
            yield self._shown(held)

    def _shown(self, lines: list[str]) -> str:
        while not lines[-1].strip():
            lines.pop()
        if self._echo:
            for line, prompt in zip(lines, [PROMPT, *[MORE] * len(lines)], strict=False):
                sys.stdout.write(f"{prompt}{line}".rstrip() + "\n")
            sys.stdout.flush()
        return "\n".join(lines)


class Terminal:
    """Statements that are typed; with prompt_toolkit, if it is installed, else ``input``."""

    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        self._complete = complete

    def read(self) -> Iterator[str]:
        """Yield one complete statement after another, until Ctrl-D."""
        ask = self._toolkit() or self._plain()
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

    def _toolkit(self) -> Callable[[], str] | None:
        try:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.completion import Completer, Completion
            from prompt_toolkit.filters import Condition
            from prompt_toolkit.history import FileHistory, InMemoryHistory
        except ImportError:
            return None
        complete = self._complete

        class Known(Completer):
            def get_completions(self, document: Any, _: Any) -> Iterator[Completion]:  # noqa: ANN401 - its types
                word = last_name(document.text_before_cursor)
                for name in complete(word) if word else ():
                    yield Completion(name, start_position=-len(word))

        path = Path(HISTORY).expanduser()
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
        history = FileHistory(str(path)) if path.parent.is_dir() else InMemoryHistory()
        session: PromptSession[str] = PromptSession(
            history=history, completer=Known(), complete_while_typing=False
        )

        def more() -> bool:
            return is_incomplete(session.default_buffer.text)

        def ask() -> str:
            return session.prompt(
                PROMPT,
                multiline=Condition(more),
                prompt_continuation=lambda *_: MORE,
            )

        return ask

    def _plain(self) -> Callable[[], str]:
        with suppress(ImportError):
            import readline

            found: list[str] = []

            def complete(text: str, index: int) -> str | None:
                if index == 0:
                    found[:] = self._complete(text)
                return found[index] if index < len(found) else None

            readline.set_completer(complete)
            readline.set_completer_delims(" \t\n()[]{}=,+-*/:;<>|&")
            readline.parse_and_bind("tab: complete")

        def ask() -> str:
            source = input(PROMPT)
            while is_incomplete(source):
                line = input(MORE)
                source = f"{source}\n{line}"
            return source

        return ask


def last_name(text: str) -> str:
    """Return the dotted name that a line ends with."""
    start = len(text)
    while start and (text[start - 1].isalnum() or text[start - 1] in "._%"):
        start -= 1
    return text[start:]
