from __future__ import annotations

import pytest

from distdemo import backends
from distdemo.launcher import limits


@pytest.fixture(autouse=True)
def roomy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without limits and without a GPU, so that only the command line is judged."""
    monkeypatch.setattr(limits, "_lines", lambda path: [])
    monkeypatch.setattr(limits, "_open_files", lambda: limits.UNLIMITED)
    monkeypatch.setattr(limits, "_user_processes", lambda: None)
    monkeypatch.setattr(backends, "gpus_in_sight", lambda: False)
