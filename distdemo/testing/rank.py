"""Run one test on a rank with pytest's protocol, and send its reports immediately."""

from __future__ import annotations

import logging
import os
import random
import sys
import warnings
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest
import torch
from _pytest.runner import runtestprotocol

from distdemo.calls.record.hooks import record_calls
from distdemo.launcher.torch_import import seed_numpy
from distdemo.testing.mark import THIS_RANK
from distdemo.testing.reports import passed_unexpectedly

if TYPE_CHECKING:
    from distdemo.calls.records import Notes
    from distdemo.launcher.rank import Rank


class ReportSender:
    """Plugin that sends the reports of this rank, and stores its first exception.

    Args:
        rank: This rank.
        config: pytest's configuration.
        folder: Temporary folder that all ranks of the test share.

    Attributes:
        error: First exception, or None.
    """

    def __init__(self, rank: Rank, config: pytest.Config, folder: Path) -> None:
        self.error: BaseException | None = None
        self._rank = rank
        self._config = config
        self._folder = folder

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run the test once, whatever plugins do in pytest's process, such as rerun it."""
        runtestprotocol(item, nextitem=None)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report immediately, because this rank may not reach its end."""
        hook = self._config.hook
        self._rank.send(hook.pytest_report_to_serializable(config=self._config, report=report))
        if report.failed and self.error is None and not passed_unexpectedly(report):
            self.error = AssertionError(report.longreprtext)

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """Send a warning for pytest's summary, as a built-in category that every process has."""
        if when != "runtest":  # recorded before the ranks started
            return
        bases = warning_message.category.__mro__
        known = next(base for base in bases if base.__module__ == "builtins")
        text = known(str(warning_message.message))
        line = warning_message.filename, warning_message.lineno
        sent = warnings.WarningMessage(text, known, *line)
        self._rank.send(
            {"warning_message": sent, "when": when, "nodeid": nodeid, "location": location}
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Any:
        """Store the exception that ends this rank: other ranks must not wait for it."""
        self._rank.exit_if_forked(call.excinfo and call.excinfo.value)
        report = yield
        skipped = call.excinfo is not None and call.excinfo.errisinstance(pytest.skip.Exception)
        if call.excinfo is not None and self.error is None and not skipped:
            self.error = call.excinfo.value
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: pytest.FixtureRequest) -> Path | None:
        """Give all ranks the same ``tmp_path``."""
        if fixturedef.argname != "tmp_path":
            return None
        self._folder.mkdir(mode=0o700, exist_ok=True)
        fixturedef.cached_result = self._folder, fixturedef.cache_key(request), None
        return self._folder

    @pytest.hookimpl(tryfirst=True)
    def pytest_exception_interact(self) -> None:
        """Let only the first rank that fails start the debugger."""
        if not self._config.option.usepdb:
            return
        if self._rank.count("debugged", 1) > 1:
            self._rank.barrier("the end of debugging", among=self._rank.world_size + 1)
        sys.stdout.write(f"\nRank {self._rank.rank} failed; the other ranks wait for it.\n")


def run_test(
    rank: Rank, item: pytest.Item, folder: Path, notes: Notes | None, terminal: int | None
) -> None:
    """Run a test on this rank. Collective.

    Raises:
        BaseException: The exception that ended the test, so that the launcher stops the other
            ranks.
    """
    config: Any = item.config
    config.stash[THIS_RANK] = (rank.rank, rank.world_size)
    logging.getLogger("c10d-NullHandler-default").disabled = True  # torch's exception logger
    known = len(sys.modules)
    rank.set_variables()
    _seed(item, rank.device)
    listener = ReportSender(rank, config, folder)
    config.pluginmanager.register(listener)
    if terminal is not None:  # for the debugger; capturing hides it until then
        os.dup2(terminal, 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays open
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.start_global_capturing()
    try:
        with record_calls(notes, rank.rank, rank.world_size):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            if isinstance(listener.error, SystemExit):  # an ordinary error in a test
                raise RuntimeError("sys.exit in a test") from listener.error  # noqa: TRY004 - no type
            if listener.error is not None:
                raise listener.error
    finally:
        capture.stop_global_capturing()
        # Reading all names would copy their memory pages.
        names = islice(reversed(sys.modules), max(0, len(sys.modules) - known))
        if new := tuple(name for name in names if name.startswith("torch.")):
            rank.send(new)


def _seed(item: pytest.Item, device: str) -> None:
    """Seed the generators that a test may use: all ranks draw the same numbers, in every run."""
    seed = crc32(item.nodeid.encode())
    random.seed(seed)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes milliseconds
    if device != "cpu":
        torch.cuda.manual_seed(seed)
    seed_numpy(seed)
    test: Any = getattr(item, "obj", None)
    if hasattr(test, "hypothesis"):
        from hypothesis import core, settings

        if core.global_force_seed is None:  # --hypothesis-seed wasn't given
            core.global_force_seed = seed  # type: ignore[assignment]  # as hypothesis's plugin does
        function = getattr(test, "__func__", test)
        given = getattr(function, "_hypothesis_internal_use_settings", settings.default)
        # Ranks differ in speed and would read the database at different times.
        function._hypothesis_internal_use_settings = settings(given, database=None, deadline=None)
