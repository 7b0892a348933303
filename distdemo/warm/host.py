"""The warm process: it has torch loaded, and forks a guardian that forks a program, on request.

::

    warm process > guardian > program > ranks

The warm process reads nothing from its clients, so that none can block it. A guardian decodes one
request, compares the client with itself, and forks the program. Then it forwards signals from the
client, reports the program's end, and kills it if the client exits. If the warm process exits, the
guardians and their programs go on.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import json
import multiprocessing
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import distdemo
from distdemo.cli.app import function_of
from distdemo.cli.commands import COMMANDS
from distdemo.encoding import decode, encode, loads
from distdemo.launcher import handover, torch_import
from distdemo.launcher.cleanup import clean
from distdemo.launcher.handover import EXITED, GO, KEYBOARD, KILLED, STOPPED
from distdemo.launcher.helper import Channel
from distdemo.launcher.process_tree import Cleanup
from distdemo.platform import system
from distdemo.warm import same
from distdemo.warm.records import MAX_REQUEST_BYTES, Answer, Request

assert sys.platform == "linux"  # as `distdemo warm` says; type checkers skip what follows elsewhere

CHECK_S = 5.0  # between checks of the loaded files and the socket
OWN_DESCRIPTORS = 20  # of a guardian, at most
PRELOADED = ("command", "rank", "view")  # modules of every feature


def serve(channel: Channel) -> None:
    """Serve until the process is idle or out of date; first report an error, or an empty text."""
    _set_signals(ignored={signal.SIGINT})
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    idle_s: float = channel.receive()
    place = handover.folder()
    try:
        os.close(handover.open_folder(place))
    except FileNotFoundError:  # it is created below
        pass
    except OSError as error:
        channel.send(error.strerror or str(error))
        return
    _load_modules()
    gc.freeze()
    own = []  # what this process has created
    try:
        os.close(os.pidfd_open(os.getpid()))  # --stop needs Linux 5.3
        with suppress(FileExistsError):
            Path(place).mkdir(mode=0o700, parents=True)
            own.append(f"{os.stat(place).st_ino}:{place}")  # noqa: PTH116 - as in ``handover``
        folder = handover.open_folder(place)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(f"/proc/self/fd/{folder}/{handover.NAME}")
        inode = os.stat(handover.NAME, dir_fd=folder).st_ino
        listener.listen()
        os.close(folder)
    except OSError as error:
        clean((), own)
        channel.send(error.strerror or str(error))
        return
    with closing(Cleanup([f"{inode}:{place}/{handover.NAME}", *own])) as cleanup:
        host = _Host(listener, inode, idle_s, cleanup)
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), 2)  # up to here it was that of `distdemo warm`
        channel.send("")
        channel.close()
        host.run()


def _load_modules() -> None:
    """Import what commands import, which computes nothing and starts no thread."""
    for name in COMMANDS:
        function_of(name)
    package = Path(distdemo.__file__).parent
    for part in PRELOADED:
        for file in sorted(package.glob(f"*/{part}.py")):
            if file.parent.name != "testing":  # programs look whether pytest is loaded
                import_module(f"distdemo.{file.parent.name}.{part}")
    for name in ("cli.main", "backends", "launcher.local", "launcher.rank_process", "view.console"):
        import_module(f"distdemo.{name}")


class _Host:
    """The loop of the warm process.

    Args:
        listener: Socket on which clients connect.
        inode: Inode of the socket's name.
        idle_s: Seconds without a command after which it ends.
        cleanup: Process that removes the socket.
    """

    def __init__(
        self, listener: socket.socket, inode: int, idle_s: float, cleanup: Cleanup
    ) -> None:
        self._listener = listener
        self._inode = inode
        self._idle_s = idle_s
        self._cleanup = cleanup
        self._paths = same.loaded_files()
        self._states = same.states(self._paths)
        self._facts = {**handover.own_facts(), **same.variables(os.environ)}
        self._commands = 0
        self._last = time.monotonic()
        self._guardians: set[int] = set()  # process ids

    def run(self) -> None:
        """Fork a guardian for each client, until this process is idle, outdated or told to exit."""
        wake: list[Any] = [handover.wake_up_pipe((signal.SIGTERM, signal.SIGCHLD))]
        with self._listener:
            while True:
                ready = select.select([self._listener, *wake], [], [], CHECK_S)[0]
                if wake[0] in ready:
                    if signal.SIGTERM in os.read(wake[0], 64):
                        return
                    self._reap()
                elif not self._is_wanted():
                    return  # a client that is waiting for an answer runs its program itself
                elif ready:
                    self._accept()

    def _is_wanted(self) -> bool:
        """Return True if the files are those that were loaded, and the socket is still there."""
        if _inode() != self._inode:
            self._cleanup.keep_files()
            return False
        is_idle = time.monotonic() - self._last > self._idle_s and not self._guardians
        return not is_idle and same.states(self._paths) == self._states

    def _accept(self) -> None:
        """Fork a guardian for the next client."""
        with suppress(OSError):  # the client has exited, or there are too many processes
            connection, _ = self._listener.accept()
            with connection:
                pid, uid = system.peer(connection)
                if uid != os.geteuid():
                    return
                guardian = os.fork()
                if guardian == 0:
                    self._guard(connection, pid)
                self._guardians.add(guardian)

    def _reap(self) -> None:
        """Forget the guardians that have exited."""
        for guardian in [*self._guardians]:
            pid, status = os.waitpid(guardian, os.WNOHANG)
            self._guardians.discard(pid)
            if pid and status == 0:  # its program has run
                self._commands += 1
                self._last = time.monotonic()

    # --------------------------------------------------------------------- in the guardian

    def _guard(self, connection: socket.socket, client: int) -> NoReturn:
        """Answer the client, run its program, and exit: with 0 if the program has run."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._listener.close()
            for fd in self._cleanup.descriptors:
                os.close(fd)
            connection.settimeout(handover.ANSWER_S)
            request = _received(connection)
            reason = self._difference(request, client)
            left = max(0.0, self._idle_s - (time.monotonic() - self._last))
            answer = json.dumps(encode(Answer(reason, self._commands, left), decodable=True))
            connection.send(answer.encode())
            connection.settimeout(None)  # a stopped client holds up no other
            message, descriptors, *_ = socket.recv_fds(
                connection, len(GO), handover.MAX_DESCRIPTORS
            )
            if not reason and message == GO and len(descriptors) == len(request.descriptors):
                status = 0
                taken = same.status_of(client)
                _watch(connection, partial(_start, request, descriptors, taken))
        finally:
            os._exit(status)

    def _difference(self, request: Request, client: int) -> str:
        """Return the reason why the program must run in its own process, or an empty text."""
        try:
            theirs, ours = map(same.process_facts, (client, os.getpid()))
            os.chdir(f"/proc/{client}/cwd")
        except OSError as error:
            return f"The entry of the process in /proc can't be read: {error.strerror}."
        theirs |= {**request.facts, **same.variables(request.environ)}
        reason = same.difference(theirs, {**ours, **self._facts})
        return reason or same.hidden_module(request.path, request.argv[1:]) or _lack(request)


