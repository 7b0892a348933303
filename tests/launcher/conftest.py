from __future__ import annotations

import os

import pytest
from helpers import children

from distdemo.launcher import limits
from distdemo.platform import system


@pytest.fixture
def machine(monkeypatch):
    """Fake machine: the text of its /proc and /sys files by path. Empty means no limits."""
    if not system.is_linux:
        pytest.skip("the files are Linux's")
    from distdemo.platform import linux

    files: dict[str, str] = {}
    monkeypatch.setattr(linux, "_text", lambda path: files.get(path, ""))
    monkeypatch.setattr(limits, "_open_files", lambda: limits.UNLIMITED)
    return files


@pytest.fixture
def no_child_left():
    """Check that the test leaves no child process; earlier tests may have left a forkserver."""
    before = set(children(os.getpid()))
    yield
    assert set(children(os.getpid())) <= before
