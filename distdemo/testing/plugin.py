"""The pytest plugin: ``@pytest.mark.ranks(4)`` runs a test on every rank of a new world.

Here is what happens in pytest's own process. It runs no marked test itself: it asks a process of
its own for that (``template``), which has torch and the tests loaded and forks the ranks. Nothing
here imports torch, and nothing is started where no test is marked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

MARK = "ranks"
SIZE = "_ranks"
"""The parameter of a test that is marked with several numbers of ranks."""
TEMPLATE = pytest.StashKey[Any]()
"""What ranks are forked from: a ``client.Template``, once a test is marked."""
THIS_RANK = pytest.StashKey[tuple[int, int]]()
"""On a rank, and there alone: its number and the world's size."""
IS_TEMPLATE = pytest.StashKey[bool]()


@dataclass(frozen=True)
class Asked:
    """What a mark asks for.

    Attributes:
        sizes: numbers of ranks: a test each.
        timeout: seconds that the test gets on all ranks.
        sanitize: compare the ranks' calls.
        backend: of the default group.
        device: ``cpu`` or ``cuda``.
    """

    sizes: tuple[int, ...]
    timeout: float = 30.0
    sanitize: bool = True
    backend: str = "gloo"
    device: str = "cpu"


def read(mark: pytest.Mark) -> Asked:
    """What ``ranks(...)`` asks for.

    Raises:
        ValueError: it can't be meant so.
    """
    if len(mark.args) != 1:
        raise ValueError("ranks takes one number, or one list: ranks(4), ranks([1, 2, 4])")
    given = mark.args[0]
    sizes = (given,) if isinstance(given, int) else tuple(given)
    if unknown := mark.kwargs.keys() - {"timeout", "sanitize", "backend", "device"}:
        raise ValueError(f"ranks takes timeout, sanitize, backend and device, not {unknown.pop()}")
    asked = Asked(sizes, **mark.kwargs)
    if not sizes or any(type(size) is not int or size < 1 for size in sizes):
        raise ValueError(f"ranks takes whole numbers from 1 on, not {given!r}")
    if not isinstance(asked.timeout, int | float) or not asked.timeout > 0:
        raise ValueError(f"timeout is seconds, more than 0, not {asked.timeout!r}")
    if asked.sanitize not in (True, False):
        raise ValueError(f"sanitize is True or False, not {asked.sanitize!r}")
    return asked


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """``--ranks-report``; and leave the assertions of this package as they are.

    Pytest rewrites every module of a package that has a plugin: slow, and runpy can't run those.
    """
    hook = pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("distdemo")
    getattr(hook, "_marked_for_rewrite_cache", {}).clear()
    parser.getgroup("distdemo").addoption(
        "--ranks-report",
        choices=("first", "all"),
        default="first",
        help="Of a test that failed on several ranks, show the first traceback, or all.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    config.addinivalue_line(
        "markers",
        "ranks(n, timeout=30, sanitize=True, backend='gloo', device='cpu'): run the test on every "
        "rank of a new world of n ranks; of a list of numbers, once for each.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each number of ranks."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None:
        return
    try:
        asked = read(mark)
    except ValueError as error:
        pytest.fail(f"{metafunc.definition.nodeid}: {error}", pytrace=False)
    if not isinstance(mark.args[0], int):
        metafunc.fixturenames.append(SIZE)
        metafunc.parametrize(SIZE, asked.sizes, ids=[f"ranks{size}" for size in asked.sizes])


@pytest.fixture(scope="session")
def rank(request: pytest.FixtureRequest) -> int:
    """This rank's number, in a test that is marked with ``ranks``."""
    return _this_rank(request)[0]


@pytest.fixture(scope="session")
def world_size(request: pytest.FixtureRequest) -> int:
    """The number of ranks, in a test that is marked with ``ranks``."""
    return _this_rank(request)[1]


def _this_rank(request: pytest.FixtureRequest) -> tuple[int, int]:
    if THIS_RANK not in request.config.stash:
        pytest.fail("rank and world_size are for tests with @pytest.mark.ranks(n)", pytrace=False)
    return request.config.stash[THIS_RANK]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start what ranks are forked from, while other tests may run; it takes a second to load."""
    config = session.config
    if (
        config.option.collectonly
        or IS_TEMPLATE in config.stash
        or getattr(config.option, "numprocesses", None)  # pytest-xdist's workers run the tests
        or not any(item.get_closest_marker(MARK) for item in session.items)
    ):
        return
    _template(config)


def _template(config: pytest.Config) -> Any:  # noqa: ANN401 - a Template, whose module is loaded when needed
    """What ranks are forked from; a new one if there is none, or it has ended."""
    from distdemo.testing.client import Template

    template = config.stash.get(TEMPLATE, None)
    if template is None or template.closed:
        template = config.stash[TEMPLATE] = Template(config)
    return template


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test on ranks, and report what came of it as one test."""
    mark = item.get_closest_marker(MARK)
    if mark is None or TEMPLATE not in item.config.stash:
        return None
    asked = read(mark)
    callspec = getattr(item, "callspec", None)
    size = asked.sizes[0] if callspec is None else callspec.params.get(SIZE, asked.sizes[0])
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item, asked, size):
        item.ihook.pytest_runtest_logreport(report=report)
    # What unmarked tests before this one have set up here, and the next one doesn't need.
    state: Any = item.session._setupstate  # noqa: SLF001 - as pytest's own protocol does
    call = pytest.CallInfo.from_call(partial(state.teardown_exact, nextitem), "teardown")
    if call.excinfo is not None:
        report = pytest.TestReport.from_item_and_call(item, call)
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports(item: pytest.Item, asked: Asked, size: int) -> Iterable[pytest.TestReport]:
    from distdemo.testing.reports import merged

    ended: list[Any] = []

    def run() -> None:
        ended.append(_template(item.config).run(item, asked, size))

    call = pytest.CallInfo.from_call(
        run, "call", reraise=(KeyboardInterrupt, pytest.exit.Exception)
    )
    if call.excinfo is None:
        for warning, when, nodeid, location in ended[0].warnings:
            item.ihook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": warning,
                    "when": when,
                    "nodeid": nodeid,
                    "location": location,
                }
            )
        return merged(item, ended[0], size, whole=item.config.option.ranks_report == "all")
    return [pytest.TestReport.from_item_and_call(item, call)]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what ranks were forked from."""
    template = config.stash.get(TEMPLATE, None)
    if template is not None and not template.closed:
        template.close()


@pytest.fixture
def _ranks() -> None:
    """Only so that the parameter of this name is known; see ``SIZE``."""
