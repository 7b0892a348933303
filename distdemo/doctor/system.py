"""The machine that the checks look at, and the means to ask it. All of it is bounded in time.

A test makes up a machine by handing other answers to ``Surroundings``.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from pathlib import Path

from distdemo import backends
from distdemo.launcher import limits as launcher_limits
from distdemo.launcher.joined.interfaces import addresses
from distdemo.launcher.limits import Limit
from distdemo.launcher.records import WorldSpec

PATIENCE = 2.0  # seconds that a name service gets
ENOUGH = 1 << 20  # characters that are read of a program's answer

# ---------------------------------------------------------------------------------- what is seen


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a name service answered.

    Attributes:
        found: addresses; empty if it knows none.
        seconds: until it answered.
        error: what it said instead; empty if it found something or did not answer.
        late: it had not answered when its time was over.
    """

    found: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str = ""
    late: bool = False


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface.

    Attributes:
        addresses: IPv4 first, second ones too; then IPv6 without those that hold on one link only.
        up: switched on, and with a cable.
    """

    name: str
    addresses: tuple[str, ...] = ()
    up: bool = True
    loopback: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """A file system's size and what of it is free, in bytes."""

    total: int
    free: int


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


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """What the installed torch says of itself.

    Attributes:
        cuda: the CUDA release that it was built for; empty for none; ``rocm`` likewise.
        distributed: torch.distributed is part of it.
        backends: those that it was built with, each with the version of the library behind it.
        implementations: what the name of one of them means in this torch, where that has changed.
    """

    version: str
    cuda: str = ""
    rocm: str = ""
    distributed: bool = True
    backends: Mapping[str, str] = field(default_factory=lambda: {"gloo": ""})
    implementations: Mapping[str, str] = field(default_factory=dict)


# -------------------------------------------------------------------------------- how it is asked


def resolve(name: str) -> Lookup:
    """Look up the addresses of a name, in the system's order.

    The lookup has its own thread, which is abandoned after ``PATIENCE``.
    """
    found: list[Lookup] = []
    began = time.monotonic()

    def look() -> None:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as failure:
            error = getattr(failure, "strerror", None) or str(failure)
            found.append(Lookup((), time.monotonic() - began, error))
        else:
            addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in answers))
            found.append(Lookup(addresses, time.monotonic() - began))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return found[0] if found else Lookup(seconds=PATIENCE, late=True)


def interfaces() -> tuple[Interface, ...]:
    """All of them, in the kernel's order, which is the order in which gloo and NCCL look."""
    known = addresses()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return tuple(_interface(probe, name, known) for _, name in socket.if_nameindex())


def _interface(probe: socket.socket, name: str, known: Mapping[str, tuple[str, ...]]) -> Interface:
    """One of them, with the addresses under a label of it (``eth0:1``) too."""

    def ask(number: int) -> bytes:
        """What the kernel writes behind the name in ``struct ifreq``; zeros if it refuses."""
        try:
            import fcntl

            request = struct.pack("16s24x", name.encode()[:15])
            return bytes(fcntl.ioctl(probe.fileno(), number, request)[16:])
        except (ImportError, OSError):
            return bytes(24)

    own = [each for label in known if label.partition(":")[0] == name for each in known[label]]
    sixes = [each for each in own if ":" in each and not IPv6Address(each).is_link_local]
    flags = struct.unpack_from("=H", ask(0x8913))[0]  # SIOCGIFFLAGS of linux/sockios.h
    up, loop, cable = flags & 0x1, flags & 0x8, flags & 0x40  # of linux/if.h
    return Interface(
        name,
        (*(each for each in own if ":" not in each), *sixes),
        up=bool(up and cable),
        loopback=bool(loop),
    )


def loopback() -> str:
    """Why two ends on 127.0.0.1 can't talk; empty if they can."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(PATIENCE)
            place = server.getsockname()
            with socket.create_connection(place, PATIENCE), server.accept()[0]:
                return ""
    except OSError as error:
        return error.strerror or str(error)


def bind(port: int) -> str:
    """Return why this port can't be bound, or "" if it is free. Never listens on it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
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


