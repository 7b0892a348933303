"""The pytest plugin: ``@pytest.mark.ranks(4)`` runs a test on every rank of a new world.

When pytest has collected tests, and before it runs the first one, it forks a process (``host``)
that has the tests loaded and computes nothing. For pytest a marked test is a test like any other,
except that its set-up does nothing and that its function has the host run it on forked ranks.

This module never imports torch, and forks nothing if no test is marked.
"""

from __future__ import annotations

import os
import runpy
import sys
import warnings
from bdb import BdbQuit
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from distdemo.launcher import torch_import
from distdemo.launcher.handover import hand_over, runs_only
from distdemo.platform import system
from distdemo.testing import RanksError, RanksWarning
from distdemo.testing.mark import SIZE, THIS_RANK, mark_of, options_of, parse_mark

if TYPE_CHECKING:
    from distdemo.testing.host import RanksHost
    from distdemo.testing.reports import TestResult

HOST: pytest.StashKey[RanksHost] = pytest.StashKey()
"""Process that forks the ranks; only set in pytest's process, if a test is marked."""
TIMEOUT = pytest.StashKey[float]()
"""Seconds after which pytest-timeout would stop a marked test."""


class FailedOnRanksError(RanksError, BdbQuit):
    """Failure of a marked test. As a BdbQuit it starts no debugger: the rank has started one.

    Args:
        text: Crash message.
        longrepr: Report of the failure, for pytest.
    """

    def __init__(self, text: str, longrepr: Any) -> None:
        super().__init__(text)
        self.longrepr = longrepr


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the plugin's options, and disable assertion rewriting in this package.

    Pytest rewrites every module of a package with a plugin, which is slow, and runpy can't run
    rewritten modules.
    """
    if _is_alone():  # before pytest captures output or loads anything of the session
        hand_over("distdemo.testing.plugin.run_session")
    hook = pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("distdemo")
    getattr(hook, "_marked_for_rewrite_cache", {}).clear()
    parser.getgroup("distdemo").addoption(
        "--ranks-calls",
        action="store_true",
        help="Show the calls of all ranks of a test that failed on ranks.",
    )
    parser.getgroup("distdemo").addoption(
        "--ranks-strict",
        action="store_true",
        help="Let every test on ranks fail on a warning of the sanitizer, or if calls were not "
        "compared.",
    )


def _is_alone() -> bool:
    """Return True if this process runs nothing but a session of pytest that has just started."""
    has_torch = torch_import.from_warm_process or "torch" in sys.modules
    is_used = has_torch or len(system.thread_ids()) > 1
    return not is_used and runs_only("pytest")


def run_session(unblock: Callable[[], object]) -> None:
    """Run a session of pytest in the warm process, as its script does, and exit as Python does.

    Args:
        unblock: Function that unblocks signals.
    """
    unblock()
    from distdemo.launcher.program import exit_handlers
    from distdemo.launcher.rank import exit_as_python

    end = None
    with exit_handlers():
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except BaseException as raised:  # the exit code
            end = raised
    exit_as_python(end)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and keep test files that ask for GPUs from loading the driver.

    The driver doesn't survive a fork. With the variable, torch asks NVML (torch.cuda).
    """
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    config.addinivalue_line(
        "markers",
        "ranks(n, timeout=30, sanitize=True, backend='gloo', device='cpu', strict=False, "
        "findings='', check_replicas=None, excluded=()): run the test on every rank of a new world "
        "of n ranks; for several numbers, once per number.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test by the number of ranks."""
    mark = mark_of(metafunc.definition)
    if mark is None:
        return
    try:
        options = parse_mark(mark)
    except ValueError as error:
        reason = f"{metafunc.definition.nodeid}: {error}"
        raise pytest.fail.Exception(reason, pytrace=False) from None
    if not isinstance(mark.args[0], int):
        metafunc.fixturenames.append(SIZE)
        metafunc.parametrize(SIZE, options.sizes, ids=[f"ranks{size}" for size in options.sizes])


@pytest.fixture(scope="session")
def rank(request: pytest.FixtureRequest) -> int:
    """Return this rank's number, in a test marked with ``ranks``."""
    return _this_rank(request)[0]


@pytest.fixture(scope="session")
def world_size(request: pytest.FixtureRequest) -> int:
    """Return the number of ranks, in a test marked with ``ranks``."""
    return _this_rank(request)[1]


def _this_rank(request: pytest.FixtureRequest) -> tuple[int, int]:
    if THIS_RANK not in request.config.stash:
        pytest.fail("rank and world_size require @pytest.mark.ranks(n)", pytrace=False)
    return request.config.stash[THIS_RANK]


# --------------------------------------------------------------------------------- pytest's process


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Fork the host, and have it run the marked tests."""
    marked = [item for item in session.items if mark_of(item)]
    if not marked or session.config.option.collectonly:
        return
    from distdemo.testing.host import RanksHost

    host = session.config.stash[HOST] = RanksHost(session)
    session.config.add_cleanup(host.close)
    for item in marked:
        run = partial(_run_on_ranks, item)
        vars(run)["__wrapped__"] = getattr(item, "obj", None)  # has the test's line
        vars(item).update(
            setup=_do_nothing,
            runtest=run,
            teardown=_do_nothing,
            repr_failure=partial(_longrepr, item.repr_failure),
            _obj=run,  # hypothesis would look at the test's fixtures
        )


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """Stop the host after the last test, before pytest-cov combines what was measured."""
    try:
        return (yield)
    finally:
        if HOST in session.config.stash:
            session.config.stash[HOST].close()


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Take pytest-timeout's limit for the ranks, whose report says where they were."""
    if mark_of(item) is None:
        return None
    item.stash[TIMEOUT] = settings.timeout
    return True


def _do_nothing() -> None:
    """Take the place of a marked test's set-up and teardown, which belong to the ranks."""


def _longrepr(original: Any, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
    """Return pytest's report of a failure: that of the ranks if they failed."""
    error = excinfo.value
    return error.longrepr if isinstance(error, FailedOnRanksError) else original(excinfo)


def _run_on_ranks(item: pytest.Item) -> None:
    """Run a marked test on ranks, and raise what pytest reports as its outcome."""
    options, _ = options_of(item)
    timeout = min(options.timeout, item.stash.get(TIMEOUT, 0.0) or options.timeout)
    result = item.config.stash[HOST].run(item, timeout)
    for warning in result.warnings:
        item.ihook.pytest_warning_recorded.call_historic(kwargs=warning)
    capture: Any = item.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for report in result.subtests:
            item.ihook.pytest_runtest_logreport(report=report)
    for section in result.sections:
        item.add_report_section(*section)
    item.user_properties[:] = result.user_properties
    _warn(item, result, strict=options.strict or item.config.option.ranks_strict)
    match result.outcome:
        case "skipped":
            raise pytest.skip.Exception(result.text, _use_item_location=True)
        case "expected":
            pytest.xfail(result.text)
        case "failed":
            raise FailedOnRanksError(result.text, result.longrepr or result.text)


def _warn(item: pytest.Item, result: TestResult, *, strict: bool) -> None:
    """Warn of what the sanitizer warns of, and of calls that were not compared.

    Args:
        item: Test that has run.
        result: Its result; a test that passed fails if a warning is an error.
        strict: True if all warnings are errors, not only those that pytest's filters make one.
    """
    item.user_properties += [("ranks_warning", text) for text in result.remarks]
    off = [kind for kind, level in options_of(item)[0].levels.items() if level == "off"]
    item.user_properties += [("ranks_off", ", ".join(off))] if off else []
    if strict and result.outcome == "passed":
        errors = result.remarks
    else:
        errors = [text for text in result.remarks if _is_error(item, text)]
    if errors and result.outcome == "passed":
        result.outcome = "failed"
        result.text = errors[0]
        result.longrepr = "\n\n".join(errors)


def _is_error(item: pytest.Item, text: str) -> bool:
    """Warn in the line of a test; return True if pytest's filters make the warning an error."""
    try:
        warnings.warn_explicit(text, RanksWarning, str(item.path), (item.location[1] or 0) + 1)
    except RanksWarning:
        return True
    return False
