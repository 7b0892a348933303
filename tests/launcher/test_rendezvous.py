from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from distdemo.launcher.rendezvous import file_rendezvous

on_linux = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="has no files in memory")


@pytest.fixture(autouse=True)
def temporary(monkeypatch, tmp_path):
    """An empty temporary directory for the machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@on_linux
@pytest.mark.processes
def test_where_proc_is_hidden_a_private_directory_is_taken(monkeypatch, temporary):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with suppress(KeyError), file_rendezvous() as place:
        directory = Path(place.path).parent
        assert directory.parent == temporary
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        Path(place.path).write_text("met here")
        raise KeyError
    assert list(temporary.iterdir()) == []
