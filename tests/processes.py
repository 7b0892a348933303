"""Ways to start a command in tests: in this process, and as a process to watch and to type to."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forked import become
from helpers import (
    MARK,
    PATIENCE,
    PLACE,
    children,
    free_port,
    marked_processes,
    segments,
    unused,
    wait_until,
)

if TYPE_CHECKING:
    import pytest
    from typing_extensions import Self
    from warmed import Session

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
FORKED = ("distdemo", "python")
HANDED_OVER = (["-m", "distdemo"], ["-m", "pytest"])  # what Python runs in a warm process


class Command:
    """Runs command lines in this process."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd

    def __call__(self, *words: object) -> tuple[int, str, str]:
        """Run a command line; return its exit code, stdout and stderr."""
        from distdemo.cli.main import run

        code = run([*map(str, words)])
        out, err = self._capfd.readouterr()
        return code, out, err

    def document(self, *words: object, status: int = 0) -> Any:
        """Return the JSON document of a command, which must exit with this status.

        On a slow machine it may also print how long it has taken so far, and nothing else.
        """
        code, out, err = self(*words, "--format", "json")
        assert code == status, out + err
        assert re.sub(r"^.* \(\d+ s\)\n", "", err, flags=re.MULTILINE) == ""
        return json.loads(out)


