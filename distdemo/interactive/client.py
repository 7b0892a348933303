"""Connection to ranks that stay; used by the shell and by notebooks."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Pipe
from typing import Any

from distdemo.cli.types import parse_ranks
from distdemo.errors import UsageError
from distdemo.interactive.records import (
    Cell,
    CellReport,
    Done,
    Interrupt,
    NewWorld,
    Output,
    Pull,
    Push,
    Request,
    Settings,
)
from distdemo.view.format import ranks_text

EXIT_S = 0.8  # until a host process that doesn't exit is killed; its ranks die with it
MAX_INTERRUPTS = 5  # Ctrl-C of one request, before the ranks are given up


class Ranks:
    """Ranks that run one cell after another, in a separate host process.

    If the host process exits, another one replaces it.

    Args:
        settings: World to start with.
        on_output: Called as ``on_output(rank, data)`` with the ranks' output as it arrives.
    """

    def __init__(self, settings: Settings, on_output: Callable[[int, bytes], object]) -> None:
        self.on_output = on_output
        self.settings = settings
        self._number = 0  # of the last request
        self._start()

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        with theirs:
            words = [str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(  # noqa: S603 - this Python and our own module
                [sys.executable, "-m", "distdemo.interactive.host", *words],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C reaches only this process
            )
        self._ready = False
        self._send(NewWorld(self.settings))
        atexit.register(self.close)

    def wait(self) -> None:
        """Wait until the first world is ready.

        Raises:
            UsageError: It can't be started.
        """
        if not self._ready:
            self._ready = True
            done = self._receive()
            if not done.ok:
                raise UsageError("The ranks can't be started.", done.what)

    def request(self, request: Request) -> Done:
        """Send a request and return the answer; Ctrl-C interrupts the cell, not this call.

        Raises:
            UsageError: The first world can't be started.
        """
        pressed: list[int] = []
        sent = False

        def interrupt(number: int, _: object) -> None:  # an exception would cut a message in two
            pressed.append(number)
            if len(pressed) > MAX_INTERRUPTS:  # the host process doesn't answer
                self._process.kill()
            elif sent:
                self._send(Interrupt())

        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, interrupt) if is_main else None
        try:
            self.wait()
            if pressed:
                return Done(0, ok=False, what="The line was interrupted.")
            self._send(request)
            sent = True
            if pressed:
                self._send(Interrupt())
            done = self._receive()
        finally:
            if is_main:
                signal.signal(signal.SIGINT, before)
        if isinstance(request, NewWorld) and done.ok:
            self.settings = request.settings
        return done

    def ranks(self, text: str) -> frozenset[int]:
        """Return the ranks of ``0,2-3``.

        Raises:
            UsageError: The text is no list of ranks of this world.
        """
        size = self.settings.world_size
        for rank in (chosen := parse_ranks(text) or range(size)):
            if rank >= size:
                known = ranks_text(range(size))
                raise UsageError(f"There is no rank {rank}: the ranks are {known}.")
        return frozenset(chosen)

    def run(self, cell: Cell) -> CellReport:
        """Run a cell and return the report on it."""
        done = self.request(cell)
        return done.payload or CellReport(cell.source, ok=False, what=done.what)

    def ask(self, request: Request) -> Any:
        """Send a request and return the payload of the answer.

        Raises:
            UsageError: The first world can't be started.
            RuntimeError: The request failed.
        """
        done = self.request(request)
        if not done.ok:
            raise RuntimeError(done.what)
        return done.payload

    def pull(self, expression: str) -> list[Any]:
        """Return each rank's value of an expression.

        Raises:
            RuntimeError: A rank has no such value, or it can't be pickled.
        """
        found = self.ask(Pull(expression))
        return [pickle.loads(found[rank]) for rank in sorted(found)]  # noqa: S301 - from ranks of ours

    def push(self, values: dict[str, list[Any]]) -> None:
        """Set variables: a list with one value per rank for each name.

        Raises:
            RuntimeError: A rank can't load its values.
        """
        size = self.settings.world_size
        own = [{name: each[rank] for name, each in values.items()} for rank in range(size)]
        self.ask(Push(dict(enumerate(map(pickle.dumps, own)))))

    def close(self) -> None:
        """End the ranks and the host process."""
        atexit.unregister(self.close)
        self._connection.close()
        try:
            self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, request: Request) -> None:
        if not isinstance(request, Interrupt):
            self._number += 1
        with suppress(OSError):  # the host process has exited, which `_receive` notices
            self._connection.send((self._number, request))

    def _receive(self) -> Done:
        """Return the answer to the last request; until it arrives, pass on the ranks' output."""
        number = self._number
        try:
            while True:
                message = self._connection.recv()
                if isinstance(message, Output):
                    self.on_output(message.rank, message.data)
                elif message.number == number:
                    return message  # type: ignore[no-any-return]  # it sends nothing else
        except (EOFError, OSError):
            self.close()
        code = self._process.returncode
        self._start()
        what = f"The process that starts the ranks exited with {code}. All variables are lost."
        return Done(number, ok=False, what=what)
