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
from contextlib import closing, suppress

TYPE_CHECKING = False  # typing is slow to import
if TYPE_CHECKING:
    import socket
    from typing import Any, NoReturn

NAME = "warm"
"""Name of the socket in its folder."""
ANSWER_S = 5.0  # for the other side to answer; then the program runs here
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
RUN_HERE = {"--pdb", "--show-completion", "--install-completion"}
"""Options that need this process: its terminal, or its parent, which tells the shell's name."""
ASKS_QUESTIONS = ("learn", "shell")
"""Commands that read the terminal: in the background they stop, as if with SIGTTIN."""


def hand_over(program: str) -> None:
    """Run a program in the warm process and exit as it does; return if it must run here.

    Args:
        program: A ``distdemo.warm.records.Program``.
    """
    try:
        connection = connect()
    except OSError:
        return
    with connection:
        if not _must_run_here() and _is_accepted(connection, program):
            _follow(connection)


def runs_only(program: str) -> bool:
    """Return True if this process is a script of this name, or ``python -m``, and nothing else."""
    main = sys.modules["__main__"]
    script = getattr(main, "__file__", "")
    is_script = script == sys.argv[0] and os.path.basename(script) == program  # noqa: PTH119 - pathlib is slow to import
    return is_script or getattr(main.__spec__, "name", "") == f"{program}.__main__"


# -------------------------------------------------------------------------------- the connection


def folder() -> str:
    """Return the path of the folder that has the socket of this user's warm process."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        os.close(open_folder(base if base.startswith("/") else ""))
    except OSError:  # not set, or others can put something there
        home = os.path.expanduser("~")  # noqa: PTH111 - pathlib is slow to import
        return f"{home}/.cache/distdemo-warm-{os.uname().nodename}"  # machines may share it
    return f"{base}/distdemo-warm"


def open_folder(path: str) -> int:
    """Open the folder, into which only this user and root can put anything.

    Raises:
        OSError: It doesn't exist, or others can use it.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        os.close(fd)
        raise PermissionError(f"{path} is not a private folder of this user")
    return fd


def connect() -> socket.socket:
    """Return a connection to this user's warm process.

    Raises:
        FileNotFoundError: There is none.
        OSError: It can't be used.
    """
    path = folder()
    os.lstat(f"{path}/{NAME}")  # without a warm process, all that it costs
    import socket

    from distdemo.platform import system

    fd = open_folder(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(ANSWER_S)
        connection.connect(f"/proc/self/fd/{fd}/{NAME}")  # a path has 107 characters at most
        if system.peer(connection)[1] != os.geteuid():
            raise PermissionError(f"The process at {path}/{NAME} isn't this user's")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(fd)
    return connection


# ----------------------------------------------------------------------------------- the request


def _is_accepted(connection: socket.socket, program: str) -> bool:
    """Return True if the program can run in the warm process, as it answers."""
    try:
        return not ask(connection, program)["reason"]
    except (OSError, ValueError, KeyError, TypeError):  # it has exited, or is no warm process
        return False


def ask(connection: socket.socket, program: str) -> dict[str, object]:
    """Send the request and return the answer; its ``reason`` says why not, or is empty.

    The request is in a file in memory, so that neither side waits for bytes. This process's
    descriptors follow the answer: in the queue of a process that hangs they would keep pipes open.

    Raises:
        OSError: The warm process has exited or doesn't answer.
        ValueError: The request is too large, or the answer can't be decoded.
    """
    import json
    import socket

    from distdemo.platform import system

    request = {
        "program": program,
        "executable": sys.executable,
        "orig_argv": sys.orig_argv,
        "argv": sys.argv,
        "path": sys.path,
        "environ": dict(os.environ),
        "facts": own_facts(),
        "descriptors": inheritable(),
    }
    with closing(system.shared_file("request")) as file:
        data = json.dumps(request).encode()
        if len(request["descriptors"]) > MAX_DESCRIPTORS:
            raise ValueError(f"more than {MAX_DESCRIPTORS} descriptors are open")
        os.write(file.fd, data)
        socket.send_fds(connection, [b"request"], [file.fd])
    answer = connection.recv(1 << 16)
    if not answer:
        raise ConnectionError(
            "it refused the request, which is too large or of another version of distdemo"
        )
    return dict(json.loads(answer))


def own_facts() -> dict[str, str]:
    """Return what no other process can read: which Python and distdemo this is, and more."""
    flags = (sys.flags, sys.warnoptions, sys._xoptions)  # noqa: SLF001 - documented
    facts = {
        "Python": os.path.realpath(sys.executable),
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
    if sys.argv[1:2] == [NAME] or RUN_HERE.intersection(sys.argv) or _is_in_background():
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


def _follow(connection: socket.socket) -> None:
    """Start the program, forward signals, and exit as it does; return if it can't be started."""
    import select
    import socket

    descriptors = inheritable()
    try:
        socket.send_fds(connection, [GO], descriptors)
    except OSError:  # nothing has started
        return
    connection.settimeout(None)
    wake: list[Any] = [wake_up_pipe(FORWARDED)]
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
        if not select.select(wake, [], [], 0)[0]:  # an orphaned group isn't stopped
            _send(connection, bytes([signal.SIGCONT]))


def wake_up_pipe(numbers: tuple[int, ...]) -> int:
    """Catch signals, unless they are ignored; return a pipe with the numbers of those that come."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _ignore)
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
