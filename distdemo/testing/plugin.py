"""The pytest plugin: ``@pytest.mark.ranks(4)`` runs a test on every rank of a new world.

This module runs in pytest's process, which never runs a marked test itself. It sends the test to a
second process (``template``) that has torch and the tests loaded and forks the ranks. This module
never imports torch, and starts nothing if no test is marked.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from distdemo.testing.records import RanksOptions

MARK = "ranks"
SIZE = "_ranks"
"""Parameter of a test that is marked with several numbers of ranks."""
TEMPLATE = pytest.StashKey[Any]()
"""``client.Template`` that ranks are forked from, once it is needed."""
THIS_RANK = pytest.StashKey[tuple[int, int]]()
"""Rank and world size; only set on a rank."""
IS_TEMPLATE = pytest.StashKey[bool]()


def parse_mark(mark: pytest.Mark) -> RanksOptions:
    """Parse the arguments of ``ranks(...)``.

    Raises:
        ValueError: The arguments are invalid.
    """
    if len(mark.args) != 1:
        raise ValueError("ranks takes one number or one list: ranks(4), ranks([1, 2, 4])")
    given = mark.args[0]
    sizes = (given,) if isinstance(given, int) else tuple(given)
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


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
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
        pytest.fail(f"{metafunc.definition.nodeid}: {error}", pytrace=False)
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


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the template process early; it loads while other tests run."""
    config = session.config
    if (
        config.option.collectonly
        or IS_TEMPLATE in config.stash
        or getattr(config.option, "numprocesses", None)  # pytest-xdist's workers run the tests
        or not any(item.get_closest_marker(MARK) for item in session.items)
    ):
        return
    _template(config)


def _template(config: pytest.Config) -> Any:  # noqa: ANN401 - a Template, imported lazily
    """Return the template process; start one if there is none or it has exited."""
    from distdemo.testing.client import Template

    template = config.stash.get(TEMPLATE, None)
    if template is None or template.closed:
        template = config.stash[TEMPLATE] = Template(config)
    return template


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test on ranks, and report the result as one test."""
    mark = item.get_closest_marker(MARK)
    if mark is None or TEMPLATE not in item.config.stash:
        return None
    options = parse_mark(mark)
    callspec = getattr(item, "callspec", None)
    size = options.sizes[0] if callspec is None else callspec.params.get(SIZE, options.sizes[0])
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item, options, size):
        item.ihook.pytest_runtest_logreport(report=report)
    # Tear down fixtures of earlier unmarked tests that the next test doesn't need.
    state: Any = item.session._setupstate  # noqa: SLF001 - as pytest's own protocol does
    call = pytest.CallInfo.from_call(partial(state.teardown_exact, nextitem), "teardown")
    if call.excinfo is not None:
        report = pytest.TestReport.from_item_and_call(item, call)
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports(item: pytest.Item, options: RanksOptions, size: int) -> Iterable[pytest.TestReport]:
    from distdemo.testing.reports import merged

    results: list[Any] = []

    def run() -> None:
        results.append(_template(item.config).run(item, options, size))

    call = pytest.CallInfo.from_call(
        run, "call", reraise=(KeyboardInterrupt, pytest.exit.Exception)
    )
    if call.excinfo is None:
        for warning, when, nodeid, location in results[0].warnings:
            item.ihook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": warning,
                    "when": when,
                    "nodeid": nodeid,
                    "location": location,
                }
            )
        return merged(item, results[0], size, item.config.option.ranks_report)
    return [pytest.TestReport.from_item_and_call(item, call)]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the template process."""
    template = config.stash.get(TEMPLATE, None)
    if template is not None and not template.closed:
        template.close()


@pytest.fixture
def _ranks() -> None:
    """Declare the parameter of this name; see ``SIZE``."""
