"""The host that ranks are forked from: a second pytest session.

It has the same options as pytest's own session, and collects a file when its first test is
requested.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.config import create_terminal_writer, get_config
from _pytest.fixtures import getfixturemarker

from distdemo.launcher.host import Channel, Interrupt, prepare_to_fork
from distdemo.testing.plugin import SETUP, options_of
from distdemo.testing.records import SessionSetup, Task, TaskResult, Warned

if TYPE_CHECKING:
    from distdemo.testing.examples import DrawnExample

FOREVER = 1e9  # seconds; timeout while debugging
DECLARES = {"pytest_addoption", "pytest_addhooks"}
"""Hooks of every installed plugin that are called: a conftest.py may use what they declare."""
RUNS_TESTS = {
    "pytest_fixture_setup",
    "pytest_generate_tests",
    "pytest_pycollect_makeitem",
    "pytest_pyfunc_call",
    "pytest_runtest_call",
    "pytest_runtest_setup",
}
"""Hooks of a plugin that a test may need; so may its fixtures."""


def serve(channel: Channel) -> None:
    """Load the session and run the requested tests."""
    # Keep a test that asks for GPUs from loading the driver, which doesn't survive a fork.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import distdemo.calls.record.hooks
    import distdemo.launcher.rank_process

    with suppress(ImportError):  # without NumPy
        import_module("numpy.random")  # which ranks seed
    # Suppress pytest's warning about plugins that were imported before it could rewrite them.
    distdemo.__doc__ = f"{distdemo.__doc__} PYTEST_DONT_REWRITE"
    setup: SessionSetup | None = channel.receive()
    if setup is None:
        return
    if setup.coverage is not None:
        import_module("coverage.sqldata")  # once, for all ranks
    terminal = os.dup(0) if setup.options["usepdb"] else None  # before capturing replaces it
    config = _configured(setup)
    config.pluginmanager.register(SessionServer(channel, terminal))
    if not config.pluginmanager.hasplugin("terminalreporter"):
        config.pluginmanager.register(Screen(config), "terminalreporter")
    prepare_to_fork()
    sys.exit(config.hook.pytest_cmdline_main(config=config))  # only if the session can't be loaded


def _configured(setup: SessionSetup) -> pytest.Config:
    """Return the configuration of a session like pytest's, without its reporters.

    Plugins take it for an ordinary session, unless pytest's process is a worker of pytest-xdist.
    """
    plugins = setup.options["plugins"] or ()
    args = [*(f"-p{name}" for name in plugins), *setup.args]
    config = get_config(args)
    config.stash[SETUP] = setup
    vars(config.option).update(setup.options)
    manager = config.pluginmanager
    hook_options = manager.parse_hookimpl_opts

    def parse_hookimpl_opts(plugin: Any, name: str) -> Any:
        unused = getattr(plugin, "__name__", "") in setup.installed and not _runs_tests(plugin)
        return None if unused and name not in DECLARES else hook_options(plugin, name)

    manager.parse_hookimpl_opts = parse_hookimpl_opts  # type: ignore[method-assign]
    config.parse(args, addopts=False)
    manager.consider_pluginarg("no:terminal")
    for line in setup.markers:
        config.addinivalue_line("markers", line)
    if setup.worker is not None:
        config.workerinput = setup.worker  # type: ignore[attr-defined]  # pytest-xdist's
    return config


def _runs_tests(plugin: object) -> bool:
    """Return True if a test may need this plugin."""
    return any(
        name in RUNS_TESTS or getfixturemarker(value) is not None
        for name, value in vars(plugin).items()
    )


class Screen:
    """Minimal terminal reporter for pytest's debugger, ``--setup-show`` and other plugins."""

    verbosity = 0

    def __init__(self, config: pytest.Config) -> None:
        self._tw = create_terminal_writer(config)

    @pytest.hookimpl(trylast=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """Return the outcome, for plugins that count outcomes."""
        return report.outcome, "", ""


class SessionServer:
    """Replaces pytest's collection and test loop: runs the requested tests.

    Args:
        channel: Connection to pytest's process.
        terminal: Copy of standard input, which a forked process loses.
    """

    def __init__(self, channel: Channel, terminal: int | None) -> None:
        self._channel = channel
        self._terminal = terminal
        self._items: dict[str, pytest.Item] = {}
        self._files: set[str] = set()
        self._tests = 0
        self._busy = False
        self._folder = Path()

    @pytest.fixture
    def tmp_path(self) -> Path:
        """Return a temporary folder that all ranks of a test share."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return self._folder

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> bool:
        """Collect nothing yet."""
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serve, then exit without the session's final hooks, which would write files."""
        signal.signal(signal.SIGINT, self._interrupted)
        capture: Any = session.config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # every rank starts its own
        self._channel.send(TaskResult())  # the session is loaded
        while (task := self._channel.receive()) is not None:
            if not isinstance(task, Interrupt):  # it came after the end of a test
                self._channel.send(self._run(session, task))
        os._exit(0)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._busy:
            raise KeyboardInterrupt

    def _run(self, session: pytest.Session, task: Task) -> TaskResult:
        from distdemo.errors import UnavailableError, UsageError
        from distdemo.launcher.records import headline

        if task.file not in self._files:
            self._collect(session, task)
        item = self._items.get(task.nodeid)
        if item is None:
            why = "The test was not found when its file was collected again for the ranks."
            return TaskResult(refused=why)
        try:
            return self._run_world(task, item)
        except UnavailableError as error:
            return TaskResult(unavailable=f"{error.what} {headline(error.why)}")
        except UsageError as error:
            return TaskResult(refused=str(error))

    def _collect(self, session: pytest.Session, task: Task) -> None:
        capture: Any = session.config.pluginmanager.getplugin("capturemanager")
        self._files.add(task.file)
        sys.path[:] = task.path
        capture.start_global_capturing()
        try:
            session.perform_collect([task.file])
        except pytest.UsageError:
            pass  # its tests will not be found
        finally:
            capture.stop_global_capturing()
        self._items.update({item.nodeid: item for item in session.items})

    def _run_world(self, task: Task, item: pytest.Item) -> TaskResult:
        from distdemo.api import check_world
        from distdemo.backends import prepared
        from distdemo.calls.inspector import Inspector
        from distdemo.calls.text import stopped_text
        from distdemo.launcher.local import World
        from distdemo.launcher.records import WorldSpec
        from distdemo.launcher.verdict import report_of
        from distdemo.testing.rank import run_test

        name = "".join(letter if letter.isalnum() else "_" for letter in item.name)[:30]
        self._tests += 1
        self._folder = task.basetemp / f"{name}-ranks{self._tests}"
        options, size = options_of(item)
        option = item.config.option
        timeout = FOREVER if option.usepdb else task.timeout
        world = WorldSpec(size, options.backend, options.device, timeout, "fork")
        check_world(world)
        is_captured = option.capture != "no" and not option.usepdb
        world = prepared(replace(world, capture=is_captured))
        received = Received()
        inspector = Inspector(world) if options.sanitize else None
        notes = None if inspector is None else inspector.notes
        self._busy = True
        try:
            report = World(self._channel).run(
                world,
                run_test,
                (item, task.basetemp, notes, self._terminal),
                on_message=received.on_message,
                poll=None if inspector is None else inspector.poll,
            )
        except KeyboardInterrupt as stop:
            return TaskResult(report_of(stop), reports=received.result.reports)
        finally:
            self._busy = False
        result = received.concluded()
        if inspector is not None:
            report, findings = inspector.conclude(report)
            result.findings = findings or tuple(inspector.judge.matcher.shifts())
            result.calls = inspector.judge.calls()
            if inspector.stopped and not result.findings:
                why = UserWarning(stopped_text(inspector.stopped))
                message = warnings.WarningMessage(why, UserWarning, str(item.path), 0)
                result.warnings[item.nodeid,] = Warned(message, "runtest", item.nodeid, None)
        result.world = report
        return result


class Received:
    """Messages from the ranks of one test."""

    def __init__(self) -> None:
        self.result = TaskResult()
        self._examples: dict[int, list[DrawnExample]] = {}
        self._modules: dict[str, None] = {}  # of torch, that a rank had to import

    def on_message(self, rank: int, message: Any) -> None:
        """Add a warning, an example of hypothesis, names of modules, or a report of pytest."""
        from distdemo.testing.examples import DrawnExample

        match message:
            case Warned(warning_message=warning):
                where = str(warning.message), warning.filename, warning.lineno
                self.result.warnings[where] = message
            case DrawnExample():
                examples = self._examples.setdefault(rank, [])
                if message.has_ended:
                    examples.pop()
                examples.append(message)
            case tuple():
                self._modules.update(dict.fromkeys(message))
            case _:
                self.result.reports.setdefault(rank, []).append(message)

    def concluded(self) -> TaskResult:
        """Return the result; import the ranks' modules, so that later ranks have them."""
        from distdemo.launcher.torch_import import without_traces
        from distdemo.testing.examples import difference

        with without_traces():
            for name in self._modules:
                with suppress(Exception):  # a rank will get the error again
                    import_module(name)
        self.result.examples = difference(self._examples)
        return self.result
