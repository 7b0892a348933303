"""Client of the process that forks ranks: start it, send it tests and stop it."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distdemo.testing.records import SessionSetup, Task, TaskResult

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
    "xmlpath": None,
    "log_file": os.devnull,
    "pastebin": None,
    "cov_source": [],
    "benchmark_only": False,
    "benchmark_disable": True,  # each rank would choose its own number of calls
    "benchmark_enable": False,
}
"""Options that select tests, write files, or belong to plugins that must not act a second time."""


class StartError(RuntimeError):
    """The process that forks ranks exited before it was ready."""


class Template:
    """The process that has torch and the tests loaded, and forks ranks.

    Args:
        config: pytest's configuration, which may still be incomplete.

    Attributes:
        closed: True if the process has stopped and a new one is needed.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.closed = False
        self._ready = False
        self._environment = dict(os.environ)
        option = config.known_args_namespace
        self._pdb = bool(option.usepdb)
        self._capture = option.capture != "no" and not self._pdb
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
        self._send(sys.path)

    def configure(self, config: pytest.Config) -> bool:
        """Send the session, now that its configuration is complete.

        Return False if the environment has changed, which torch may read when it is imported.
        """
        if self._environment != os.environ:
            return False
        self._send(_setup(config))
        return True

    def run(self, item: pytest.Item, options: RanksOptions, size: int, seed: int) -> TaskResult:
        """Run a test on ranks and return its result.

        Raises:
            StartError: The process could not load torch or the plugins.
            RuntimeError: The process has exited or doesn't answer.
        """
        factory: Any = item.config._tmp_path_factory  # type: ignore[attr-defined]
        base, path = factory.getbasetemp(), tuple(sys.path)
        task = Task(
            *(item.nodeid, str(item.path), path, options, size, seed),
            *(base, self._pdb, self._capture),
        )
        self._send(task)
        wait = None if self._pdb else START_TIMEOUT_S + options.timeout + EXIT_TIMEOUT_S
        manager: Any = item.config.pluginmanager.getplugin("capturemanager")
        try:
            with nullcontext() if self._capture or manager is None else _uncaptured(manager):
                if not self._ready:
                    self._receive(START_TIMEOUT_S)
                    self._ready = True
                return self._receive(wait)
        except KeyboardInterrupt:
            if self._ready:
                self._interrupt(item)
            raise
        except BaseException:  # it has exited, or another plugin's timeout has passed
            self.close()
            raise

    def close(self) -> None:
        """Stop the process; its ranks exit with it."""
        if self.closed:
            return
        self.closed = True
        if not self._ready:  # it may still be importing torch
            self._process.terminate()
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
            log = self._log_tail()
            last = log.splitlines()[-1].removeprefix("INTERNALERROR> ")
            why = f"exited with {self._process.returncode}: {last}\n\n{log}"
        else:
            why = f"didn't answer within {seconds:g} s"
        error = RuntimeError if self._ready else StartError
        raise error(f"The process that starts ranks {why}")

    def _log_tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4000))
        return self._log.read().decode(errors="replace").strip() or "no output"


def _setup(config: pytest.Config) -> SessionSetup:
    options = {**vars(config.option), **NOT_FOR_RANKS}
    del options["file_or_dir"]
    options["rootdir"] = str(config.rootpath)
    options["inifilename"] = None if config.inipath is None else str(config.inipath)
    installed = (plugin for plugin, _ in config.pluginmanager.list_plugin_distinfo())
    return SessionSetup(
        {name: value for name, value in options.items() if _can_be_pickled(value)},
        tuple(str(each) for each in config.args),
        frozenset(getattr(plugin, "__name__", "") for plugin in installed),
        tuple(config.getini("markers")),
        getattr(config, "workerinput", None),
        _coverage(config),
    )


def _can_be_pickled(value: object) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - depends on the value
        return False
    return True


def _coverage(config: pytest.Config) -> dict[str, Any] | None:
    """Return how pytest-cov measures, as arguments of ``coverage.Coverage``; None if it doesn't."""
    controller = getattr(config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    if controller is None:
        return None
    return {
        "source": controller.cov_source,
        "branch": controller.cov_branch,
        "config_file": controller.cov_config,
        "data_file": str(Path(controller.topdir, controller.cov.config.data_file)),
    }


@contextmanager
def _uncaptured(manager: Any) -> Iterator[None]:
    """Suspend capturing within the block."""
    manager.suspend(in_=True)
    try:
        yield
    finally:
        manager.resume()
