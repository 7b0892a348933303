"""A process that has loaded torch and forks ranks on request.

``Host`` is the client: it starts a process that loads torch, computes nothing, and then runs a
service, which answers one request after another. Forks of that process are safe and fast, whatever
the client's process has done::

    host = Host("distdemo.interactive.worlds.serve", path=sys.path)   # in the client
    host.send(request)
    answer = host.receive()

    def serve(channel: Channel) -> None:                              # in the host
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from typing import Any

from distdemo.launcher import torch_import
from distdemo.launcher.process_tree import die_with_parent
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.workers import StopReason

EXIT_S = 0.8  # for a host to exit, before it is killed; its ranks die with it
PROGRAM = """\
from distdemo.launcher.handover import hand_over
hand_over("distdemo.launcher.host.main")
from distdemo.launcher.host import main
main()"""


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Message that interrupts the request that is being carried out. It has no answer."""


class HostError(RuntimeError):
    """The host has exited or doesn't answer."""


class Host:
    """Client of a process that forks ranks.

    Args:
        service: Function that the host runs, ``package.module.function``.
        path: Value of ``sys.path`` in the host.
        options: Options of Popen.

    Attributes:
        process: The host's process.
        closed: True if it has been stopped.
        ready: True if it has answered a request.
    """

    def __init__(self, service: str, path: Sequence[str], **options: Any) -> None:
        self.closed = False
        self.ready = False
        self._connection, host_end = Pipe()
        with host_end:
            numbers = [str(host_end.fileno()), str(os.getpid())]
            self.process = subprocess.Popen(  # noqa: S603 - this Python and our own module
                [sys.executable, "-c", PROGRAM, *numbers],
                pass_fds=(host_end.fileno(),),
                **options,
            )
        self.send((list(path), service))
        atexit.register(self.close)

    def send(self, message: object) -> None:
        """Send a request or an `Interrupt`; if the host has exited, `receive` reports it."""
        with suppress(OSError):
            self._connection.send(message)

    def receive(self, seconds: float | None = None) -> Any:
        """Return the next message of the host.

        Args:
            seconds: Time to wait, at most.

        Raises:
            HostError: The host has exited, or has sent nothing in that time.
        """
        try:
            if self._connection.poll(seconds):
                message = self._connection.recv()
                self.ready = True
                return message
        except (EOFError, OSError):
            self.close()
            raise HostError(f"exited with {self.process.returncode}") from None
        raise HostError(f"didn't answer within {seconds:g} s")

    def detach(self) -> None:
        """Close the connection. A service that doesn't wait for it continues without its client."""
        self.closed = True
        atexit.unregister(self.close)
        self._connection.close()

    def close(self, seconds: float = EXIT_S) -> None:
        """End the host and its ranks.

        Args:
            seconds: Time to wait before it is killed.
        """
        if self.closed:
            return
        self.detach()
        if not self.ready:  # it may still be importing torch
            self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Channel:
    """The host's end of the connection to its client.

    As a listener of the launcher's loop it ends the world if the client exits, and raises SIGINT in
    the host for an `Interrupt`. Until then the client sends no other message.

    Attributes:
        closed: True if the client has exited or closed the connection.
    """

    def __init__(self, connection: Connection) -> None:
        self.closed = False
        self._connection = connection

    def send(self, message: object) -> None:
        """Send an answer, or a message that precedes it; discard it if the client has exited."""
        with suppress(OSError):
            self._connection.send(message)

    def receive(self) -> Any:
        """Wait for a message and return it, or None if the client has closed the connection."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self.closed = True
            return None

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
        """Handle an `Interrupt`; False if the client has closed the connection."""
        if self.receive() is not None:
            signal.raise_signal(signal.SIGINT)
        return not self.closed


def main(unblock: Callable[[], object] = lambda: None) -> None:
    """Load torch and run the service.

    Args:
        unblock: Function that unblocks signals, called when they are handled.
    """
    die_with_parent()  # the connection isn't read while torch is imported
    descriptor, parent = map(int, sys.argv[1:])
    if os.getppid() != parent and not torch_import.from_warm_process:
        os._exit(0)
    os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client sends an `Interrupt`
    unblock()
    channel = Channel(Connection(descriptor))
    request = channel.receive()
    if request is not None:
        sys.path[:], service = request
        load_torch()
        gc.freeze()  # collecting torch's objects would take longer than all that follows
        module, _, function = service.rpartition(".")
        serve = getattr(import_module(module), function)
        die_with_parent(0)  # the client's thread that started this process may exit
        serve(channel)
    os._exit(0)  # Python would take a second to free what torch has loaded