def _lack(request: Request) -> str:
    """Return a sentence if the limit doesn't allow two sets of the client's descriptors, or ""."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = len(request.descriptors)
    used = max(*request.descriptors, count + OWN_DESCRIPTORS) + count
    return "The limit on open files is too low for twice the descriptors." if used >= limit else ""


def _inode() -> int:
    """Return the inode of the socket's name, or 0 if there is none."""
    try:
        return os.stat(f"{handover.folder()}/{handover.NAME}", follow_symlinks=False).st_ino  # noqa: PTH116 - as in ``handover``
    except OSError:
        return 0


def _received(connection: socket.socket) -> Request:
    """Return the request, which is in a file.

    Raises:
        OSError: The client sent no request in time.
        ValueError: It is not a request.
    """
    _, descriptors, *_ = socket.recv_fds(connection, 64, 1)
    if not descriptors:
        raise ValueError("It has no file")
    with open(descriptors[0], "rb") as file:  # noqa: PTH123 - a descriptor
        file.seek(0)
        request = decode(
            Request, loads(file.read(MAX_REQUEST_BYTES + 1), max_bytes=MAX_REQUEST_BYTES)
        )
    if not request.path or not request.descriptors:
        raise ValueError("It has no sys.path or no descriptors")
    return request


def _watch(connection: socket.socket, start: Callable[[], int]) -> None:
    """Start the program, forward the client's signals to it, and report its end.

    Args:
        connection: Connection to the client.
        start: Function that forks the program and returns its process id.
    """
    wake: list[Any] = [handover.wake_up_pipe((signal.SIGCHLD,))]
    pid = start()
    while True:
        if connection in select.select([connection, *wake], [], [])[0]:
            message = connection.recv(1)
            if not message:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            if message[0] in handover.FORWARDED:
                (os.killpg if message[0] in KEYBOARD else os.kill)(pid, message[0])
            continue
        os.read(wake[0], 64)
        ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if ended and os.WIFSTOPPED(status):
            connection.send(bytes([STOPPED, os.WSTOPSIG(status)]))
        elif ended and os.WIFSIGNALED(status):
            connection.send(bytes([KILLED, os.WTERMSIG(status)]))
            return
        elif ended:
            connection.send(bytes([EXITED, os.WEXITSTATUS(status)]))
            return


