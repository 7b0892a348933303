"""Connection to ranks that stay; used by the shell and by notebooks."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Pipe
from typing import Any

from distdemo.errors import UsageError
from distdemo.interactive.records import (
    Cell,
    Done,
    Interrupt,
    NewWorld,
    Output,
    Pull,
    Push,
    Request,
    Settings,
)

EXIT_S = 5.0
MAX_INTERRUPTS = 5


class Ranks:
    """Ranks that run one cell after another, in a host process of their own.

    Args:
        settings: World to start with.
        on_output: Called as ``on_output(rank, data)`` with the ranks' output as it arrives.
    """

    def __init__(self, settings: Settings, on_output: Callable[[int, bytes], object]) -> None:
        self.on_output = on_output
        self.settings = settings
        self._ready = False
        self._connection, theirs = Pipe()
        with theirs:
            words = [str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(  # noqa: S603 - this Python and our own module
                [sys.executable, "-m", "distdemo.interactive.host", *words],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C reaches only this process
            )
        self._connection.send(NewWorld(settings))
        atexit.register(self.close)

    @property
    def closed(self) -> bool:
        """True if the host process has exited."""
        return self._process.poll() is not None

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
            UsageError: The ranks could not be started.
            RuntimeError: The host process has exited.
        """
        self.wait()
        with self._interrupting(request):
            done = self._receive()
        if isinstance(request, NewWorld) and done.ok:
            self.settings = request.settings
        return done

    def run(self, cell: Cell) -> Done:
        """Run a cell and return its result."""
        return self.request(cell)

    def pull(self, expression: str) -> list[Any]:
        """Return each rank's value of an expression.

        Raises:
            RuntimeError: A rank has no such value, or it can't be pickled.
        """
        done = self.request(Pull(expression))
        for rank, error in done.errors.items():
            raise RuntimeError(f"rank {rank}: {error.text}")
        return [pickle.loads(done.payload[rank]) for rank in sorted(done.payload)]  # noqa: S301 - from ranks of ours

    def push(self, values: dict[str, list[Any]]) -> None:
        """Set variables: a list with one value per rank for each name.

        Raises:
            RuntimeError: A rank can't load its values.
        """
        sent = {}
        for rank in range(self.settings.world_size):
            own = {name: each[rank] for name, each in values.items()}
            sent[rank] = pickle.dumps(({}, pickle.dumps(own)))  # as a copy of variables
        done = self.request(Push(sent))
        for rank, error in done.errors.items():
            raise RuntimeError(f"rank {rank}: {error.text}")

    def close(self) -> None:
        """End the ranks and the host process."""
        atexit.unregister(self.close)
        self._connection.close()
        try:
            self._process.wait(EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def _interrupting(self, request: Request) -> Iterator[None]:
        """Send a request; Ctrl-C interrupts the cell. An exception would cut a message in two."""
        if threading.current_thread() is not threading.main_thread():
            self._connection.send(request)
            yield
            return
        pressed, sent = 0, False

        def interrupt(*_: object) -> None:
            nonlocal pressed
            pressed += 1
            if pressed > MAX_INTERRUPTS:  # the host process doesn't answer
                raise KeyboardInterrupt
            if sent:
                self._connection.send(Interrupt())

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            self._connection.send(request)
            sent = True
            if pressed:
                self._connection.send(Interrupt())
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _receive(self) -> Done:
        try:
            while True:
                message = self._connection.recv()
                if not isinstance(message, Output):
                    return message  # type: ignore[no-any-return]  # it sends nothing else
                self.on_output(message.rank, message.data)
        except (EOFError, OSError):
            code = self._process.wait(EXIT_S)
            raise RuntimeError(f"the process that starts ranks exited with {code}") from None
