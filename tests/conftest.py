"""What all tests share: torch in their own process, marks, and fixtures that run commands."""

from __future__ import annotations

import gc
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

pytest.register_assert_rewrite(
    "golden", "processes", "warmed"
)  # an assert there shows what differs

from forked import ForkedHost  # noqa: E402 - after the line above
from hypothesis import settings  # noqa: E402 - as above
from processes import Command, Start  # noqa: E402 - as above
from warmed import Session, started  # noqa: E402 - as above

from distdemo.launcher import torch_import  # noqa: E402 - as above
from distdemo.platform import system  # noqa: E402 - as above

COUNTS: pytest.StashKey[Counter[str]] = pytest.StashKey()
"""What the warm processes of ``--warm`` have done."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs the started commands in a warm process."""
    parser.addoption(
        "--warm", action="store_true", help="Run the commands that tests start with distdemo warm."
    )


@pytest.fixture(scope="session", autouse=True)
def warm_session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session | None]:
    """With ``--warm``, start a warm process that all commands of this process find."""
    config = request.config
    if not config.getoption("warm"):
        yield None
        return
    with contextmanager(started)(tmp_path_factory) as warm, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", warm.env["XDG_RUNTIME_DIR"])
        patch.delenv("PYTHONUNBUFFERED", raising=False)  # as in `Warm`
        session = Session(warm)
        yield session
        session.end()
        _add_counts(config, session.counts)
        getattr(config, "workeroutput", {})["warm"] = dict(session.counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what the warm process of a worker of pytest-xdist has done."""
    _add_counts(node.config, getattr(node, "workeroutput", {}).get("warm", {}))


def _add_counts(config: pytest.Config, counts: Mapping[str, int]) -> None:
    config.stash.setdefault(COUNTS, Counter()).update(counts)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what the warm processes have done, and what ran without them, with the reason."""
    if config.getoption("warm"):
        terminalreporter.section("distdemo warm")
        for text, count in config.stash.get(COUNTS, Counter[str]()).most_common():
            terminalreporter.line(f"{count:6} {text}")


def pytest_configure(config: pytest.Config) -> None:
    """Load torch as the command does, so that ranks can be forked from the tests' own process.

    An ordinary import would leave a thread of NumPy's that isn't recorded, and a large tensor in a
    unit test would start torch's pool. After either, every world would take the slower start
    method.
    """
    if config.getoption("numprocesses", None):
        return  # the controller of pytest-xdist runs no test
    torch_import.load_torch()
    # A worker of pytest-xdist has a thread that waits for its controller; no rank needs it.
    vars(torch_import)["_known_threads"] = system.thread_ids()
    import torch

    torch.set_num_threads(1)


def pytest_collection_finish() -> None:
    """Freeze collected tests, so that the garbage collector skips them.

    Ranks and commands that are forked from here then don't copy them, page by page.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def process_without_mpi() -> Iterator[None]:
    """Check that no test loads MPI here, where the next test would find it."""
    yield
    assert "distdemo.mpi.registration" not in sys.modules


HANDLERS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,  # also where a shell's background job ignores it
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,  # a background job ignores it, too
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
    """Fail if a command line that can't be carried out starts a rank."""
    from distdemo.launcher import workers

    def start(*_: object) -> None:
        pytest.fail("a rank was started")

    monkeypatch.setattr(workers.Workers, "start", start)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in this process: (exit code, stdout, stderr), or its JSON document."""
    return Command(capfd)


@pytest.fixture
def start(
    tmp_path_factory: pytest.TempPathFactory, warm_session: Session | None
) -> Iterator[Start]:
    """Start programs, which are killed at the end of the test."""
    with ExitStack() as stack:
        yield Start(partial(tmp_path_factory.mktemp, "t"), stack, warm_session)


@pytest.fixture(scope="session")
def compiler() -> None:
    """Load torch's compiler and RPC, which takes as long as torch, once for all forks of it."""
    from distdemo.rpc.rank import load_rpc

    load_rpc()
    torch_import.load_compiler(("torch.nn.parallel",))


@pytest.fixture(scope="module")
def forked_hosts(warm_session: Session | None) -> Iterator[None]:
    """Fork each helper from this process, which has loaded torch, instead of starting Python.

    With ``--warm``, it is forked from the warm process.
    """
    from distdemo.launcher import helper

    if warm_session is not None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helper, "NewPython", ForkedHost)
        yield
