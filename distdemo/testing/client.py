"""Pytest's end of the process that forks ranks: start it, ask it to run a test, end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from distdemo.launcher.records import WorldReport
    from distdemo.sanitizer.records import Finding
    from distdemo.testing.plugin import Asked

STARTS = 120.0  # seconds that the process gets to load torch and the tests
ENDS = 20.0  # seconds beyond a test's own timeout until its world is gone
LARGE_PAGES = "glibc.malloc.hugetlb=1"
"""Asks for memory that can be put into large pages quickly (glibc from 2.35 on); see template."""
NOT_FOR_RANKS: dict[str, Any] = {
    "keyword": "",
    "markexpr": "",
    "deselect": None,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
    "cacheclear": False,
    "maxfail": 0,
    "dist": "no",
    "tx": [],
    "numprocesses": None,
    "maxprocesses": None,
    "looponfail": False,
}
"""Options that choose tests, or belong to other plugins that would act twice."""


@dataclass(frozen=True)
class Task:
    """A test to run.

    Attributes:
        nodeid: of pytest.
        file: that it is in.
        asked: by its mark.
        size: how many ranks.
        basetemp: where temporary folders go.
        pdb: the first rank that fails gets the terminal.
        capture: what ranks write is kept for the report.
    """

    nodeid: str
    file: str
    asked: Asked
    size: int
    basetemp: Path
    pdb: bool
    capture: bool


@dataclass(frozen=True)
class Ended:
    """What came of it.

    Attributes:
        world: how the ranks ended.
        findings: of the sanitizer.
        reports: pytest's own of each rank, in the form in which they travel.
        warnings: that pytest recorded on ranks: the arguments of its hook.
        refused: why it could not be run; empty: it was.
    """

    world: WorldReport | None
    findings: tuple[Finding, ...]
    reports: dict[int, list[dict[str, Any]]]
    warnings: tuple[tuple[Any, ...], ...] = ()
    refused: str = ""


class Template:
    """The process that has torch and the tests loaded.

    Args:
        config: pytest's.

    Attributes:
        closed: it is of no more use; another one is.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.closed = False
        self._pdb = bool(config.option.usepdb)
        self._capture = config.option.capture != "no" and not self._pdb
        self._ours, theirs = Pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in ``close``
        manager: Any = config.pluginmanager.getplugin("capturemanager")
        out = self._said if self._capture else None
        # Without -s, what it writes is kept, to be shown if it ends; else it gets the terminal.
        with nullcontext() if self._capture or manager is None else _uncaptured(manager):
            numbers = [str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(  # noqa: S603 - this Python, and a module of ours
                [sys.executable, "-m", "distdemo.testing.template", *numbers],
                stdin=None if self._pdb else subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(theirs.fileno(),),
                cwd=config.invocation_params.dir,
                env={"GLIBC_TUNABLES": LARGE_PAGES, **os.environ},
            )
        theirs.close()
        options = {**vars(config.option), **NOT_FOR_RANKS}
        del options["file_or_dir"]
        options["plugins"] = [*(options.get("plugins") or []), "no:terminal", "no:pytest_cov"]
        options["rootdir"], options["inifilename"] = str(config.rootpath), _ini(config)
        self._send((options, [str(each) for each in config.args], sys.path))

    def run(self, item: pytest.Item, asked: Asked, size: int) -> Ended:
        """Run a test on ranks and wait for its end.

        Raises:
            RuntimeError: the process has ended, or says nothing.
        """
        factory: Any = item.config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001 - as pytest's own fixtures use it
        base, file = factory.getbasetemp(), str(item.path)
        self._send(Task(item.nodeid, file, asked, size, base, self._pdb, self._capture))
        wait = None if self._pdb else STARTS + asked.timeout + ENDS
        manager: Any = item.config.pluginmanager.getplugin("capturemanager")
        try:
            with nullcontext() if self._capture or manager is None else _uncaptured(manager):
                return self._receive(wait)
        except KeyboardInterrupt:
            self._interrupt(item)
            raise
        except BaseException:  # it has ended, or a plugin's own time limit has passed
            self.close()
            raise

    def close(self) -> None:
        """End it; ranks end with it."""
        self.closed = True
        self._ours.close()
        try:
            self._process.wait(ENDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def _interrupt(self, item: pytest.Item) -> None:
        """End the ranks that run, and say where they were."""
        self._process.send_signal(signal.SIGINT)
        with suppress(RuntimeError):
            world = self._receive(ENDS).world
            reporter: Any = item.config.pluginmanager.getplugin("terminalreporter")
            if world is not None and world.verdict is not None and reporter is not None:
                reporter.write_line(f"\n{item.nodeid}: {world.verdict.why}")

    def _send(self, what: object) -> None:
        with suppress(OSError):  # it has ended: the next ``_receive`` says so
            self._ours.send(what)

    def _receive(self, seconds: float | None) -> Ended:
        try:
            if self._ours.poll(seconds):
                return self._ours.recv()  # type: ignore[no-any-return]  # it sends nothing else
        except (EOFError, OSError):
            self._process.wait(ENDS)
            raise RuntimeError(
                f"the process that starts ranks has ended ({self._process.returncode}):\n"
                f"{self._last_words()}"
            ) from None
        raise RuntimeError(f"the process that starts ranks said nothing for {seconds:g} s")

    def _last_words(self) -> str:
        size = self._said.seek(0, os.SEEK_END)
        self._said.seek(max(0, size - 4000))
        return self._said.read().decode(errors="replace").strip() or "it wrote nothing"


def _ini(config: pytest.Config) -> str | None:
    return None if config.inipath is None else str(config.inipath)


@contextmanager
def _uncaptured(manager: Any) -> Iterator[None]:  # noqa: ANN401 - pytest's CaptureManager
    """Within the block standard input and output are the terminal's."""
    manager.suspend(in_=True)
    try:
        yield
    finally:
        manager.resume()
