"""The system as it is: name services, limits, the clock, other programs. All bounded in time."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from distdemo.doctor.interface_list import Interface, interfaces
from distdemo.launcher import limits as launcher_limits
from distdemo.launcher.limits import Limit
from distdemo.launcher.records import WorldSpec

__all__ = ["Answer", "Clock", "Interface", "Lookup", "Room", "interfaces"]

PATIENCE = 2.0  # seconds that a name service gets
ENOUGH = 1 << 20  # bytes that are read of a program's answer
running: set[subprocess.Popen[str]] = set()
"""The programs that are being asked just now."""
_over = threading.Event()  # nobody waits for answers any more
_starting = threading.Lock()  # so that no program starts while all are ended


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a name service answered.

    Attributes:
        found: addresses, or names; empty if it knows none.
        seconds: until it answered.
        error: what it said instead; empty if it found something or did not answer.
        late: it had not answered when its time was over.
    """

    found: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str = ""
    late: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """A file system's size and what of it is free, in bytes."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Clock:
    """What the kernel says of its clock.

    Attributes:
        synchronised: something keeps it in step.
        error: the largest error that it may have, in seconds; 0 if unknown.
    """

    synchronised: bool
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program wrote, on both streams.

    Attributes:
        status: its exit code; None if it did not end in time or could not be started.
        error: why it could not be started; empty if it was.
    """

    status: int | None
    text: str = ""
    error: str = ""

    @property
    def late(self) -> bool:
        """Whether it was started and had not ended when its time was over."""
        return self.status is None and not self.error


def resolve(name: str) -> Lookup:
    """The addresses of a name, in the system's order."""

    def look() -> tuple[str, ...]:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(str(address[0]) for *_, address in found))

    return _bounded(look)


def reverse(address: str) -> Lookup:
    """The name of an address."""

    def look() -> tuple[str, ...]:
        return (socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0],)

    return _bounded(look)


def _bounded(look: Callable[[], tuple[str, ...]]) -> Lookup:
    """The look-up in a thread of its own, which is left alone when its time is over."""
    found: list[Lookup] = []
    began = time.monotonic()

    def work() -> None:
        try:
            answer, error = look(), ""
        except (OSError, UnicodeError) as failure:
            answer, error = (), getattr(failure, "strerror", None) or str(failure)
        found.append(Lookup(answer, time.monotonic() - began, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return found[0] if found else Lookup(seconds=PATIENCE, late=True)


def loopback() -> str:
    """Why two ends on 127.0.0.1 can't talk; empty if they can."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(PATIENCE)
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), PATIENCE), server.accept()[0]:
                return ""
    except OSError as error:
        return error.strerror or str(error)


def bind(address: str, port: int) -> str:
    """Why this port of this address is not to be had; empty if it is.

    Nothing listens on it meanwhile: that it can be bound tells as much.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return "in use" if error.errno == errno.EADDRINUSE else str(error.strerror or error)
    return ""


def room(path: Path) -> Room | None:
    """The size of the file system that holds this directory; None where there is none."""
    try:
        found = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def writable(path: Path) -> bool:
    """Whether files can be made in this directory, by making one."""
    try:
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def rlimit(name: str) -> tuple[int, int] | None:
    """A soft and a hard limit, -1 for unlimited; None where the system has none of that name."""
    try:
        import resource

        soft, hard = resource.getrlimit(getattr(resource, name))
    except (ImportError, AttributeError, OSError):
        return None
    unlimited = resource.RLIM_INFINITY
    return (-1 if soft == unlimited else soft, -1 if hard == unlimited else hard)


def limits(start_method: str) -> Sequence[Limit]:
    """How many ranks memory, processes and open files allow, in this order."""
    return launcher_limits.limits(WorldSpec(1, start_method=start_method))


def cores() -> tuple[int, int]:
    """How many cores this process may use, and how many there are."""
    total = os.cpu_count() or 1
    try:
        return len(os.sched_getaffinity(0)), total
    except AttributeError:  # not on macOS
        return total, total


def python() -> Path:
    """The interpreter, not followed to the installation that an environment is made of."""
    return Path(sys.executable)


def installed(name: str) -> bool:
    """Whether this Python has a distribution of that name."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def clock() -> Clock | None:
    """What ``adjtimex(2)`` says; None on systems without it."""
    import ctypes

    buffer = (ctypes.c_long * 64)()  # struct timex is 208 bytes; with no mode it is only read
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (AttributeError, OSError):
        return None
    if state < 0:
        return None
    time_error, unsynchronised = 5, 0x40  # TIME_ERROR and STA_UNSYNC of linux/timex.h
    words = (ctypes.c_int * 128).from_buffer(buffer)
    status = words[10]  # behind modes, offset, freq, maxerror and esterror
    in_step = state != time_error and not status & unsynchronised
    return Clock(in_step, buffer[3] / 1e6)  # maxerror, in µs


def ask(command: Sequence[str], seconds: float) -> Answer:
    """What a program answers to a command line; it and its children are gone at the end."""
    try:
        process = _started(command)
    except OSError as error:
        return Answer(None, error=error.strerror or str(error))
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        return Answer(None)
    finally:
        running.discard(process)
    return Answer(process.returncode, text[:ENOUGH])


def _started(command: Sequence[str]) -> subprocess.Popen[str]:
    """The program, with what it writes in one pipe.

    Raises:
        OSError: it can't be started, or nobody waits for its answer any more.
    """
    with _starting:
        if _over.is_set():
            raise InterruptedError(errno.EINTR, "nobody waits for the answer any more")
        process = subprocess.Popen(  # noqa: S603 - programs found on PATH or beside the interpreter
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        running.add(process)
    return process


def begin_questions() -> None:
    """From now on programs may be asked."""
    _over.clear()


def end_questions() -> None:
    """Kill every program that is still being asked, after Ctrl-C perhaps, and start no other.

    A check that lost one answer would ask on, in a thread that ends with this process.
    """
    with _starting:
        _over.set()
    for process in tuple(running):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
