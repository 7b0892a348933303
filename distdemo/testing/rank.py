"""Run one test on a rank with pytest's protocol, and send its reports immediately."""

from __future__ import annotations

import logging
import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from _pytest.runner import runtestprotocol

from distdemo.calls.record.hooks import record_calls
from distdemo.testing import examples
from distdemo.testing.plugin import SETUP, THIS_RANK
from distdemo.testing.records import Warned
from distdemo.testing.reports import passed_unexpectedly

if TYPE_CHECKING:
    from pathlib import Path

    from distdemo.calls.records import Notes
    from distdemo.launcher.rank import Rank


class ReportSender:
    """Sends the reports of this rank, and stores its first exception.

    Args:
        rank: This rank.
        config: pytest's configuration.

    Attributes:
        error: First exception, or None.
    """

    def __init__(self, rank: Rank, config: pytest.Config) -> None:
        self.error: BaseException | None = None
        self._rank = rank
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run the test once, whatever plugins do in pytest's process, such as rerun it."""
        runtestprotocol(item, nextitem=None)
        return True

    @pytest.hookimpl(tryfirst=True)
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
        self._rank.send(Warned(sent, when, nodeid, location))

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
    def pytest_exception_interact(self) -> None:
        """Let only the first rank that fails start the debugger."""
        if not self._config.option.usepdb:
            return
        if self._rank.count("debugged", 1) > 1:
            self._rank.barrier("the end of debugging", among=self._rank.world_size + 1)
        sys.stdout.write(f"\nRank {self._rank.rank} failed; the other ranks wait for it.\n")


def run_test(
    rank: Rank, item: pytest.Item, basetemp: Path, notes: Notes | None, terminal: int | None
) -> None:
    """Run a test on this rank. Collective.

    Raises:
        BaseException: The exception that ended the test, so that the launcher stops the other
            ranks.
    """
    config: Any = item.config
    config.stash[THIS_RANK] = (rank.rank, rank.world_size)
    config._tmp_path_factory._basetemp = basetemp
    logging.getLogger("c10d-NullHandler-default").disabled = True  # torch's exception logger
    known = len(sys.modules)
    rank.set_variables()
    _seed(config.option.ranks_seed, rank.device)
    examples.prepare(rank, item, config.option.ranks_seed)
    listener = ReportSender(rank, config)
    config.pluginmanager.register(listener)
    if terminal is not None:  # for the debugger; capturing hides it until then
        os.dup2(terminal, 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - it stays open
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.start_global_capturing()
    try:
        with _measured(item), record_calls(notes, rank.rank, rank.world_size):
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


def _seed(seed: int, device: str) -> None:
    """Seed the generators that a test may use, so that all ranks draw the same numbers."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes milliseconds
    if device != "cpu":
        torch.cuda.manual_seed(seed)
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed(seed)


@contextmanager
def _measured(item: pytest.Item) -> Iterator[None]:
    """Measure which lines run in the block, and save the data where pytest-cov combines them."""
    coverage = item.config.stash[SETUP].coverage
    fixtures = getattr(item, "fixturenames", ())
    if coverage is None or item.get_closest_marker("no_cover") or "no_cover" in fixtures:
        yield
        return
    from coverage import Coverage

    measurement = Coverage(**coverage, data_suffix=True, messages=False)
    # pytest's process warns if nothing was measured; a rank may well measure nothing.
    measurement._warn_no_data = False
    measurement._warn_unimported_source = False
    measurement._warn_preimported_source = False
    measurement.start()
    if item.config.option.cov_context == "test":
        from pytest_cov.plugin import TestContextPlugin

        controller = SimpleNamespace(cov=measurement, started=True)
        item.config.pluginmanager.register(TestContextPlugin(controller))
    try:
        yield
    finally:
        measurement.stop()
        measurement.save()
