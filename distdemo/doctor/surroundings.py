"""All that a check may look at. A test hands over made-up ones; ``system`` has the real ones."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from distdemo.doctor import system
from distdemo.doctor.system import Answer, Clock, Interface, Lookup, Room
from distdemo.doctor.torch_facts import TorchFacts, torch_facts
from distdemo.launcher.limits import Limit


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine, its settings, and the means to ask it. Everything here is bounded in time.

    Attributes:
        environ: the environment variables.
        hostname: what this machine calls itself.
        root: below which /proc, /sys, /dev and /etc are read.
        home: the user's directory.
        python: the interpreter that ranks run on.
        resolve: addresses of a name.
        reverse: names of an address.
        interfaces: the network interfaces.
        loopback: why two ends on 127.0.0.1 can't talk; empty if they can.
        bind: why a port of an address is not to be had; empty if it is.
        room: the size of a file system; None where there is none.
        writable: whether files can be made in a directory.
        rlimit: a soft and a hard limit by its name in ``resource``, ``RLIMIT_NOFILE``; None
            where the system has none, -1 for unlimited.
        limits: how many ranks memory, processes and files allow, in this order, for a start
            method.
        cores: how many this process may use, and how many there are.
        clock: what the kernel says of its clock; None where it does not tell.
        ask: what a command answers within so many seconds.
        installed: whether this Python has a distribution of that name.
        torch: what the installed torch says of itself.
    """

    environ: Mapping[str, str]
    hostname: str
    root: Path = Path("/")
    home: Path = field(default_factory=Path.home)
    python: Path = field(default_factory=system.python)
    resolve: Callable[[str], Lookup] = system.resolve
    reverse: Callable[[str], Lookup] = system.reverse
    interfaces: Callable[[], tuple[Interface, ...]] = system.interfaces
    loopback: Callable[[], str] = system.loopback
    bind: Callable[[str, int], str] = system.bind
    room: Callable[[Path], Room | None] = system.room
    writable: Callable[[Path], bool] = system.writable
    rlimit: Callable[[str], tuple[int, int] | None] = system.rlimit
    limits: Callable[[str], Sequence[Limit]] = system.limits
    cores: Callable[[], tuple[int, int]] = system.cores
    clock: Callable[[], Clock | None] = system.clock
    ask: Callable[[Sequence[str], float], Answer] = system.ask
    installed: Callable[[str], bool] = system.installed
    torch: Callable[[], TorchFacts] = torch_facts

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

    def set_variables(self, *prefixes: str) -> dict[str, str]:
        """The environment variables whose names begin so, in order."""
        return {name: self.environ[name] for name in sorted(self.environ) if _any(name, prefixes)}


def _any(name: str, prefixes: Sequence[str]) -> bool:
    return any(map(partial(str.startswith, name), prefixes))


def real() -> Surroundings:
    """This process's own."""
    import os
    import socket

    return Surroundings(dict(os.environ), socket.gethostname(), ask=Remembering(system.ask))


class Remembering:
    """Asks each question once, also where several checks ask it at the same time.

    Args:
        ask: asks.
    """

    def __init__(self, ask: Callable[[Sequence[str], float], Answer]) -> None:
        self._ask = ask
        self._guard = threading.Lock()
        self._questions: dict[tuple[str, ...], threading.Lock] = {}
        self._answers: dict[tuple[str, ...], Answer] = {}

    def __call__(self, command: Sequence[str], seconds: float) -> Answer:
        """The answer, as soon as anybody has it."""
        question = tuple(command)
        with self._guard:
            mine = self._questions.setdefault(question, threading.Lock())
        with mine:
            if question not in self._answers:
                self._answers[question] = self._ask(command, seconds)
            return self._answers[question]
