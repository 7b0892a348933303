"""The pytest plugin: ``@pytest.mark.ranks(4)`` runs a test on every rank of a new world.

This module runs in pytest's process, which never runs a marked test itself. It sends the test to a
host (``session``) that has torch and the tests loaded and forks the ranks. This module never
imports torch, and starts nothing if no test is marked.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from distdemo.testing.records import RanksOptions

if TYPE_CHECKING:
    from distdemo.testing.client import RanksSession
    from distdemo.testing.records import SessionSetup

MARK = "ranks"
MENTION = b"mark.ranks"
"""Text of nearly every file with marked tests."""
RUNS_NO_TEST = (
    "cacheshow",
    "collectonly",
    "help",
    "markers",
    "show_fixtures_per_test",
    "showfixtures",
)
"""Options of pytest that print something instead of running tests."""
SIZE = "_ranks"
"""Parameter of a test that is marked with several numbers of ranks."""
SESSION: pytest.StashKey[RanksSession] = pytest.StashKey()
"""Session that ranks are forked from, once it is needed."""
BROKEN = pytest.StashKey[tuple[str, str]]()
"""Test whose report says why that session can't start, and the reason."""
TIMEOUT = pytest.StashKey[float]()
"""Seconds after which pytest-timeout would stop a marked test."""
THIS_RANK = pytest.StashKey[tuple[int, int]]()
"""Rank and world size; only set on a rank."""
SETUP: pytest.StashKey[SessionSetup] = pytest.StashKey()
"""Only set in the host and on ranks."""


def parse_mark(mark: pytest.Mark) -> RanksOptions:
    """Parse the arguments of ``ranks(...)``.

    Raises:
        ValueError: The arguments are invalid.
    """
    if len(mark.args) != 1:
        raise ValueError("ranks takes one number or one list: ranks(4), ranks([1, 2, 4])")
    given = mark.args[0]
    sizes = tuple(given) if isinstance(given, Iterable) else (given,)
    if unknown := mark.kwargs.keys() - {"timeout", "sanitize", "backend", "device"}:
        raise ValueError(f"ranks takes timeout, sanitize, backend and device, not {unknown.pop()}")
    options = RanksOptions(sizes, **mark.kwargs)
    if not sizes or any(type(size) is not int or size < 1 for size in sizes):
        raise ValueError(f"ranks takes integers of at least 1, not {given!r}")
    if not isinstance(options.timeout, int | float) or not options.timeout > 0:
        raise ValueError(f"timeout must be a positive number of seconds, not {options.timeout!r}")
    if options.sanitize not in (True, False):
        raise ValueError(f"sanitize must be True or False, not {options.sanitize!r}")
    return options


