"""Fixtures that start warm processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from warmed import Warm, started


@pytest.fixture
def new_warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Start a warm process that the test may end or change."""
    yield from started(tmp_path_factory)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Start a warm process for all tests of a module."""
    yield from started(tmp_path_factory)
