"""Hand this program over to the warm process, which has torch loaded: the client's side.

``distdemo warm`` starts that process. It forks a child that becomes the program, with this
process's arguments, environment, working directory and descriptors. Until it exits, this process
forwards signals to it, stops and continues with it, and then exits as it does. Without a warm
process, or if it can't do exactly what this process would, `hand_over` returns and nothing has
happened.

Every command imports this module, so it imports nothing else before it is used.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
from contextlib import suppress

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    import socket
    from typing import Any, NoReturn

NAME = "warm"
"""Name of the socket in its folder."""
ANSWER_S = 10.0  # for the other side to answer; then the program runs here
MAX_DESCRIPTORS = 253  # that one message can carry: SCM_MAX_FD of Linux
GO = b"go"
EXITED, KILLED, STOPPED = b"eks"
"""First byte of a message from the guardian; the second is an exit code or a signal."""
KEYBOARD = (
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTSTP,
    signal.SIGCONT,
    signal.SIGWINCH,
)
"""Signals that a terminal and its shell send to the whole process group."""
FORWARDED = (*KEYBOARD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
ASKS_QUESTIONS = ("learn", "shell")
"""Commands that read the terminal: in the background they stop, as if with SIGTTIN."""


def hand_over(program: str) -> None:
    """Run a program in the warm process and exit as it does; return if it must run here.

    Args:
        program: One of ``distdemo.warm.records.PROGRAMS``.
    """
    connection = connect()
    if connection is None:
        return
    with connection:
        try:
            if _must_run_here() or ask(connection, program)["reason"]:
                return
        except (OSError, ValueError, KeyError, TypeError):  # it has exited, or is no warm process
            return
        _follow(connection)


# -------------------------------------------------------------------------------- the connection


def folder() -> str:
    """Return the path of the folder that has the socket of this user's warm process."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    return os.path.join(  # noqa: PTH118 - pathlib is slow to import
        base if base.startswith("/") else os.path.expanduser("~/.cache"),  # noqa: PTH111 - as above
        "distdemo-warm",
    )


def open_folder(path: str) -> int:
    """Open the folder; nobody but this user and root can put anything into it.

    Raises:
        OSError: It doesn't exist, or others can use it.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        os.close(fd)
        raise PermissionError(f"{path} is not a private folder of this user")
    return fd


def connect() -> socket.socket | None:
    """Return a connection to this user's warm process, or None if there is none."""
    path = folder()
    try:
        os.lstat(f"{path}/{NAME}")  # without a warm process, all that it costs
    except OSError:
        return None
    import socket

    with suppress(OSError):
        fd = open_folder(path)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.settimeout(ANSWER_S)
            connection.connect(f"/proc/self/fd/{fd}/{NAME}")  # a path has 107 characters at most
            if peer(connection)[1] == os.geteuid():
                return connection
        finally:
            os.close(fd)
    return None


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return the process id and the user of the other side; of a listener, its own."""
    import socket
    import struct

    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, _ = struct.unpack("iII", credentials)
    return pid, uid


# ----------------------------------------------------------------------------------- the request


def ask(connection: socket.socket, program: str) -> dict[str, object]:
    """Send the request and return the answer; its ``reason`` says why not, or is empty.

    The request is in a file in memory, so that nobody waits for bytes. This process's descriptors
    follow the answer: in the queue of a process that hangs they would keep pipes open.

    Raises:
        OSError: The warm process has exited or doesn't answer.
        ValueError: Its answer can't be decoded.
    """
    import json
    import socket

    request = {
        "program": program,
        "argv": sys.argv,
        "path": sys.path,
        "environ": dict(os.environ),
        "facts": own_facts(),
        "descriptors": inheritable(),
    }
    file = os.memfd_create("distdemo-request", os.MFD_CLOEXEC)
    try:
        data = json.dumps(request).encode()
        if os.write(file, data) != len(data) or len(inheritable()) > MAX_DESCRIPTORS:
            raise ValueError("The request is too large")
        socket.send_fds(connection, [b"request"], [file])
    finally:
        os.close(file)
    answer = json.loads(connection.recv(1 << 16))
    return dict(answer)


def own_facts() -> dict[str, str]:
    """Return what no other process can read: which Python and distdemo this is, and more."""
    flags = (sys.flags, sys.warnoptions, sys._xoptions)  # noqa: SLF001 - documented
    facts = {
        "Python": sys.executable,
        "version of Python": sys.version,
        "environment of Python": sys.prefix,
        "flags of Python": repr((*flags, getattr(sys.stdout, "write_through", None))),  # python -u
        "sys.path": repr(sys.path[1:]),
        "distdemo": __file__,
    }
    for name in ("personality", "timerslack_ns"):
        with suppress(OSError), open(f"/proc/self/{name}") as file:  # noqa: PTH123 - as above
            facts[name] = file.read().strip()
    return facts


def inheritable() -> list[int]:
    """Return the descriptors that a child process inherits: those that the shell has opened."""
    numbers = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # the descriptor of the list itself
            if os.get_inheritable(fd):
                numbers.append(fd)
    return sorted(numbers)


def _must_run_here() -> bool:
    """Return True if the program needs this process's terminal, or its tracer or profiler."""
    if sys.argv[1:2] == [NAME] or "--pdb" in sys.argv or _is_in_background():
        return True
    tools = [sys.gettrace(), sys.getprofile()]
    if sys.version_info >= (3, 12):
        tools += map(sys.monitoring.get_tool, range(6))
    return any(tool is not None for tool in tools)