# ------------------------------------------------------------------------------- in the program


def _start(request: Request, descriptors: Sequence[int], client: dict[str, str]) -> int:
    """Fork the program and return its process id.

    Args:
        request: Request of the client.
        descriptors: Descriptors of the client.
        client: Lines of the client's status in ``/proc``.
    """
    guardian = os.getpid()
    numbers = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    pid = os.fork()
    if pid == 0:
        system.die_with_parent()
        if os.getppid() != guardian:
            os._exit(1)
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        _become(request, descriptors, client)
    with suppress(OSError):  # the program has done so
        os.setpgid(pid, pid)
    signal.pthread_sigmask(signal.SIG_SETMASK, numbers)
    for fd in descriptors:
        os.close(fd)
    return pid


def _become(request: Request, descriptors: Sequence[int], client: dict[str, str]) -> NoReturn:
    """Adopt the client's state, and run its program."""
    try:
        _place(descriptors, request.descriptors)
        os.umask(int(client["Umask"], 8))
        os.environ.clear()
        os.environ.update(request.environ)
        time.tzset()
        tempfile.tempdir = None
        importlib.invalidate_caches()  # a folder of sys.path may be new
        sys.executable = request.executable
        multiprocessing.set_executable(sys.executable)
        sys.orig_argv = [*request.orig_argv]
        sys.argv = [*request.argv]
        sys.path[:] = request.path
        _open_streams()
        torch_import.seed_numpy()
        torch_import.from_warm_process = True
        _set_signals(ignored=_signals_of(client["SigIgn"]))
        blocked = _signals_of(client["SigBlk"])
        module, _, function = request.program.rpartition(".")
        program = getattr(import_module(module), function)
        program(partial(signal.pthread_sigmask, signal.SIG_SETMASK, blocked))
    except KeyboardInterrupt:  # before the program had a handler
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # the program reports its own exceptions
        traceback.print_exc()
    finally:
        os._exit(1)


def _place(descriptors: Sequence[int], numbers: Sequence[int]) -> None:
    """Move the client's descriptors to their original numbers, and close all others."""
    above = max(*numbers, *map(int, os.listdir("/proc/self/fd"))) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in descriptors]
    os.closerange(3, above)
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def _open_streams() -> None:
    """Reopen the standard streams with the encodings that Python chose at its start."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        buffering = 1 if fd == 2 or os.isatty(fd) else -1
        mode = "w" if fd else "r"
        stream: Any = open(fd, mode, buffering, old.encoding, old.errors, "\n", closefd=False)  # noqa: SIM115 - stays open
        stream.reconfigure(write_through=old.write_through)  # python -u
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _set_signals(ignored: Collection[int]) -> None:
    """Ignore these signals, and restore Python's own handlers of all other signals."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        own = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else own)


def _signals_of(mask: str) -> set[int]:
    """Return the signals in a mask of ``/proc/PID/status``."""
    bits = int(mask, 16)
    return {number for number in signal.valid_signals() if bits >> (number - 1) & 1}
