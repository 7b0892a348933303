"""Start programs in tests, watch them, and check what they leave behind."""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forked import as_command, as_python

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

PATIENCE = 100.0  # seconds after which a test gives up
MARK = "DISTDEMO_TEST_MARK"  # an environment variable that only the tests' own processes carry
# Folder of forked programs: the system shows the environment that a process had at the last exec.
PLACE = "distdemo-test-"


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Return True if the condition becomes true in this time; check it every few milliseconds."""
    until = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() > until:
            return False
        pause.wait(0.005)
    return True


def marked_processes(mark: str) -> list[int]:
    """Return the living processes that were started, directly or not, with this mark."""
    pids = []
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            place = (entry / "cwd").readlink().name
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue  # it has just exited
        if (wanted in environment or place.startswith(PLACE + mark)) and state != "Z":
            pids.append(int(entry.name))
    return pids


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    pids: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            pids += map(int, (task / "children").read_text().split())
    except OSError:
        return []
    return pids


def segments() -> set[str]:
    """Return the names of this machine's shared-memory segments."""
    return set(os.listdir("/dev/shm"))  # looked at only


def unused(names: set[str]) -> set[str]:
    """Return those of these segments that no living process has in its memory."""
    left = set(names)
    for maps in Path("/proc").glob("[0-9]*/maps") if left else ():
        with suppress(OSError):  # it has just exited
            text = maps.read_text()
            left -= {name for name in left if f"/{name}" in text}
    return left


def leftovers(before: set[str]) -> set[str]:
    """Return new segments that nobody uses, except those of an MPI world of another test."""
    return unused({name for name in segments() - before if not name.startswith("mpich")})