def options_of(item: pytest.Item) -> tuple[RanksOptions, int]:
    """Return the arguments of a test's mark, and its number of ranks."""
    mark = item.get_closest_marker(MARK)
    assert mark is not None  # only called for marked tests
    options = parse_mark(mark)
    callspec = getattr(item, "callspec", None)
    size = options.sizes[0] if callspec is None else callspec.params.get(SIZE, options.sizes[0])
    return options, size


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add ``--ranks-report``, and disable assertion rewriting in this package.

    Pytest rewrites every module of a package with a plugin, which is slow, and runpy can't run
    rewritten modules.
    """
    hook = pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("distdemo")
    getattr(hook, "_marked_for_rewrite_cache", {}).clear()
    parser.getgroup("distdemo").addoption(
        "--ranks-report",
        choices=("first", "all", "calls"),
        default="first",
        help="What to show of a test that failed on ranks: the first traceback, all distinct "
        "tracebacks, or the first traceback and the calls of all ranks.",
    )
    parser.getgroup("distdemo").addoption(
        "--ranks-seed",
        type=int,
        help="Seed of random numbers on all ranks [default: pytest-randomly's, or a new one].",
    )


@pytest.hookimpl(trylast=True)  # after pytest-randomly has chosen its seed
def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and choose the seed of this run."""
    option = config.option
    inherited = getattr(config, "workerinput", {}).get("ranks_seed")  # pytest-xdist's
    candidates = inherited, option.ranks_seed, getattr(option, "randomly_seed", None)
    seeds = [seed for seed in candidates if isinstance(seed, int)]
    option.ranks_seed = (seeds or [random.SystemRandom().getrandbits(32)])[0] % 2**32
    config.addinivalue_line(
        "markers",
        "ranks(n, timeout=30, sanitize=True, backend='gloo', device='cpu'): run the test on every "
        "rank of a new world of n ranks; for a list of numbers, once per number.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test by the number of ranks."""
    mark = metafunc.definition.get_closest_marker(MARK)
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


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the seed of this run to a worker of pytest-xdist."""
    node.workerinput["ranks_seed"] = node.config.option.ranks_seed


# ---------------------------------------------------------------------------- the second session


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start the second session if a file of the command line has marked tests.

    This process and the host then import torch at the same time, even if a conftest.py does.
    """
    option = early_config.known_args_namespace
    if _runs_tests(early_config, option):
        names = (str(argument).partition("::")[0] for argument in option.file_or_dir)
        if any(_mentions_mark(early_config.invocation_params.dir / name) for name in names):
            _start_session(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> None:
    """Start it before pytest imports a file with marked tests, which imports torch."""
    session, config = parent.session, parent.config
    if SESSION in config.stash or not _runs_tests(config, config.option):
        return
    # Pytest also makes modules of the files next to a named one, and doesn't collect them.
    collected = any(session.isinitpath(path) for path in (module_path, *module_path.parents))
    if collected and _mentions_mark(module_path):
        _session(config)


def _mentions_mark(file: Path) -> bool:
    """Return True if a test file has the text of the mark."""
    with suppress(OSError):
        return file.is_file() and MENTION in file.read_bytes()
    return False


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Send the configuration to a session that was started early, or start a new one."""
    early = session.config.stash.get(SESSION, None)
    if early is not None and not early.configure(session.config):
        early.close()
        _session(session.config)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start it for tests that were marked in another way; it loads while other tests run."""
    is_marked = any(item.get_closest_marker(MARK) for item in session.items)
    if is_marked and _runs_tests(session.config, session.config.option):
        _session(session.config)


def _runs_tests(config: pytest.Config, option: Any) -> bool:
    """Return True if this process runs tests; the workers of pytest-xdist do it for another."""
    elsewhere = SETUP in config.stash or getattr(option, "numprocesses", None)
    return not (elsewhere or any(getattr(option, name, False) for name in RUNS_NO_TEST))


def _session(config: pytest.Config) -> RanksSession:
    """Return the second session; start one if there is none or it has exited."""
    session = config.stash.get(SESSION, None)
    if session is None or session.host.closed:
        session = _start_session(config)
        session.configure(config)
    return session


def _start_session(config: pytest.Config) -> RanksSession:
    from distdemo.testing.client import RanksSession

    session = config.stash[SESSION] = RanksSession(config)
    config.add_cleanup(session.close)
    return session


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """Stop it after the last test, before pytest-cov combines what was measured."""
    try:
        return (yield)
    finally:
        if SESSION in session.config.stash:
            session.config.stash[SESSION].close()


# ------------------------------------------------------------------------------------- the tests


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test on ranks, and report the result as one test."""
    if item.get_closest_marker(MARK) is None or SESSION not in item.config.stash:
        return None
    from distdemo.testing.reruns import rerun

    if rerun(item, nextitem, _reports):
        return True
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Take pytest-timeout's limit for the ranks, whose report says where they were."""
    if SETUP in item.config.stash:
        return True  # pytest's process watches the time
    if item.get_closest_marker(MARK) is None:
        return None
    item.stash[TIMEOUT] = settings.timeout
    return True


def _reports(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Run a marked test once and return the reports of its phases."""
    call = pytest.CallInfo.from_call(
        partial(_merged_reports, item), "call", reraise=(KeyboardInterrupt, pytest.exit.Exception)
    )
    reports = call.result if call.excinfo is None else [_report_of(item, call)]
    # Tear down fixtures of earlier unmarked tests that the next test doesn't need.
    state: Any = item.session._setupstate
    call = pytest.CallInfo.from_call(partial(state.teardown_exact, nextitem), "teardown")
    return reports if call.excinfo is None else [*reports, _report_of(item, call)]


def _report_of(item: pytest.Item, call: pytest.CallInfo[Any]) -> pytest.TestReport:
    return pytest.TestReport.from_item_and_call(item, call)


def _merged_reports(item: pytest.Item) -> list[pytest.TestReport]:
    from distdemo.launcher.host import HostError
    from distdemo.testing.reports import failure_report, merged

    config = item.config
    options, size = options_of(item)
    timeout = min(options.timeout, item.stash.get(TIMEOUT, 0.0) or options.timeout)
    if BROKEN not in config.stash:
        session = _session(config)
        try:
            result = session.run(item, timeout)
        except HostError as error:
            if session.host.ready:
                return [failure_report(item, "call", str(error))]
            config.stash[BROKEN] = item.nodeid, str(error)
    if BROKEN in config.stash:
        test, why = config.stash[BROKEN]
        if item.nodeid != test:  # pytest-rerunfailures may run the same test again
            why = f"Ranks can't be started: see the report of {test}."
        return [failure_report(item, "setup", why)]
    for warning in result.warnings.values():
        item.ihook.pytest_warning_recorded.call_historic(kwargs=vars(warning))
    return merged(item, result, size, config.option.ranks_report)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the seed if a marked test failed."""
    stats = terminalreporter.stats
    failed = [*stats.get("failed", ()), *stats.get("error", ())]
    if any(MARK in getattr(report, "keywords", ()) for report in failed):
        terminalreporter.write_line(
            f"Random numbers on ranks: --ranks-seed={config.option.ranks_seed}"
        )


@pytest.fixture
def _ranks() -> None:
    """Declare the parameter of this name; see ``SIZE``."""
