"""The machine that the checks examine. Every query has a time limit.

Tests simulate a machine by passing other functions to ``System``.
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
from distdemo.joined.interfaces import addresses
from distdemo.launcher import limits as launcher_limits
from distdemo.launcher.limits import Limit, loopback_problem
from distdemo.launcher.records import WorldSpec
from distdemo.measure.environment import cores

NETWORK_TIMEOUT_S = 2.0  # for a name service, or a connection over loopback
MAX_OUTPUT = 1 << 20  # characters of a program's output that are kept

# ---------------------------------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class Lookup:
    """Result of a name lookup.

    Attributes:
        found: Addresses; empty if there are none.
        seconds: Seconds until the answer.
        error: Error message; empty on success or timeout.
        late: True if the lookup timed out.
    """

    found: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str = ""
    late: bool = False


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface.

    Attributes:
        addresses: IPv4 addresses, including secondary ones, then IPv6 except link-local ones.
        up: True if it is enabled and has a link.
    """

    name: str
    addresses: tuple[str, ...] = ()
    up: bool = True
    loopback: bool = False


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Total and free bytes of a file system."""

    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Output of a program on stdout and stderr.

    Attributes:
        status: Exit code; None if it timed out or couldn't be started.
        error: Reason it couldn't be started; empty if it was started.
    """

    status: int | None
    text: str = ""
    error: str = ""

    @property
    def late(self) -> bool:
        """True if the program timed out."""
        return self.status is None and not self.error


@dataclass(frozen=True, slots=True)
class TorchFacts:
    """Facts about the installed torch.

    Attributes:
        cuda: CUDA release that it was built for, or "".
        rocm: ROCm release that it was built for, or "".
        distributed: True if it includes torch.distributed.
        backends: Versions of the underlying libraries, by built-in backend.
        implementations: Implementation by backend name, if torch has several.
    """

    version: str
    cuda: str = ""
    rocm: str = ""
    distributed: bool = True
    backends: Mapping[str, str] = field(default_factory=lambda: {"gloo": ""})
    implementations: Mapping[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------------------------------- queries


def resolve(name: str) -> Lookup:
    """Look up the addresses of a name, in the system's order.

    The lookup has its own thread, which is abandoned after ``NETWORK_TIMEOUT_S``.
    """
    found: list[Lookup] = []
    began = time.monotonic()

    def poll() -> None:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as failure:
            error = getattr(failure, "strerror", None) or str(failure)
            found.append(Lookup((), time.monotonic() - began, error))
        else:
            addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in answers))
            found.append(Lookup(addresses, time.monotonic() - began))

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    thread.join(NETWORK_TIMEOUT_S)
    return found[0] if found else Lookup(seconds=NETWORK_TIMEOUT_S, late=True)


def interfaces() -> tuple[Interface, ...]:
    """Return all interfaces in the kernel's order, which gloo and NCCL also use."""
    known = addresses()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return tuple(_interface(probe, name, known) for _, name in socket.if_nameindex())


def _interface(probe: socket.socket, name: str, known: Mapping[str, tuple[str, ...]]) -> Interface:
    """Return an interface, including the addresses of its labels (``eth0:1``)."""

    def ask(number: int) -> bytes:
        """Return the bytes after the name in ``struct ifreq``, or zeros on error."""
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


def loopback() -> tuple[str, str]:
    """Return why connections over 127.0.0.1 fail, and what to try; two empty strings if not."""
    reason, hint = loopback_problem()
    if reason:
        return reason, hint
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(NETWORK_TIMEOUT_S)
            address = server.getsockname()
            with socket.create_connection(address, NETWORK_TIMEOUT_S), server.accept()[0]:
                return "", ""
    except OSError as error:
        reason = f"A connection over 127.0.0.1 fails ({error.strerror or error})"
        return reason, "Look for a packet filter that blocks it: nft list ruleset."


