"""The process that ranks are forked from: a fork of pytest's process after collection."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from distdemo.launcher import helper
from distdemo.launcher.helper import Channel, HelperError, Interrupt
from distdemo.launcher.torch_import import load_torch, without_traces
from distdemo.testing.mark import options_of
from distdemo.testing.reports import Received, TestResult, merged

START_TIMEOUT_S = 120.0  # to load torch, at the first test
EXIT_TIMEOUT_S = 20.0  # after a test's timeout, for its world to exit
FOREVER = 1e9  # seconds; timeout while debugging


class RanksHost:
    """The host, as pytest's process sees it.

    Args:
        session: Session that has collected its tests.
    """

    def __init__(self, session: pytest.Session) -> None:
        config: Any = session.config
        self._is_debugged = bool(config.option.usepdb)
        config._tmp_path_factory.getbasetemp()  # one folder for all processes
        self._helper = helper.fork(lambda channel: _serve(channel, session))

    def run(self, item: pytest.Item, timeout: float) -> TestResult:
        """Run a test on ranks and return its result."""
        wait = None if self._is_debugged else START_TIMEOUT_S + timeout + EXIT_TIMEOUT_S
        self._helper.send((item.nodeid, timeout))
        try:
            return self._helper.receive(wait)  # type: ignore[no-any-return]  # sends nothing else
        except HelperError:
            self.close()
            return TestResult("failed", "The process that starts ranks has exited.")
        except BaseException:  # Ctrl-C, or the timeout of another plugin
            self._interrupt(item)
            raise

    def _interrupt(self, item: pytest.Item) -> None:
        """Stop the running ranks and print where they were."""
        self._helper.send(Interrupt())
        reporter: Any = item.config.pluginmanager.getplugin("terminalreporter")
        try:
            result = self._helper.receive(EXIT_TIMEOUT_S)
        except HelperError:
            self.close()
            return
        if reporter is not None:
            reporter.write_line(f"\n{item.nodeid}: {result.text}")

    def close(self) -> None:
        """Stop the host; its ranks exit with it."""
        self._helper.close(EXIT_TIMEOUT_S)


def _serve(channel: Channel, session: pytest.Session) -> None:
    """Run the requested tests until pytest's process closes the connection."""
    server = _Server(channel, session)
    while (task := channel.receive()) is not None:
        if not isinstance(task, Interrupt):  # it came after the end of a test
            channel.send(server.run(*task))


class _Server:
    """Runs tests on ranks.

    Args:
        channel: Connection to pytest's process.
        session: Session that has collected its tests.
    """

    def __init__(self, channel: Channel, session: pytest.Session) -> None:
        config: Any = session.config
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.suspend_global_capture(in_=True)
        self._unused_capture = capture._global_capturing  # collecting it warns of open files
        capture._global_capturing = None  # every rank starts its own
        self._terminal = os.dup(0) if config.option.usepdb else None
        self._channel = channel
        self._items = {item.nodeid: item for item in session.items}
        self._folders = Path(config._tmp_path_factory.getbasetemp())
        self._tests = 0
        for hook in (config.hook.pytest_runtest_logreport, config.hook.pytest_warning_recorded):
            for reporter in hook.get_hookimpls():  # they belong to pytest's process
                hook._remove_plugin(reporter.plugin)
        load_torch()
        with suppress(ImportError):  # without NumPy
            import_module("numpy.random")  # which ranks seed
        for module in ("testing.rank", "launcher.rank_process", "launcher.local", "backends"):
            import_module(f"distdemo.{module}")
        gc.freeze()  # collecting what is loaded would copy its pages

    def run(self, nodeid: str, timeout: float) -> TestResult:
        """Run a test on every rank of a new world."""
        from distdemo.errors import UnavailableError, UsageError
        from distdemo.launcher.records import headline

        signal.signal(signal.SIGINT, signal.default_int_handler)  # it ends this test only
        try:
            return self._run_world(self._items[nodeid], timeout)
        except UnavailableError as error:
            return TestResult("skipped", f"{error.what} {headline(error.why)}")
        except UsageError as error:
            return TestResult("failed", str(error))
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _run_world(self, item: pytest.Item, timeout: float) -> TestResult:
        from distdemo.api import check_world
        from distdemo.backends import prepared
        from distdemo.calls.inspector import Inspector
        from distdemo.launcher.local import World
        from distdemo.launcher.records import WorldSpec
        from distdemo.launcher.verdict import report_of
        from distdemo.testing.rank import run_test

        self._tests += 1
        name = "".join(letter if letter.isalnum() else "_" for letter in item.name)[:30]
        folder = self._folders / f"{name}-ranks{self._tests}"
        options, size = options_of(item)
        is_debugged = self._terminal is not None
        deadline = FOREVER if is_debugged else timeout
        world = WorldSpec(size, options.backend, options.device, deadline, "fork")
        check_world(world)
        is_captured = item.config.option.capture != "no" and not is_debugged
        world = prepared(replace(world, capture=is_captured))
        received = Received()
        inspector = Inspector(world) if options.sanitize else None
        if inspector is not None:
            inspector.judge.levels = options.levels
            inspector.compare_replicas(options.check_replicas, options.excluded)
        try:
            report = World(self._channel).run(
                world,
                run_test,
                (item, folder, inspector and inspector.notes, self._terminal),
                on_message=received.on_message,
                **({} if inspector is None else inspector.callbacks()),
            )
        except KeyboardInterrupt as stop:
            interrupted = report_of(stop)
            verdict = interrupted and interrupted.verdict
            return TestResult("failed", verdict.why if verdict else "")
        with without_traces():  # later ranks have what these had to import
            for module in received.modules:
                with suppress(Exception):  # a rank will get the error again
                    import_module(module)
        return merged(item, report, received, inspector)
