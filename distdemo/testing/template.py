"""Process from which ranks are forked: ``python -m distdemo.testing.template FD PARENT``.

It has loaded torch and the requested test files, and has computed nothing, so its forks are safe
and fast, whatever pytest's process has done. It has its own pytest session with the same options,
which collects a file when its first test is requested.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from _pytest.config import create_terminal_writer, get_config
from _pytest.fixtures import getfixturemarker

from distdemo.launcher.process_tree import die_with_parent
from distdemo.testing.client import LARGE_PAGES
from distdemo.testing.plugin import SETUP
from distdemo.testing.records import SessionSetup, Task, TaskResult

FOREVER = 1e9  # seconds; timeout while debugging
MADV_COLLAPSE = 25  # from linux/mman.h; Python has no constant for it
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


class Screen:
    """Minimal terminal reporter for pytest's debugger, ``--setup-show`` and other plugins."""

    verbosity = 0

    def __init__(self, config: pytest.Config) -> None:
        self._tw = create_terminal_writer(config)

    @pytest.hookimpl(trylast=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """Return the outcome, for plugins that count outcomes."""
        return report.outcome, "", ""


class Server:
    """Replaces pytest's collection and test loop: runs the requested tests.

    Args:
        connection: Connection to pytest's process.
        terminal: Copy of standard input, which a forked process loses.
    """

    def __init__(self, connection: Connection, terminal: int | None) -> None:
        self._connection = connection
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
        capture.stop_global_capturing()  # each rank starts its own
        self._connection.send("ready")
        while True:
            try:
                task = self._connection.recv()
            except EOFError:
                os._exit(0)
            self._connection.send(self._run(session, task))

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._busy:
            raise KeyboardInterrupt

    def _run(self, session: pytest.Session, task: Task) -> TaskResult:
        capture: Any = session.config.pluginmanager.getplugin("capturemanager")
        if task.file not in self._files:
            self._files.add(task.file)
            sys.path[:] = task.path
            capture.start_global_capturing()
            try:
                session.perform_collect([task.file])
            except pytest.UsageError:
                pass  # its tests are missing below
            finally:
                capture.stop_global_capturing()
            self._items.update({item.nodeid: item for item in session.items})
        item = self._items.get(task.nodeid)
        if item is None:
            why = "The test was not found when its file was collected again for the ranks."
            return TaskResult(None, (), {}, refused=why)
        from distdemo.errors import UnavailableError, UsageError
        from distdemo.launcher.records import headline

        try:
            return self._run_world(task, item)
        except UnavailableError as error:
            why = f"{error.what} {headline(error.why)}"
            return TaskResult(None, (), {}, unavailable=why)
        except UsageError as error:
            return TaskResult(None, (), {}, refused=str(error))

    def _run_world(self, task: Task, item: pytest.Item) -> TaskResult:
        from distdemo.api import check_world
        from distdemo.backends import prepared
        from distdemo.calls.inspector import Inspector
        from distdemo.calls.text import stopped_text
        from distdemo.launcher.local import run_world
        from distdemo.launcher.records import WorldSpec
        from distdemo.launcher.verdict import report_of
        from distdemo.testing.examples import Example, difference
        from distdemo.testing.rank import run_test

        name = "".join(each if each.isalnum() else "_" for each in item.name)[:30]
        self._tests += 1
        self._folder = task.basetemp / f"{name}-ranks{self._tests}"
        options = task.options
        timeout = FOREVER if task.pdb else options.timeout
        world = WorldSpec(task.size, options.backend, options.device, timeout, "fork")
        check_world(world)
        world = prepared(replace(world, capture=task.capture))
        reports: dict[int, list[dict[str, Any]]] = {}
        findings: tuple[Any, ...] = ()

        shown: dict[tuple[str, ...], tuple[Any, ...]] = {}
        modules: dict[str, None] = {}
        examples: dict[int, list[Example]] = {}

        def on_message(rank: int, message: dict[str, Any]) -> None:
            if "modules" in message:
                modules.update(dict.fromkeys(message["modules"]))
            elif "example" in message:
                examples.setdefault(rank, []).append(Example(message["example"]))
            elif "example_error" in message:
                examples[rank][-1].error = message["example_error"]
            elif "warning" in message:
                what = message["warning"][0]
                shown[str(what.message), what.filename, str(what.lineno)] = message["warning"]
            else:
                reports.setdefault(rank, []).append(message)

        def poll(outcomes: Any) -> bool:
            gone = self._connection.poll(0)  # pytest sends nothing while it waits
            return gone or (inspector is not None and inspector.poll(outcomes))

        inspector, notes = None, None
        if options.sanitize:
            inspector = Inspector(world)
            notes = inspector.notes
        self._busy = True
        try:
            work = (item, task, notes, self._terminal)
            report = run_world(world, run_test, work, on_message=on_message, poll=poll)
        except KeyboardInterrupt as stop:
            return TaskResult(report_of(stop), (), reports)
        finally:
            self._busy = False
        calls: tuple[Any, ...] = ()
        if inspector is not None:
            report, findings = inspector.conclude(report)
            findings = findings or tuple(inspector.judge.matcher.shifts())
            calls = inspector.judge.calls()
            if inspector.stopped and not findings:
                why = UserWarning(stopped_text(inspector.stopped))
                message = warnings.WarningMessage(why, UserWarning, str(item.path), 0)
                shown[item.nodeid,] = (message, "runtest", item.nodeid, None)
        _load(modules)
        different = difference(examples)
        recorded = tuple(shown.values())
        return TaskResult(report, findings, reports, recorded, different, calls=calls)


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
        name in RUNS_TESTS or getfixturemarker(each) is not None
        for name, each in vars(plugin).items()
    )