def tcp_addresses(pid: int, *, listening: bool = False, ports: bool = False) -> list[str]:
    """Return the local addresses of a process's TCP sockets, or their ports, as the kernel does.

    A process that has exited has none.
    """
    inodes = set()
    addresses = []
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # the descriptor was closed
                target = str(Path(f"/proc/{pid}/fd/{fd}").readlink())
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[9] in inodes and (words[3] == "0A" or not listening):
                    addresses.append(words[1].split(":")[ports])
    return addresses


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def free_port() -> int:
    """Return a port of loopback that is free and that the system assigns to nobody.

    It is below those that connections and listeners without a choice get, so that no test beside
    this one is given it between now and its use.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(min(20_000, first - 1), first)
    for port in random.sample(candidates, len(candidates)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("every port is taken")


@dataclass
class Run:
    """A program that is running, and checks of what it leaves behind."""

    process: subprocess.Popen[str]
    mark: str
    temporary: Path
    shared_memory: set[str]
    over_mpi: bool

    def finish(self, seconds: float = PATIENCE) -> tuple[int, str, str]:
        """Return exit code, stdout without the greeting of gloo in torch 2.8-2.10, and stderr."""
        out, err = self.process.communicate(timeout=seconds)
        if out:
            lines = out.splitlines(keepends=True)
            out = "".join(line for line in lines if not line.startswith("[Gloo] Rank"))
        return self.process.returncode, out, err

    def ranks(self, count: int) -> list[int]:
        """Wait until it has this many child processes, and return them: its ranks."""
        assert wait_until(lambda: len(children(self.process.pid)) >= count, PATIENCE)
        return children(self.process.pid)

    def left(self) -> list[int]:
        """Return its living processes."""
        return marked_processes(self.mark)

    def leaves_nothing(self, seconds: float = 15.0) -> None:
        """Assert that no process, temporary file or shared-memory segment is left.

        A segment tells nobody who made it. One that a living process uses is of a world beside this
        one, whose processes are all gone by then; that world may also be about to remove it.
        """
        assert wait_until(lambda: not marked_processes(self.mark), seconds), marked_processes(
            self.mark
        )
        assert list(self.temporary.iterdir()) == []
        new = {
            name
            for name in segments() - self.shared_memory
            if self.over_mpi or not name.startswith("mpich")  # of a killed MPI world beside
        }
        assert wait_until(lambda: not unused(new & segments())), unused(new & segments())


@contextmanager
def started(
    words: list[str],
    temporary: Path,
    *,
    by: Callable[..., dict[str, Any]] | None = None,
    program: str | Path = sys.executable,
    env: Mapping[str, str | None] | None = None,
    enter: Callable[[], None] | None = None,
    **options: Any,
) -> Iterator[Run]:
    """Start a program; kill whatever of it is left at the end of the block.

    Args:
        words: Arguments of the program.
        temporary: Folder for its temporary files.
        by: ``as_command`` or ``as_python``: fork it from here, so that it need not import torch.
        program: Program to start otherwise.
        env: Changes to this process's environment; None removes a variable.
        enter: Function that a forked program calls first.
        options: Options of Popen.
    """
    mark = uuid.uuid4().hex
    changes = {MARK: mark, "TMPDIR": str(temporary), "NO_COLOR": "1", **(env or {})}
    environment = {
        name: value for name, value in {**os.environ, **changes}.items() if value is not None
    }
    defaults: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    before = segments()
    with tempfile.TemporaryDirectory(prefix=PLACE + mark) as place:
        if by is None:
            defaults["env"] = environment
        else:
            program = "python"
            defaults |= {"cwd": place, **by(words, environment, enter)}
        process = subprocess.Popen([program, *words], **{**defaults, **options})
        run = Run(process, mark, temporary, before, any("mpi" in str(word) for word in words))
        try:
            yield run
        finally:
            for pid in marked_processes(mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            process.wait(PATIENCE)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


commanded = partial(started, by=as_command)
"""Start the command itself, forked from here."""
warmed = partial(started, by=as_python)
"""Start a Python program, forked from here."""


@contextmanager
def nodes(
    commands: Sequence[list[str]], folder: Path, settings: Sequence[dict[str, str]] = ({}, {})
) -> Iterator[list[Run]]:
    """Run these commands in parallel, each with its own environment variables."""
    with ExitStack() as stack:
        runs = []
        for number, (command, env) in enumerate(zip(commands, settings, strict=True)):
            temporary = folder / str(number)
            temporary.mkdir()
            runs.append(stack.enter_context(commanded(command, temporary, env=env)))
        yield runs


def terminals(folder: Path, *commands: list[str], port: int = 0) -> AbstractContextManager[Any]:
    """Run one command on each of two nodes, or the same command on both."""
    master = f"127.0.0.1:{port or free_port()}"
    both = commands * 2 if len(commands) == 1 else commands
    where = ["--nnodes", "2", "--master", master, "--node-rank"]
    return nodes([[*words, *where, str(node)] for node, words in enumerate(both)], folder)


def by_hand(port: int, rank: int, size: int) -> dict[str, str]:
    """Return the environment of one rank of a world set up by hand."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {"RANK": str(rank), "WORLD_SIZE": str(size), **where}


def run_joined(words: list[str], folder: Path) -> list[tuple[int, str, str]]:
    """Run a command as the two ranks of a world that was set up by hand; return how both ended."""
    port = free_port()
    with nodes([words] * 2, folder, [by_hand(port, rank, 2) for rank in range(2)]) as runs:
        ended = [run.finish() for run in runs]
        for run in runs:
            run.leaves_nothing()
    return ended


def distdemo(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, to its end."""
    options = {"capture_output": True, "text": True, "timeout": PATIENCE, **options}
    return subprocess.run([sys.executable, "-m", "distdemo", *arguments], check=False, **options)


def document(*arguments: str, status: int = 0) -> Any:
    """Return the JSON document of a command, which must exit with this status and print no more.

    On a slow machine it may also print how long it has taken so far.
    """
    done = distdemo(*arguments, "--format", "json")
    assert done.returncode == status, done.stdout + done.stderr
    assert re.sub(r"^.* \(\d+ s\)\n", "", done.stderr, flags=re.MULTILINE) == ""
    return json.loads(done.stdout)
