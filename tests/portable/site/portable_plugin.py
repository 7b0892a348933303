"""For pytest: choose the tests that run as on macOS, and fail if distdemo tries to read ``/proc``.

These are all tests that start no process, and those of `CORE`: spawned ranks import torch one by
one, so the others would take too long.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

CORE = (
    "tests/demo/",
    "tests/doctor/",
    "tests/launcher/test_start_methods.py",
    "tests/learn/test_command.py",
    "tests/run/test_command.py",
    "tests/testing/test_plugin.py",
    "tests/trace/test_command.py",
)
SKIPPED = {
    "tests/launcher/test_start_method.py": "ranks are always spawned, and there is no CUDA",
    "test_a_rank_refuses_what_the_source_can_not_decide": "its program uses memfd_create",
    "test_ranks_that_wait_in_rpc_stall": "RPC's own threads use the processor",
    "test_memory_ends_where_it_was_to_end": "macOS doesn't limit this memory",
}
"""Reasons, by path or by a part of the test's name."""
IGNORED = {
    "test_platform.py": "compares both ways on Linux",
    "test_warm.py": "distdemo warm is for Linux",
}
"""Reasons for files that aren't imported."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore these files."""
    return True if collection_path.name in IGNORED else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that start processes elsewhere, and skip tests with their reason."""
    left_out = {
        item
        for item in items
        if item.get_closest_marker("processes") and not item.nodeid.startswith(CORE)
    }
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        for part, reason in SKIPPED.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason))


def reads() -> Counter[str]:
    """Return what distdemo tried to read, and how often."""
    return Counter(Path(os.environ["DISTDEMO_TEST_SYSTEM"]).read_text().splitlines())


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the session."""
    if exitstatus == 0 and reads():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the files that are ignored, and what distdemo tried to read."""
    terminalreporter.section("files that are ignored")
    for name, reason in IGNORED.items():
        terminalreporter.line(f"{name}: {reason}")
    terminalreporter.section("reads of /proc by distdemo")
    terminalreporter.line(f"{sum(reads().values())}")
    for line, count in reads().most_common():
        terminalreporter.line(f"{count:6} {line}")
