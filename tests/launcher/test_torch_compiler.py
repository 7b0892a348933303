from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

from distdemo.launcher.torch_import import CACHE as VARIABLE
from distdemo.launcher.torch_import import load_compiler, without_traces


def test_what_is_made_meanwhile_is_gone_afterwards_and_settings_are_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    before = tempfile.gettempdir()
    with without_traces():
        made = Path(tempfile.mkdtemp())
        assert Path(os.environ[VARIABLE]) == made.parent
        warnings.warn("of torch about torch", DeprecationWarning, stacklevel=1)
    assert not made.parent.exists()
    assert tempfile.gettempdir() == before
    assert VARIABLE not in os.environ


def test_the_folder_that_a_user_named_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/the/user/s/own")
    with without_traces():
        assert os.environ[VARIABLE] == "/the/user/s/own"
    assert os.environ[VARIABLE] == "/the/user/s/own"


def test_where_no_temporary_file_can_be_made_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(prefix: str) -> str:
        raise OSError("no space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    load_compiler()
    assert "torch._dynamo" in sys.modules