class Run:
    """A program that is running, and checks of what it leaves behind.

    Attributes:
        process: Its process.
        mark: Text that only its own processes carry.
        temporary: Folder for its temporary files.
    """

    def __init__(
        self,
        program: str | Path,
        words: Sequence[object],
        env: Mapping[str, str | None],
        folder: Path,
        enter: Callable[[], None],
        session: Session | None,
        options: Mapping[str, Any],
    ) -> None:
        line = [str(word) for word in words]
        self.mark = uuid.uuid4().hex
        self.temporary = folder / "t"
        self.temporary.mkdir()
        self._over_mpi = any("mpi" in word for word in (str(program), *line))
        self._segments = segments()
        self._killed = False
        own = {MARK: self.mark, "TMPDIR": str(self.temporary), "NO_COLOR": "1", **env}
        environment = {
            name: value for name, value in {**os.environ, **own}.items() if value is not None
        }
        place = folder / f"{PLACE}{self.mark}"
        place.mkdir()
        settings: dict[str, Any] = {
            "cwd": place,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        python = ["-m", "distdemo", *line] if program == "distdemo" else line
        self._session = session if program in FORKED and python[:2] in HANDED_OVER else None
        if self._session is not None:
            self._session.count(environment, place)
            program, line = sys.executable, python
            settings["env"] = environment
            settings["preexec_fn"] = enter
        elif program in FORKED:
            # No thread of the tests has a lock that the process needs; and Python ignores SIGPIPE.
            fork = partial(become, str(program), line, environment, enter)
            settings["preexec_fn"] = partial(fork, forks_hosts=session is None)
            settings["restore_signals"] = False
        else:
            settings["env"] = environment
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [program, *line], **{**settings, **options}
        )

    @cached_property
    def pid(self) -> int:
        """Process that does the command's work: `process`, or its program in the warm process."""
        if self._session is None:
            return self.process.pid
        return self._session.program(self.process.pid, self.mark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill whatever is left of the program."""
        if self._killed:
            return
        self._killed = True
        for pid in marked_processes(self.mark):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def finish(self, seconds: float = PATIENCE, typed: str | None = None) -> tuple[int, str, str]:
        """Return exit code, stdout without the greeting of gloo in torch 2.8-2.10, and stderr.

        Args:
            seconds: Time limit.
            typed: Standard input, if that is a pipe.
        """
        out, err = self.process.communicate(typed, timeout=seconds)
        if out:
            lines = out.splitlines(keepends=True)
            out = "".join(line for line in lines if not line.startswith("[Gloo] Rank"))
        return self.process.returncode, out, err

    def read_line(self) -> str:
        """Return the next line of its standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def document(self, status: int = 0) -> Any:
        """Return the JSON document on its standard output; assert its exit code."""
        code, out, err = self.finish()
        assert code == status, out + err
        return json.loads(out)

    def ranks(self, count: int) -> list[int]:
        """Wait until it has this many child processes, and return them: its ranks."""
        assert wait_until(lambda: len(children(self.pid)) >= count)
        return children(self.pid)

    def left(self) -> list[int]:
        """Return its living processes."""
        return marked_processes(self.mark)

    def leaves_nothing(self, seconds: float = 15.0) -> None:
        """Assert that no process, temporary file or shared-memory segment is left.

        A segment tells nobody who made it. One that a living process uses is of a world beside this
        one, whose processes are all gone by then; that world may also be about to remove it.
        """
        assert wait_until(lambda: not self.left(), seconds), self.left()
        assert list(self.temporary.iterdir()) == []
        new = {
            name
            for name in segments() - self._segments
            if self._over_mpi or not name.startswith("mpich")  # of a killed MPI world beside
        }
        assert wait_until(lambda: not unused(new & segments())), unused(new & segments())


class Terminal:
    """The other side of a program's terminal.

    Attributes:
        run: The program.
        main: Descriptor of the terminal.
        raw: All that the program has written.
        text: What hasn't been returned yet of it, without escape sequences.
    """

    def __init__(self, main: int, run: Run) -> None:
        self.run = run
        self.main = main
        self.raw = ""
        self._returned = 0

    @property
    def text(self) -> str:
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")[self._returned :]

    def type(self, keys: str) -> None:
        os.write(self.main, keys.encode())

    def wait_for(self, wanted: str) -> str:
        """Return what is shown up to the end of this text; it has not been returned before."""
        self._read_until(lambda: wanted in self.text)
        shown = self.text[: self.text.index(wanted) + len(wanted)]
        self._returned += len(shown)
        return shown

    def interrupt(self) -> None:
        """Type Ctrl-C when the program sleeps; readline misses one before it waits for keys."""
        stat = Path(f"/proc/{self.run.pid}/stat")
        assert wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")
        self.type("\x03")

    def end(self) -> int:
        """Read to the end, and return the exit code."""
        with suppress(OSError):  # the other side is closed
            self._read_until(lambda: False)
        return self.run.process.wait(PATIENCE)

    def _read_until(self, is_complete: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not is_complete():
            assert time.monotonic() < until, self.raw
            if select.select([self.main], [], [], 1.0)[0]:
                self.raw += os.read(self.main, 1 << 16).decode(errors="replace")


class Start:
    """Starts programs of one test; at its end, whatever is left of them is killed.

    Args:
        make_folder: Function that makes a folder with a short path: a socket's path in it has 107
            characters at most.
        stack: Stack that is closed at the end of the test.
        session: Warm process that runs the commands, or None.
    """

    def __init__(
        self, make_folder: Callable[[], Path], stack: ExitStack, session: Session | None
    ) -> None:
        self._make_folder = make_folder
        self._stack = stack
        self._session = session

    def __call__(
        self,
        program: str | Path,
        *words: object,
        env: Mapping[str, str | None] | None = None,
        enter: Callable[[], None] = lambda: None,
        cold: str = "",
        **options: Any,
    ) -> Run:
        """Start a program, and return it.

        Args:
            program: ``distdemo`` or ``python``, which are forked from here and so need not import
                torch, or the path of another program.
            words: Its arguments.
            env: Changes to this process's environment; None removes a variable.
            enter: Function that ``distdemo`` or ``python`` calls first.
            cold: Reason why it doesn't run in the warm process of ``--warm``.
            options: Options of Popen.
        """
        session = None if cold else self._session
        if cold and self._session is not None:
            self._session.counts[cold] += 1
        run = Run(program, words, env or {}, self._make_folder(), enter, session, options)
        self._stack.callback(run.kill)
        return run

    def by_hand(
        self,
        program: str,
        *words: object,
        size: int = 2,
        port: int = 0,
        env: Mapping[str, str | None] | None = None,
    ) -> list[Run]:
        """Start every rank of a world, with the environment variables that torchrun sets."""
        port = port or free_port()
        return [
            self(program, *words, env={**by_hand(port, rank, size), **(env or {})})
            for rank in range(size)
        ]

    def nodes(self, *commands: Sequence[str], port: int = 0) -> list[Run]:
        """Start a command on each of two nodes, or the same command on both."""
        master = f"127.0.0.1:{port or free_port()}"
        both = commands * 2 if len(commands) == 1 else commands
        where = ["--nnodes", "2", "--master", master, "--node-rank"]
        return [self("distdemo", *words, *where, node) for node, words in enumerate(both)]

    def terminal(
        self, program: str, *words: object, env: Mapping[str, str | None] | None = None
    ) -> Terminal:
        """Start a program in a terminal of 80 columns."""
        settings = {"NO_COLOR": None, "CI": None, "TERM": "xterm-256color", "COLUMNS": "80"}
        main, side = pty.openpty()
        self._stack.callback(os.close, main)
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), side)
        run = self(program, *words, env={**settings, **(env or {})}, enter=_own_terminal, **streams)
        os.close(side)
        return Terminal(main, run)


def by_hand(port: int, rank: int, size: int = 2) -> dict[str, str]:
    """Return the environment variables that torchrun would set for a rank."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return {"RANK": str(rank), "WORLD_SIZE": str(size), **where}


def _own_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C is a signal."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
