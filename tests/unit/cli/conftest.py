from __future__ import annotations

import pytest

from distdemo import backends
from distdemo.launcher import limits


@pytest.fixture(autouse=True)
def roomy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without limits and without a GPU, so that only the command line is judged."""
    monkeypatch.setattr(limits, "_lines", lambda path: [])
    monkeypatch.setattr(limits, "_limit_on", lambda name, **_: limits.UNLIMITED)
    monkeypatch.setattr(backends, "gpus_in_sight", lambda: False)
