"""Ranks that stay, as the shell and notebooks use them."""

from __future__ import annotations

import argparse
import pickle
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from distdemo.calls.text import rank_label
from distdemo.cli.types import parse_ranks
from distdemo.errors import UsageError
from distdemo.interactive.records import Cell, CellReport, Done, Output, Request, Settings
from distdemo.launcher import helper
from distdemo.launcher.helper import HelperError, Interrupt
from distdemo.view.format import ranks_text

OnOutput = Callable[[int, bytes], object]
WAKE_S = 0.1  # between two looks at the clock; a handler of Ctrl-C runs at the latest then
IN_ORDER_S = 0.5  # of a cell, in which output is held back so that it can be sorted by rank


class Ranks:
    """Ranks that run one cell after another. If their host exits, another one replaces it.

    Args:
        settings: World to start with.
        on_output: Called as ``on_output(rank, data)`` with the ranks' output: sorted by rank if
            all of them finish soon, otherwise as it arrives. None prints it, with the rank in front
            of every line.

    Attributes:
        only: Ranks that run the next cells; None for all.
    """

    def __init__(self, settings: Settings, on_output: OnOutput | None = None) -> None:
        self.on_output = on_output
        self.settings = settings
        self.only: frozenset[int] | None = None
        self._start()

    def _start(self) -> None:
        self._has_started = False
        self._host = helper.start(
            "distdemo.interactive.worlds.serve",
            ["", *sys.path],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches only this process
        )
        self._host.send(self.settings)

    def wait(self) -> None:
        """Wait until the first world is ready.

        Raises:
            UsageError: It can't be started.
        """
        if not self._has_started:
            self._has_started = True
            done = self._receive(lambda *_: None)
            if not done.ok:
                raise UsageError("The ranks can't be started.", done.what)

    def ask(self, request: Request, on_output: OnOutput = lambda *_: None) -> Done:
        """Send a request and return the answer; Ctrl-C interrupts the cell, not this call.

        Raises:
            UsageError: The first world can't be started.
        """
        interrupts: list[int] = []
        is_sent = False

        def interrupt(number: int, _: object) -> None:  # an exception would cut a message in two
            interrupts.append(number)
            if is_sent:
                self._host.send(Interrupt())

        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, interrupt) if is_main else None
        try:
            self.wait()
            if interrupts:
                return Done(ok=False, what="The line was interrupted.")
            self._host.send(request)
            is_sent = True
            if interrupts:  # before this thread knew that it was sent
                self._host.send(Interrupt())
            return self._receive(on_output)
        finally:
            if is_main:
                signal.signal(signal.SIGINT, before)

    def _receive(self, on_output: OnOutput) -> Done:
        """Return the answer to the last request; until it arrives, pass on the ranks' output.

        Output of the first `IN_ORDER_S` is sorted by rank, and passed on when that time ends.
        """
        held: list[Output] = []
        until = time.monotonic() + IN_ORDER_S
        try:
            while True:
                if self._host.connection.poll(WAKE_S):
                    message = self._host.receive()
                    if not isinstance(message, Output):
                        return message  # type: ignore[no-any-return]  # it sends nothing else
                    held.append(message)
                if time.monotonic() >= until:
                    _pass_on(held, on_output)
        except HelperError as error:
            self._start()
            return Done(ok=False, what=f"The host of the ranks {error}. All variables are lost.")
        finally:
            _pass_on(held, on_output)

    def run(self, file: str, source: str) -> CellReport:
        """Run a cell and return the report on it.

        Args:
            file: File name of the code, ``<shell 4>``.
            source: Code of the cell.
        """
        cell = Cell(file, source, self.only)
        if self.on_output is not None:
            done = self.ask(cell, self.on_output)
        else:
            from distdemo.view.stream import Stream

            stream = Stream(frozenset(range(self.settings.world_size)))
            done = self.ask(cell, stream.write)
            stream.flush()
        return done.payload or CellReport(source, ok=False, what=done.what)

    def start(self, settings: Settings) -> None:
        """Start a new world in place of the present one.

        Raises:
            UsageError: It can't be started.
        """
        done = self.ask(settings)
        if not done.ok:
            raise UsageError(done.what)
        self.settings = settings

    def pull(self, expression: str) -> list[Any]:
        """Return every rank's value of an expression.

        Raises:
            RuntimeError: A rank has no such value, or it can't be pickled.
        """
        done = self.ask(Cell("<pull>", expression, pulls=True))
        if done.ok:
            return [pickle.loads(value) for value in done.pulled]  # noqa: S301 - from ranks of ours
        errors = () if done.payload is None else done.payload.errors
        texts = [f"{rank_label(error.ranks)}: {error.text.splitlines()[-1]}" for error in errors]
        raise RuntimeError("; ".join(texts) or done.what)

    def close(self) -> None:
        """End the ranks and the host."""
        self._host.close()


def _pass_on(held: list[Output], on_output: OnOutput) -> None:
    """Pass on the output that was held back, sorted by rank, and forget it."""
    for output in sorted(held, key=lambda output: output.rank):
        on_output(output.rank, output.data)
    held.clear()


# -------------------------------------------------------------------------------------- %ranks


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%ranks: {message}.", "", "Try %ranks 4 --backend gloo --only 0,2.")


@cache
def _parser() -> _Parser:
    """Return the parser. It looks at the size of the terminal."""
    parser = _Parser(prog="%ranks", add_help=False)
    parser.add_argument("world_size", nargs="?", type=int)
    parser.add_argument("--backend")
    parser.add_argument("--only")
    parser.add_argument("--new", action="store_true")
    return parser


def configured(ranks: Ranks | None, line: str) -> tuple[Ranks, bool]:
    """Carry out ``%ranks [N] [--backend B] [--only 0,2] [--new]``.

    Args:
        ranks: Ranks that there are, or None.
        line: Words after ``%ranks``.

    Returns:
        The ranks, and True if the line started a new world in place of theirs.

    Raises:
        UsageError: The line is invalid, or the world can't be started.
    """
    try:
        given = _parser().parse_args(shlex.split(line))
    except ValueError as error:
        raise UsageError(f"%ranks {line}: {str(error).lower()}.") from None
    old = Settings() if ranks is None else ranks.settings
    settings = Settings(
        old.world_size if given.world_size is None else given.world_size,
        given.backend or old.backend,
    )
    only = frozenset(parse_ranks(given.only)) if given.only else None
    there_are = range(settings.world_size)
    for rank in sorted(set(only or ()) - set(there_are)):
        raise UsageError(f"There is no rank {rank}: the ranks are {ranks_text(there_are)}.")
    is_replaced = ranks is not None and (given.new or settings != old)
    if ranks is None:
        ranks = Ranks(settings)
        try:
            ranks.wait()
        except BaseException:
            ranks.close()
            raise
    elif is_replaced:
        ranks.start(settings)
    ranks.only = only
    return ranks, is_replaced
