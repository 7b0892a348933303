"""What all tests share: torch in their own process, marks, and commands that run there."""

from __future__ import annotations

import gc
import inspect
import signal
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import pytest

pytest.register_assert_rewrite("golden", "helpers")  # an assert there shows what differs

from forked import Warm  # noqa: E402 - after the line above
from hypothesis import settings  # noqa: E402 - as above

from distdemo.launcher import torch_import  # noqa: E402 - as above


def pytest_configure(config: pytest.Config) -> None:
    """Load torch as the command does, so that ranks can be forked from the tests' own process.

    Imported by a test in the ordinary way it would leave a thread of NumPy's behind that nobody has
    taken note of; a large tensor in a unit test would start torch's own pool. After either, every
    world would take the slower start method.
    """
    if config.getoption("numprocesses", None):
        return  # the controller of pytest-xdist runs no test
    torch_import.load_torch()
    # A worker of pytest-xdist has a thread that waits for its controller; no rank needs it.
    vars(torch_import)["_known_threads"] = torch_import.threads()
    import torch

    torch.set_num_threads(1)


STARTERS = {
    *("Popen", "PmiServer", "ProgramRunner", "fork", "in_a_child", "launch", "run_ranks"),
    *("compare", "run_world", "subprocess"),
    *("command", "hosts", "measured", "tab", "warm"),  # fixtures
}


def names_in(code: CodeType) -> set[str]:
    """Return the names that this code and the functions within it use."""
    inner = (names_in(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)


def names_used(function: Any, seen: set[object]) -> set[str]:
    """Return the names that a test uses, also in the tests' functions that it calls."""
    function = inspect.unwrap(getattr(function, "hypothesis", None) or function)
    function = getattr(function, "inner_test", function)  # hypothesis's
    code = getattr(function, "__code__", None)
    if function in seen or "/tests/" not in getattr(code, "co_filename", ""):
        return set()
    seen.add(function)
    names = names_in(function.__code__)
    found = [function.__globals__[name] for name in names & function.__globals__.keys()]
    return names.union(*(names_used(each, seen) for each in found if callable(each)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start processes, which ``make test-fast`` leaves out.

    Those that need a process which has loaded torch come first: a worker of pytest-xdist begins
    with a part of the list, so that one worker starts that process, not each of them.
    """
    first = []
    for item in items:
        assert isinstance(item, pytest.Function)
        fixtures = [each[-1].func for each in item._fixtureinfo.name2fixturedefs.values()]
        used = set(item.fixturenames).union(
            *(names_used(each, set()) for each in (item.function, *fixtures))
        )
        if STARTERS & used and "no_rank_starts" not in used:
            item.add_marker("processes")
        if {"run_ranks", "warm"} & used or item.get_closest_marker("ranks"):
            first.append(item)
    items.sort(key=lambda item: item not in first)


def pytest_collection_finish() -> None:
    """Have Python look no more for garbage among what thousands of tests are made of.

    Nor do the ranks and commands that are forked from here copy all of that, page by page.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def process_without_mpi() -> Iterator[None]:
    """See that no test loads MPI here, which the next would find: ``in_a_child`` is for that."""
    yield
    assert "distdemo.mpi.registration" not in sys.modules


HANDLERS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,  # also where a shell's background job ignores it
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


@pytest.fixture(autouse=True)
def handlers_restored() -> None:
    """Restore the signal handlers that a command run in this process has replaced."""
    sys.unraisablehook = sys.__unraisablehook__
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)


settings.register_profile("suite", deadline=None)  # a loaded machine is no failure
settings.load_profile("suite")


@pytest.fixture
def no_rank_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For command lines that can't be carried out."""
    from distdemo.launcher import workers

    def start(*_: object) -> None:
        pytest.fail("a rank was started")

    monkeypatch.setattr(workers.Workers, "start", start)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process: (exit code, stdout, stderr)."""
    from distdemo.cli.main import run

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        out, err = capfd.readouterr()
        return code, out, err

    return call


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Runs functions in forks of a process that has loaded torch's compiler and RPC; see there."""
    process = Warm()
    yield process
    process.close()