def _is_in_background() -> bool:
    """Return True if this process is a background job of its terminal."""
    with suppress(OSError):  # it has no terminal, or that of another session
        terminal = next((fd for fd in (0, 1, 2) if os.isatty(fd)), None)
        return terminal is not None and os.tcgetpgrp(terminal) != os.getpgrp()
    return False


# ----------------------------------------------------------------------------------- while it runs


def _follow(connection: socket.socket) -> NoReturn:
    """Start the program, forward signals, and exit as it does."""
    import select
    import socket

    descriptors = inheritable()
    wake: list[Any] = [wake_up_pipe()]
    for forwarded in FORWARDED:
        if signal.getsignal(forwarded) is not signal.SIG_IGN:
            signal.signal(forwarded, _ignore)
    connection.settimeout(None)
    with suppress(OSError):  # the guardian has been killed
        socket.send_fds(connection, [GO], descriptors)
    _release(descriptors)
    while True:
        if connection not in select.select([connection, *wake], [], [])[0]:
            for caught in os.read(wake[0], 64):
                _forward(connection, caught)
            continue
        kind, number = _received(connection)
        if kind != STOPPED:
            _end(kind, number)
        _stop(number)
        if not select.select(wake, [], [], 0)[0]:  # nobody stops an orphaned group
            _send(connection, bytes([signal.SIGCONT]))


def wake_up_pipe() -> int:
    """Return the end of a pipe from which the numbers of caught signals can be read."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _send(connection: socket.socket, message: bytes) -> None:
    """Send the guardian a message, unless it has exited: then `_received` says how."""
    with suppress(OSError):
        connection.send(message)


def _received(connection: socket.socket) -> bytes:
    """Return the guardian's next message. If it has been killed, so has the program."""
    for _ in range(2):
        with suppress(OSError):  # it exited without reading a signal: its message is still there
            return connection.recv(2) or bytes([KILLED, signal.SIGKILL])
    return bytes([KILLED, signal.SIGKILL])


def _ignore(*_: object) -> None:
    """Handle a signal: its number is in the wake-up pipe."""


def _release(descriptors: list[int]) -> None:
    """Point the descriptors at /dev/null: the program alone decides when a pipe is closed."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in descriptors:
        if not os.isatty(fd):
            os.dup2(null, fd)


def _forward(connection: socket.socket, number: int) -> None:
    """Send the program a signal, unless it would read the terminal in the background."""
    asks = sys.argv[1:2] and sys.argv[1] in ASKS_QUESTIONS
    if number == signal.SIGCONT and asks and _is_in_background():
        _stop(signal.SIGTTIN)
    elif number in FORWARDED:
        _send(connection, bytes([number]))


def _stop(number: int) -> None:
    """Stop this process until it is continued, so that the shell sees a stopped job."""
    if number != signal.SIGSTOP:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    if number in FORWARDED:
        signal.signal(number, _ignore)


def _end(kind: int, number: int) -> NoReturn:
    """Exit with an exit code, or die of the signal that the program has died of."""
    if kind == KILLED:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has written its own
        with suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(number)