def bind(port: int) -> str:
    """Return the reason this port can't be bound, or "" if it is free. Never listens on it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return "in use" if error.errno == errno.EADDRINUSE else str(error.strerror or error)
    return ""


def disk_space(path: Path) -> DiskSpace | None:
    """Return the size of the directory's file system, or None if it doesn't exist."""
    try:
        found = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def writable(path: Path) -> bool:
    """Return True if a file can be created in this directory."""
    try:
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def rlimit(name: str) -> tuple[int, int] | None:
    """Return a soft and a hard limit (-1: unlimited), or None if there is no such limit."""
    try:
        import resource

        soft, hard = resource.getrlimit(getattr(resource, name))
    except (ImportError, AttributeError, OSError):
        return None
    unlimited = resource.RLIM_INFINITY
    return (-1 if soft == unlimited else soft, -1 if hard == unlimited else hard)


def limits(start_method: str) -> Sequence[Limit]:
    """Return the limits on ranks by memory, processes and open files, in this order."""
    return launcher_limits.limits(WorldSpec(1, start_method=start_method))


def installed(name: str) -> bool:
    """Return True if a distribution of this name is installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def torch() -> TorchFacts:
    """Return the facts about the installed torch. Doesn't initialise a GPU.

    Raises:
        UsageError: torch is not installed, or broken.
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


class ProgramRunner:
    """Cached, thread-safe runner for external programs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held while programs are started or the runner ends
        self._answers: dict[tuple[str, ...], Future[Answer]] = {}
        self._ended = False
        self.running: set[subprocess.Popen[str]] = set()

    def __call__(self, command: Sequence[str], seconds: float) -> Answer:
        """Run a command, or return the cached output of an earlier run."""
        key = tuple(command)
        with self._lock:
            is_new = key not in self._answers
            answer = self._answers.setdefault(key, Future())
        if is_new:
            try:
                answer.set_result(self._run(key, seconds))
            except BaseException as error:  # every waiting check receives it
                answer.set_exception(error)
                raise
        return answer.result()

    def _run(self, command: Sequence[str], seconds: float) -> Answer:
        """Run a command; after a timeout, kill it and its children."""
        with self._lock:
            if self._ended:
                return Answer(None, error="doctor was stopped")
            try:
                process = subprocess.Popen(  # noqa: S603 - on PATH or in Python's environment
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
        return Answer(process.returncode, text[:MAX_OUTPUT])

    def end(self) -> None:
        """Kill all running programs and start no more."""
        with self._lock:
            self._ended = True
        for process in tuple(self.running):
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class System:
    """The machine: its environment and functions that query it.

    Attributes:
        hostname: Hostname of this machine.
        root: Directory that contains /proc, /sys, /dev and /etc.
        python: Python interpreter of the ranks.
        run: Function that runs a command with a time limit in seconds.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    hostname: str = field(default_factory=socket.gethostname)
    root: Path = Path("/")
    python: Path = Path(sys.executable)
    resolve: Callable[[str], Lookup] = resolve
    interfaces: Callable[[], tuple[Interface, ...]] = interfaces
    loopback: Callable[[], tuple[str, str]] = loopback
    bind: Callable[[int], str] = bind
    disk_space: Callable[[Path], DiskSpace | None] = disk_space
    writable: Callable[[Path], bool] = writable
    rlimit: Callable[[str], tuple[int, int] | None] = rlimit
    limits: Callable[[str], Sequence[Limit]] = limits
    cores: Callable[[], tuple[int, int]] = cores
    run: Callable[[Sequence[str], float], Answer] = field(default_factory=ProgramRunner)
    installed: Callable[[str], bool] = installed
    torch: Callable[[], TorchFacts] = torch

    def text(self, path: str) -> str:
        """Return the contents of a file such as ``proc/meminfo``, or "" if it is unreadable."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def number(self, path: str) -> int | None:
        """Return the integer at the start of a file, or None."""
        words = self.text(path).split()
        try:
            return int(words[0]) if words else None
        except ValueError:
            return None

    def exists(self, path: str) -> bool:
        """Return True if the file or directory exists."""
        return (self.root / path).exists()

    def which(self, name: str) -> Path | None:
        """Return the path of the program that a shell would run, or None."""
        found = shutil.which(name, path=self.environ.get("PATH", ""))
        return Path(found) if found else None
