"""Client of the process that forks ranks: start it, send it tests and stop it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Pipe
from typing import TYPE_CHECKING, Any

import pytest

from distdemo.testing.records import Task, TaskResult

if TYPE_CHECKING:
    from distdemo.testing.records import RanksOptions

START_TIMEOUT_S = 120.0  # time to load torch and the tests
EXIT_TIMEOUT_S = 20.0  # time after a test's timeout for its world to exit
LARGE_PAGES = "glibc.malloc.hugetlb=1"
"""Make glibc (2.35 or later) allocate memory suitable for huge pages; see ``template``."""
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
"""Options that select tests, or belong to plugins that must not act a second time."""


class Template:
    """The process that has torch and the tests loaded, and forks ranks.

    Args:
        config: pytest's configuration.

    Attributes:
        closed: True if the process has stopped and a new one is needed.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.closed = False
        self._pdb = bool(config.option.usepdb)
        self._capture = config.option.capture != "no" and not self._pdb
        self._connection, child_end = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in ``close``
        manager: Any = config.pluginmanager.getplugin("capturemanager")
        out = self._log if self._capture else None
        # Its output is captured and shown if it exits early; with -s it gets the terminal.
        with nullcontext() if self._capture or manager is None else _uncaptured(manager):
            numbers = [str(child_end.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(  # noqa: S603 - this Python and our own module
                [sys.executable, "-m", "distdemo.testing.template", *numbers],
                stdin=None if self._pdb else subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(child_end.fileno(),),
                cwd=config.invocation_params.dir,
                env={"GLIBC_TUNABLES": LARGE_PAGES, **os.environ},
            )
        child_end.close()
        values = {**vars(config.option), **NOT_FOR_RANKS}
        del values["file_or_dir"]
        values["plugins"] = [*(values.get("plugins") or []), "no:terminal", "no:pytest_cov"]
        values["rootdir"], values["inifilename"] = str(config.rootpath), _ini(config)
        self._send((values, [str(each) for each in config.args], sys.path))

    def run(self, item: pytest.Item, options: RanksOptions, size: int) -> TaskResult:
        """Run a test on ranks and return its result.

        Raises:
            RuntimeError: The process has exited or doesn't answer.
        """
        factory: Any = item.config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001 - as pytest's own fixtures use it
        base, file = factory.getbasetemp(), str(item.path)
        self._send(Task(item.nodeid, file, options, size, base, self._pdb, self._capture))
        wait = None if self._pdb else START_TIMEOUT_S + options.timeout + EXIT_TIMEOUT_S
        manager: Any = item.config.pluginmanager.getplugin("capturemanager")
        try:
            with nullcontext() if self._capture or manager is None else _uncaptured(manager):
                return self._receive(wait)
        except KeyboardInterrupt:
            self._interrupt(item)
            raise
        except BaseException:  # it has exited, or another plugin's timeout has passed
            self.close()
            raise

    def close(self) -> None:
        """Stop the process; its ranks exit with it."""
        self.closed = True
        self._connection.close()
        try:
            self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _interrupt(self, item: pytest.Item) -> None:
        """Stop the running ranks and print where they were."""
        self._process.send_signal(signal.SIGINT)
        with suppress(RuntimeError):
            world = self._receive(EXIT_TIMEOUT_S).world
            reporter: Any = item.config.pluginmanager.getplugin("terminalreporter")
            if world is not None and world.verdict is not None and reporter is not None:
                reporter.write_line(f"\n{item.nodeid}: {world.verdict.why}")

    def _send(self, what: object) -> None:
        with suppress(OSError):  # it has exited, which the next ``_receive`` reports
            self._connection.send(what)

    def _receive(self, seconds: float | None) -> TaskResult:
        try:
            if self._connection.poll(seconds):
                return self._connection.recv()  # type: ignore[no-any-return]  # it sends nothing else
        except (EOFError, OSError):
            self._process.wait(EXIT_TIMEOUT_S)
            raise RuntimeError(
                f"the process that starts ranks exited with {self._process.returncode}:\n"
                f"{self._log_tail()}"
            ) from None
        raise RuntimeError(f"the process that starts ranks didn't answer within {seconds:g} s")

    def _log_tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4000))
        return self._log.read().decode(errors="replace").strip() or "no output"


def _ini(config: pytest.Config) -> str | None:
    return None if config.inipath is None else str(config.inipath)


@contextmanager
def _uncaptured(manager: Any) -> Iterator[None]:  # noqa: ANN401 - pytest's CaptureManager
    """Suspend capturing within the block."""
    manager.suspend(in_=True)
    try:
        yield
    finally:
        manager.resume()