def _load(modules: Iterable[str]) -> None:
    """Import the torch modules that ranks had to import, so that later ranks have them."""
    from distdemo.launcher.torch_import import without_traces

    with without_traces():
        for name in modules:
            with suppress(Exception):  # a rank will get the error again
                import_module(name)


def _use_large_pages() -> None:
    """Move loaded memory to huge pages, which halves the time of forking and exiting.

    Needs Linux 6.1 or later (MADV_COLLAPSE, madvise(2)); older kernels ignore it.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for line in maps.read_text().splitlines():
        addresses, rights, _, _, file = line.split()[:5]
        if (rights, file) == ("rw-p", "0"):
            start, end = (int(each, 16) for each in addresses.split("-"))
            advise(start, end - start, MADV_COLLAPSE)


def main() -> None:
    """Load torch and the session, and serve."""
    die_with_parent()  # the connection isn't read while torch is imported
    if os.getppid() != int(sys.argv[2]):
        os._exit(0)
    connection = Connection(int(sys.argv[1]))
    os.set_inheritable(connection.fileno(), False)
    if os.environ.get("GLIBC_TUNABLES") == LARGE_PAGES:
        del os.environ["GLIBC_TUNABLES"]  # tests see what pytest was started with
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Keep a test that asks for GPUs from loading the driver, which doesn't survive a fork.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    sys.path[:] = connection.recv()
    from distdemo.launcher.torch_import import load_torch

    load_torch()
    gc.freeze()  # collecting torch's objects would take longer than all that follows
    import distdemo.calls.record.hooks
    import distdemo.launcher.rank

    with suppress(ImportError):  # without NumPy
        import_module("numpy.random")  # which ranks seed

    # Suppress pytest's warning about plugins that were imported before it could rewrite them.
    distdemo.__doc__ = f"{distdemo.__doc__} PYTEST_DONT_REWRITE"
    setup: SessionSetup = connection.recv()
    if setup.coverage is not None:
        import_module("coverage.sqldata")  # once, for all ranks
    terminal = os.dup(0) if setup.options["usepdb"] else None  # before capturing replaces it
    config = _configured(setup)
    config.pluginmanager.register(Server(connection, terminal))
    if not config.pluginmanager.hasplugin("terminalreporter"):
        config.pluginmanager.register(Screen(config), "terminalreporter")
    _use_large_pages()
    die_with_parent(0)
    sys.exit(config.hook.pytest_cmdline_main(config=config))


if __name__ == "__main__":
    main()
