from __future__ import annotations

import pytest

from distdemo.launcher import limits


@pytest.fixture
def machine(monkeypatch):
    """Fake machine: the text of its /proc and /sys files by path. Empty means no limits."""
    files: dict[str, str] = {}
    monkeypatch.setattr(limits, "_lines", lambda path: files.get(path, "").splitlines())
    monkeypatch.setattr(limits, "_limit_on", lambda name, **_: limits.UNLIMITED)
    return files
