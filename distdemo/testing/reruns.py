"""Let pytest-rerunfailures run marked tests again, each time in a new world.

It calls pytest's ``runtestprotocol``, which would run the test in pytest's process, so it gets
another function for marked tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distdemo.testing import RanksError

RunOnce = Callable[[pytest.Item, "pytest.Item | None"], list[pytest.TestReport]]


class Maker:
    """The only plugin that makes reports of a marked test; pytest-rerunfailures reads them."""

    report: pytest.TestReport

    def pytest_runtest_makereport(self) -> pytest.TestReport:
        """Return the merged report of the ranks."""
        return self.report


def rerun(item: pytest.Item, nextitem: pytest.Item | None, run_once: RunOnce) -> bool:
    """Run a marked test as often as pytest-rerunfailures asks; return False if it doesn't ask."""
    manager = item.config.pluginmanager
    plugin: Any = manager.getplugin("rerunfailures")
    if plugin is None:
        return False
    others = manager.get_plugins() - {plugin}
    maker = Maker()
    manager.register(maker)
    make_report = manager.subset_hook_caller("pytest_runtest_makereport", others)

    def run(item: pytest.Item, nextitem: pytest.Item | None, **_: Any) -> list[pytest.TestReport]:
        reports = []
        for maker.report in run_once(item, nextitem):
            call = pytest.CallInfo.from_call(lambda: _raise(maker.report), maker.report.when)
            reports.append(make_report(item=item, call=call))
        return reports

    original, plugin.runtestprotocol = plugin.runtestprotocol, run
    try:
        return bool(plugin.pytest_runtest_protocol(item=item, nextitem=nextitem))
    finally:
        plugin.runtestprotocol = original
        manager.unregister(maker)


def _raise(report: pytest.TestReport) -> None:
    """Raise an exception like the one that a failed report is about, for ``--only-rerun``."""
    if not report.failed:
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext if crash is None else crash.message
    name, _, message = text.partition(": ")
    if name.isidentifier():
        raise type(name, (RanksError,), {})(message)
    raise RanksError(text)
