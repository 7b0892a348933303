"""A warm process in a folder of its own, and ways to run commands in it.

With pytest's option ``--warm`` one runs during the whole session, for the commands of all tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import MARK, PATIENCE, children, marked_processes, wait_until

COMMAND = (sys.executable, "-m", "distdemo")


class Warm:
    """A warm process in a folder of its own.

    Attributes:
        env: Environment of commands that use it.
        cold: Environment of commands that find none.
        place: Working folder of the commands.
    """

    def __init__(self, runtime: Path, place: Path) -> None:
        own = {"XDG_RUNTIME_DIR": str(runtime), "NO_COLOR": "1"}
        self.env = {**os.environ, **own}
        self.env.pop("PYTHONUNBUFFERED", None)
        self.cold = {**self.env, "XDG_RUNTIME_DIR": str(place)}
        self.place = place
        self.folder = runtime / "distdemo-warm"

    def run(self, *words: object, env: dict[str, str] | None = None, **options: Any) -> Any:
        """Run a command line to its end: distdemo, unless it begins with a path of a program."""
        line = [str(word) for word in words]
        if not line[0].startswith("/"):
            line = [*COMMAND, *line]
        settings = {"cwd": self.place, "env": env or self.env, "timeout": PATIENCE, **options}
        return subprocess.run(line, capture_output=True, check=False, **settings)

    def status(self, *before: object, **options: Any) -> Any:
        """Return the report of ``--status``, started by these words."""
        words = (*before, *COMMAND, "warm", "--status", "--format", "json")
        ended = self.run(*words, text=True, **options)
        assert ended.returncode == 0, ended.stderr
        return {"commands": 0, "cold": "", **json.loads(ended.stdout)}  # without the defaults

    @property
    def pid(self) -> int:
        return int(self.status()["pid"])

    def guardians(self) -> list[int]:
        """Return the guardians that are running: children of the warm process."""
        programs = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(self.pid)}
        return [pid for pid, program in programs.items() if b"cleanup.py" not in program]

    def program(self) -> int:
        """Wait for the one program that runs in it, and return it."""
        pids: list[int] = []

        def find() -> bool:
            pids[:] = [child for guardian in self.guardians() for child in children(guardian)]
            return len(pids) == 1

        assert wait_until(find)
        return pids[0]


def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Yield a warm process, and assert at the end that nothing of it is left."""
    runtime = tmp_path_factory.mktemp("w")
    warm = Warm(runtime, tmp_path_factory.mktemp("place"))
    ended = warm.run("warm", "--quiet", preexec_fn=_hide_ends_of_children)
    assert ended.returncode == 0, ended.stderr
    yield warm
    assert warm.run("warm", "--stop").returncode == 0
    assert wait_until(lambda: not warm.folder.exists())


def _hide_ends_of_children() -> None:
    """Block and ignore the signal that a warm process waits for."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])


ASK = """
from distdemo.launcher import handover
print(handover.ask(handover.connect(), "distdemo.__main__.run_here")["reason"])
"""
"""Program that prints the reason why a command typed here would run in its own process."""
RAN = "programs in the warm process"
STARTED = "started commands that use it"


class Session:
    """The warm process of a session of the tests.

    Attributes:
        counts: Number of started commands that use it, and of the others by the reason.
    """

    def __init__(self, warm: Warm) -> None:
        self.counts: Counter[str] = Counter()
        self._warm = warm
        self._pid = warm.pid
        self._reasons: dict[frozenset[tuple[str, str]], str] = {}

    def count(self, environment: Mapping[str, str], place: Path) -> None:
        """Count a command that is about to start; ask once for each environment."""
        own = (MARK, "TMPDIR", "PYTEST_CURRENT_TEST", "MASTER_PORT")
        key = frozenset(item for item in environment.items() if item[0] not in own)
        if key not in self._reasons:
            line = (sys.executable, "-c", ASK)
            ended = self._warm.run(*line, env=dict(environment), cwd=place, text=True)
            self._reasons[key] = ended.stdout.strip() or ended.stderr
        self.counts[self._reasons[key] or STARTED] += 1

    def program(self, client: int, mark: str) -> int:
        """Wait for the program of a client, and return it: the client itself if it runs there."""
        pids: list[int] = []

        def find() -> bool:
            programs = [pid for guardian in children(self._pid) for pid in children(guardian)]
            marked = marked_processes(mark)
            pids[:] = [pid for pid in programs if pid in marked]
            if not pids and children(client):
                pids[:] = [client]
            return bool(pids)

        assert wait_until(find)
        return pids[0]  # before its hosts

    def end(self) -> None:
        """Assert that the warm process is still there and has run commands, and count these."""
        status = self._warm.status()
        assert (status["state"], status["cold"]) == ("warm", "")
        assert status["pid"] == self._pid
        assert wait_until(lambda: not self._warm.guardians())
        self.counts[RAN] = self._warm.status()["commands"]
        assert not self.counts[STARTED] or self.counts[RAN]
