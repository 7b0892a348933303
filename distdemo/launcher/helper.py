"""Helper processes: start one, talk with it in messages, and end it.

A helper runs a service, which talks with the process that started it over a `Channel`. It is a fork
of that process, or a new Python, which has loaded torch and computed nothing: forks of that are
safe and fast, whatever the process that started it has done::

    helper = start("distdemo.interactive.worlds.serve", path=sys.path)   # or fork(serve)
    helper.send(request)
    answer = helper.receive()

    def serve(channel: Channel) -> None:                                 # in the helper
        while (request := channel.receive()) is not None:
            channel.send(answer_to(request))

No other process knows the socket between the two. While ranks run, the launcher's loop listens to
it: see ``Channel``. If either process exits, however it does, so do the other one's ranks.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from multiprocessing.process import BaseProcess, current_process
from typing import Any

from distdemo.launcher import torch_import
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.workers import StopReason
from distdemo.platform import system
from distdemo.signals import SIGNALS

EXIT_S = 0.8  # for a helper to exit, before it is killed; its ranks die with it
PROGRAM = """\
from distdemo.launcher.handover import hand_over
hand_over("distdemo.launcher.helper.main")
from distdemo.launcher.helper import main
main()"""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Message that interrupts the request that is being carried out. It has no answer."""


class HelperError(RuntimeError):
    """The helper has exited or doesn't answer."""


class NewPython(subprocess.Popen[bytes]):
    """A new Python, as ``multiprocessing`` describes its processes."""

    @property
    def exitcode(self) -> int | None:
        """Exit code, or the negative signal; None while it runs."""
        return self.poll()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has exited, for this time at most."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout)


class Helper:
    """A helper process, for the process that started it.

    Args:
        process: The process.
        connection: Connection to its `Channel`.
        is_loading: True if it imports torch first, and doesn't listen.

    Attributes:
        process: The process.
        connection: Connection to its `Channel`.
        closed: True if it has been ended.
    """

    def __init__(
        self,
        process: NewPython | BaseProcess,
        connection: Connection,
        *,
        is_loading: bool = False,
    ) -> None:
        self.process = process
        self.connection = connection
        self.closed = False
        self._is_loading = is_loading
        self._owner = os.getpid()
        atexit.register(self.close)

    def send(self, message: object) -> None:
        """Send a request or an `Interrupt`; if the helper has exited, `receive` reports it."""
        with suppress(OSError):
            self.connection.send(message)

    def receive(self, seconds: float | None = None) -> Any:
        """Return the next message of the helper.

        Args:
            seconds: Time to wait, at most.

        Raises:
            HelperError: The helper has exited, or has sent nothing in that time.
        """
        try:
            if self.connection.poll(seconds):
                message = self.connection.recv()
                self._is_loading = False
                return message
        except (EOFError, OSError):
            self.close()
            raise HelperError(f"exited with {self.process.exitcode}") from None
        raise HelperError(f"didn't answer within {seconds:g} s")

    def detach(self) -> None:
        """Close the connection. A service that doesn't wait for it continues on its own."""
        self.closed = True
        atexit.unregister(self.close)
        self.connection.close()

    def close(self, seconds: float = EXIT_S) -> None:
        """End the helper and its ranks.

        Args:
            seconds: Time to wait before it is killed.
        """
        if self.closed or os.getpid() != self._owner:
            return
        self.detach()
        if self._is_loading:
            self.process.terminate()
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def start(service: str, path: Sequence[str], **options: Any) -> Helper:
    """Start a new Python that loads torch and runs a service.

    Args:
        service: Function to run, ``package.module.function``.
        path: Value of ``sys.path`` in the helper.
        options: Options of Popen.
    """
    connection, theirs = Pipe()
    with theirs:
        line = [sys.executable, "-c", PROGRAM, str(theirs.fileno()), str(os.getpid())]
        process = NewPython(line, pass_fds=(theirs.fileno(),), **options)
    helper = Helper(process, connection, is_loading=True)
    helper.send((list(path), service))
    return helper


def fork(serve: Callable[[Channel], object], *, outlives: bool = False) -> Helper:
    """Fork this process and run a service, which begins with Ctrl-C ignored.

    Args:
        serve: The service.
        outlives: True if it ends on its own when this process is killed.
    """
    connection, theirs = Pipe()
    quiet = ExitStack()
    parent = os.getpid()

    def run() -> None:
        quiet.close()
        vars(current_process())["_config"]["daemon"] = False  # it may have children
        connection.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if not outlives:
            system.die_with_parent()
            if os.getppid() != parent:  # it was killed before
                os._exit(0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        serve(Channel(theirs))
        os._exit(0)

    process = get_context("fork").Process(target=run, daemon=True)  # also ends with an exception
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with theirs, quiet:
            quiet.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # Python's about threads, such as those of NumPy
            process.start()
        return Helper(process, connection)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


# -------------------------------------------------------------------------------- in the helper


class Channel:
    """The helper's end of the connection.

    As a listener of the launcher's loop it ends the world if the other process exits, and raises
    SIGINT for an `Interrupt`. Until then the other process sends no other message.

    Attributes:
        closed: True if the other process has exited or closed the connection.
    """

    def __init__(self, connection: Connection) -> None:
        self.closed = False
        self._connection = connection

    def send(self, message: object) -> None:
        """Send an answer, or a message that precedes it; discard it if nobody can receive it."""
        with suppress(OSError):
            self._connection.send(message)

    def receive(self) -> Any:
        """Wait for a message and return it, or None if the connection has been closed."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self.closed = True
            return None

    def poll(self, seconds: float) -> bool:
        """Return True if there is a message, or the end, within this time."""
        return self._connection.poll(seconds)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is a message."""
        return self._connection.fileno()

    @property
    def stop_reason(self) -> StopReason | None:
        """Reason to stop the world, or None."""
        return StopReason.ENDED_EARLY if self.closed else None

    def on_message(self) -> bool:
        """Handle an `Interrupt`; False if the connection has been closed."""
        if self.receive() is not None:
            signal.raise_signal(signal.SIGINT)
        return not self.closed


def main(unblock: Callable[[], object] = lambda: None) -> None:
    """Load torch and run the service, in a new Python.

    Args:
        unblock: Function that unblocks signals, called when they are handled.
    """
    system.die_with_parent()  # the connection isn't read while torch is imported
    descriptor, parent = map(int, sys.argv[1:])
    if os.getppid() != parent and not torch_import.from_warm_process:
        os._exit(0)
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process sends an `Interrupt`
    unblock()
    channel = Channel(Connection(descriptor))
    request = channel.receive()
    if request is not None:
        sys.path[:], service = request
        load_torch()
        gc.freeze()  # collecting torch's objects would take longer than all that follows
        module, _, function = service.rpartition(".")
        serve = getattr(import_module(module), function)
        system.die_with_parent(0)  # the thread that started this process may exit
        serve(channel)
    os._exit(0)  # Python would take a second to free what torch has loaded
