"""Ranks that stay, as the shell and notebooks use them."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from distdemo.cli.types import parse_ranks
from distdemo.errors import UsageError
from distdemo.interactive.records import (
    Cell,
    CellReport,
    Done,
    Output,
    Pull,
    Push,
    Request,
    Settings,
)
from distdemo.launcher.host import Host, HostError, Interrupt
from distdemo.view.format import ranks_text

MAX_INTERRUPTS = 5  # Ctrl-C of one request, before the ranks are given up


class Ranks:
    """Ranks that run one cell after another. If their host exits, another one replaces it.

    Args:
        settings: World to start with.
        on_output: Called as ``on_output(rank, data)`` with the ranks' output as it arrives; None
            prints it, with the rank in front of every line.
    """

    def __init__(
        self, settings: Settings, on_output: Callable[[int, bytes], object] | None = None
    ) -> None:
        self.on_output = on_output
        self.settings = settings
        self._start()

    def _start(self) -> None:
        self._has_started = False
        self._host = Host(
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

    def request(
        self, request: Request, on_output: Callable[[int, bytes], object] = lambda *_: None
    ) -> Done:
        """Send a request and return the answer; Ctrl-C interrupts the cell, not this call.

        Raises:
            UsageError: The first world can't be started.
        """
        pressed: list[int] = []
        sent = False

        def interrupt(number: int, _: object) -> None:  # an exception would cut a message in two
            pressed.append(number)
            if len(pressed) > MAX_INTERRUPTS:  # the host doesn't answer
                self._host.process.kill()
            elif sent:
                self._host.send(Interrupt())

        is_main = threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGINT, interrupt) if is_main else None
        try:
            self.wait()
            if pressed:
                return Done(ok=False, what="The line was interrupted.")
            self._host.send(request)
            sent = True
            if pressed:
                self._host.send(Interrupt())
            done = self._receive(on_output)
        finally:
            if is_main:
                signal.signal(signal.SIGINT, before)
        if isinstance(request, Settings) and done.ok:
            self.settings = request
        return done

    def _receive(self, on_output: Callable[[int, bytes], object]) -> Done:
        """Return the answer to the last request; until it arrives, pass on the ranks' output."""
        try:
            while isinstance(message := self._host.receive(), Output):
                on_output(message.rank, message.data)
        except HostError as error:
            self._start()
            return Done(ok=False, what=f"The host of the ranks {error}. All variables are lost.")
        return message  # type: ignore[no-any-return]  # it sends nothing else

    def run(self, cell: Cell) -> CellReport:
        """Run a cell and return the report on it."""
        if self.on_output is not None:
            done = self.request(cell, self.on_output)
        else:
            from distdemo.run.view_output import Stream

            stream = Stream(frozenset(range(self.settings.world_size)))
            done = self.request(cell, stream.write)
            stream.flush()
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
        """Return every rank's value of an expression.

        Raises:
            RuntimeError: A rank has no such value, or it can't be pickled.
        """
        values = self.ask(Pull(expression))
        return [pickle.loads(values[rank]) for rank in sorted(values)]  # noqa: S301 - from ranks of ours

    def push(self, values: dict[str, list[Any]]) -> None:
        """Set variables: a list with one value per rank for each name.

        Raises:
            RuntimeError: A rank can't load its values.
        """
        pickled = {}
        for rank in range(self.settings.world_size):
            own = {name: by_rank[rank] for name, by_rank in values.items()}
            pickled[rank] = pickle.dumps(own)
        self.ask(Push(pickled))

    def parse(self, text: str) -> frozenset[int]:
        """Return the ranks of ``0,2-3``.

        Raises:
            UsageError: The text is no list of ranks of this world.
        """
        ranks = range(self.settings.world_size)
        chosen = frozenset(parse_ranks(text) or ranks)
        for rank in sorted(chosen - set(ranks)):
            raise UsageError(f"There is no rank {rank}: the ranks are {ranks_text(ranks)}.")
        return chosen

    def close(self) -> None:
        """End the ranks and the host."""
        self._host.close()
