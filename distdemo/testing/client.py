"""pytest's process: start the host that forks ranks, send it tests, and stop it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from distdemo.launcher.host import LARGE_PAGES, Host, HostError, Interrupt
from distdemo.testing.records import SessionSetup, Task, TaskResult

START_TIMEOUT_S = 120.0  # to load torch and the tests
EXIT_TIMEOUT_S = 20.0  # after a test's timeout, for its world to exit
LOG_BYTES = 4000  # shown of the host's output, from the end
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
    "benchmark_disable": True,  # every rank would choose its own number of calls
    "benchmark_enable": False,
}
"""Options that select tests, write files, or belong to plugins that must not act a second time."""


class RanksSession:
    """The second pytest session, in a host with torch and the tests loaded; it forks the ranks.

    Args:
        config: pytest's configuration, which may still be incomplete.

    Attributes:
        host: Its process.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._environment = dict(os.environ)
        option = config.known_args_namespace
        self._is_debugged = bool(option.usepdb)
        self._has_terminal = self._is_debugged or option.capture == "no"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in ``close``
        # Its output is captured and shown if it exits early; with -s it gets the terminal.
        output = None if self._has_terminal else self._log
        with self._terminal(config):
            self.host = Host(
                "distdemo.testing.session.serve",
                sys.path,
                stdin=None if self._is_debugged else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=config.invocation_params.dir,
                env=LARGE_PAGES | self._environment,
            )

    def configure(self, config: pytest.Config) -> bool:
        """Send the session, now that its configuration is complete.

        Return False if the environment has changed, which torch may read when it is imported.
        """
        if self._environment != os.environ:
            return False
        self.host.send(_setup(config))
        return True

    def run(self, item: pytest.Item, timeout: float) -> TaskResult:
        """Run a test on ranks and return its result.

        Raises:
            HostError: The host could not load torch or the plugins, has exited, or doesn't answer.
        """
        config: Any = item.config
        basetemp = config._tmp_path_factory.getbasetemp()
        self.host.send(Task(item.nodeid, str(item.path), tuple(sys.path), timeout, basetemp))
        try:
            with self._terminal(config):
                if not self.host.ready:
                    self._receive(START_TIMEOUT_S)  # the answer to the session
                wait = None if self._is_debugged else START_TIMEOUT_S + timeout + EXIT_TIMEOUT_S
                return self._receive(wait)
        except KeyboardInterrupt:
            if self.host.ready:
                self._interrupt(item)
            raise
        except BaseException:  # it has exited, or another plugin's timeout has passed
            self.close()
            raise

    def close(self) -> None:
        """Stop the host; its ranks exit with it."""
        self.host.close(EXIT_TIMEOUT_S)
        self._log.close()

    def _interrupt(self, item: pytest.Item) -> None:
        """Stop the running ranks and print where they were."""
        self.host.send(Interrupt())
        try:
            world = self._receive(EXIT_TIMEOUT_S).world
        except HostError:
            return
        reporter: Any = item.config.pluginmanager.getplugin("terminalreporter")
        if world is not None and world.verdict is not None and reporter is not None:
            reporter.write_line(f"\n{item.nodeid}: {world.verdict.why}")

    def _receive(self, seconds: float | None) -> TaskResult:
        try:
            return self.host.receive(seconds)  # type: ignore[no-any-return]  # it sends nothing else
        except HostError as error:
            why = f"The process that starts ranks {error}"
            if not self.host.closed:
                raise HostError(why) from None
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - LOG_BYTES))
        log = self._log.read().decode(errors="replace").strip() or "no output"
        last_line = log.splitlines()[-1].removeprefix("INTERNALERROR> ")
        raise HostError(f"{why}: {last_line}\n\n{log}")

    @contextmanager
    def _terminal(self, config: pytest.Config) -> Iterator[None]:
        """Within the block, don't capture what the host writes to the terminal."""
        manager: Any = config.pluginmanager.getplugin("capturemanager")
        if not self._has_terminal or manager is None:
            yield
            return
        manager.suspend(in_=True)
        try:
            yield
        finally:
            manager.resume()


def _setup(config: pytest.Config) -> SessionSetup:
    options = {**vars(config.option), **NOT_FOR_RANKS}
    del options["file_or_dir"]
    options["rootdir"] = str(config.rootpath)
    options["inifilename"] = None if config.inipath is None else str(config.inipath)
    installed = (plugin for plugin, _ in config.pluginmanager.list_plugin_distinfo())
    return SessionSetup(
        {name: value for name, value in options.items() if _can_be_pickled(value)},
        tuple(str(argument) for argument in config.args),
        frozenset(getattr(plugin, "__name__", "") for plugin in installed),
        tuple(config.getini("markers")),
        getattr(config, "workerinput", None),
        _coverage(config),
    )


def _can_be_pickled(value: object) -> bool:
    try:
        pickle.dumps(value)
    except Exception:  # depends on the value
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