def installed(name: str) -> bool:
    """Whether this Python has a distribution of that name."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def torch() -> TorchFacts:
    """Of the torch that is loaded; no GPU is initialised.

    Raises:
        UsageError: it is not installed, or broken.
    """
    from distdemo.launcher.torch_import import load_torch

    load_torch()
    import torch
    import torch.distributed as dist

    here = dist.is_available()
    known = {name: getattr(dist, f"is_{name}_available", None) for name in backends.REGISTRY}
    built = [name for name, available in known.items() if here and available and available()]
    meant = {name: backends.REGISTRY[name].implementation() for name in built}
    return TorchFacts(
        version=str(torch.__version__),
        cuda=str(torch.version.cuda or ""),
        rocm=str(torch.version.hip or ""),
        distributed=here,
        backends={name: backends.REGISTRY[name].version() for name in built},
        implementations={name: each for name, each in meant.items() if each},
    )


class Questions:
    """Asks programs, each question once, also where several checks ask it at the same time."""

    def __init__(self) -> None:
        self._guard = threading.Lock()  # no program starts while all are ended
        self._answers: dict[tuple[str, ...], Future[Answer]] = {}
        self._over = False
        self.running: set[subprocess.Popen[str]] = set()

    def __call__(self, command: Sequence[str], seconds: float) -> Answer:
        """What a program answers to a command line, as soon as it is known."""
        question = tuple(command)
        with self._guard:
            is_new = question not in self._answers
            answer = self._answers.setdefault(question, Future())
        if is_new:
            try:
                answer.set_result(self._ask(question, seconds))
            except BaseException as error:  # every check that asks this gets to know
                answer.set_exception(error)
                raise
        return answer.result()

    def _ask(self, command: Sequence[str], seconds: float) -> Answer:
        """The answer; the program and its children are gone at the end."""
        with self._guard:
            if self._over:
                return Answer(None, error="the doctor was stopped")
            try:
                process = subprocess.Popen(  # noqa: S603 - programs found on PATH or beside the interpreter
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                )
            except OSError as error:
                return Answer(None, error=error.strerror or str(error))
            self.running.add(process)
        try:
            text, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            return Answer(None)
        finally:
            self.running.discard(process)
        return Answer(process.returncode, text[:ENOUGH])

    def end(self) -> None:
        """Kill every program that is still being asked, after Ctrl-C perhaps; start no other."""
        with self._guard:
            self._over = True
        for process in tuple(self.running):
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine, its settings, and the means to ask it.

    Attributes:
        hostname: what this machine calls itself.
        root: below which /proc, /sys, /dev and /etc are read.
        python: the interpreter that ranks run on.
        ask: what a command answers within a number of seconds.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    hostname: str = field(default_factory=socket.gethostname)
    root: Path = Path("/")
    python: Path = Path(sys.executable)
    resolve: Callable[[str], Lookup] = resolve
    interfaces: Callable[[], tuple[Interface, ...]] = interfaces
    loopback: Callable[[], str] = loopback
    bind: Callable[[int], str] = bind
    room: Callable[[Path], Room | None] = room
    writable: Callable[[Path], bool] = writable
    rlimit: Callable[[str], tuple[int, int] | None] = rlimit
    limits: Callable[[str], Sequence[Limit]] = limits
    cores: Callable[[], tuple[int, int]] = cores
    ask: Callable[[Sequence[str], float], Answer] = field(default_factory=Questions)
    installed: Callable[[str], bool] = installed
    torch: Callable[[], TorchFacts] = torch

    def text(self, path: str) -> str:
        """What a file holds, ``proc/meminfo``; empty if it can't be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def number(self, path: str) -> int | None:
        """The whole number that a file begins with; None if there is none."""
        words = self.text(path).split()
        try:
            return int(words[0]) if words else None
        except ValueError:
            return None

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        return (self.root / path).exists()

    def which(self, name: str) -> Path | None:
        """The program that a shell would run."""
        found = shutil.which(name, path=self.environ.get("PATH", ""))
        return Path(found) if found else None
