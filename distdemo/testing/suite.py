"""A base class for suites that start their own processes, such as PyTorch's."""

from __future__ import annotations

import os
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class RanksTestCase(unittest.TestCase):
    """Base class of a suite that is marked with ``ranks``; the first one, if it has several.

    A test that exits with a code of torch's ``TEST_SKIPS`` is skipped, with torch's reason. Under
    PyTorch's ``MultiProcessTestCase`` no process is started: each rank runs ``setUp``, then
    ``_run``, as a process of PyTorch would, and ``tearDown``.

    Attributes:
        rank: This rank.
        file_name: File that all ranks of the test share; it doesn't exist yet.
    """

    rank: int
    file_name: str

    @property
    def world_size(self) -> int:
        """Number of ranks, that of the mark."""
        return int(os.environ["WORLD_SIZE"])

    @pytest.fixture(autouse=True)
    def _take_rank(self, rank: int, world_size: int, tmp_path: Path) -> None:
        if int(self.world_size) != world_size:
            name = type(self).__name__
            text = f"{name} has world_size {self.world_size}, but the mark is ranks({world_size})."
            pytest.fail(text, pytrace=False)
        self.rank = rank
        self.file_name = str(tmp_path / "rendezvous")
        self._started = rank, self._testMethodName, self.file_name, None

    def _callTestMethod(self, method: Callable[[], object]) -> None:  # noqa: N802 - unittest's name
        """Run the test, and skip it if it exits with one of torch's codes."""
        try:
            super()._callTestMethod(method)  # type: ignore[misc]  # of unittest, for subclasses
        except SystemExit as ending:
            if not ending.code:
                return
            from torch.testing._internal.common_distributed import TEST_SKIPS

            for skip in TEST_SKIPS.values():
                if skip.exit_code == ending.code:
                    raise unittest.SkipTest(skip.message) from None
            raise

    # -------------------------------------------------------- in place of MultiProcessTestCase's

    def _start_processes(self, proc: object) -> None:
        """Start nothing: the ranks are running. Processes of PyTorch have no variables of ranks."""
        for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            os.environ.pop(name, None)

    def _join_processes(self, fn: object) -> None:
        """Run the test as this rank, without the default group: the test makes its own."""
        import torch.distributed as dist

        dist.destroy_process_group()
        suite: Any = type(self)
        suite._run(*self._started)

    def run_test(self, test_name: str, parent_pipe: object) -> None:
        """Run the test; its exceptions and exit codes go to pytest."""
        getattr(self, test_name)()
