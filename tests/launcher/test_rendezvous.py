from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from distdemo.errors import UsageError
from distdemo.launcher.rendezvous import private_directory, rendezvous

on_linux = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="has no files in memory")


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


class FaultError(Exception):
    """What may go wrong in a block."""


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The temporary directory of the machine, empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_private_directory_is_open_to_its_owner_alone(temporary: Path) -> None:
    with private_directory() as place:
        directory = Path(str(place.directory))
        assert directory.parent == temporary
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert Path(place.path).parent == directory
        Path(place.path).write_text("met here")
    assert list(temporary.iterdir()) == []


def test_a_private_directory_is_removed_whatever_happens_in_it(temporary: Path) -> None:
    def fail() -> None:
        with private_directory() as place:
            Path(place.path).write_text("met here")
            raise FaultError

    with pytest.raises(FaultError):
        fail()
    assert list(temporary.iterdir()) == []


def test_a_private_directory_that_somebody_else_removed_is_no_error(temporary: Path) -> None:
    with private_directory() as place:
        Path(str(place.directory)).rmdir()
    assert list(temporary.iterdir()) == []


def test_without_a_temporary_directory_the_error_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(UsageError) as caught, private_directory():
        pass
    assert "no place to meet" in caught.value.what
    assert "missing" in caught.value.why
    assert "TMPDIR" in caught.value.hint


@on_linux
def test_a_file_in_memory_can_be_opened_by_its_path_until_the_block_ends(temporary: Path) -> None:
    with rendezvous() as place:
        assert place.directory is None
        path = Path(place.path)
        path.write_text("met here")
        assert path.read_text() == "met here"
        assert stat.S_ISREG(path.stat().st_mode)
    assert not path.exists()
    assert list(temporary.iterdir()) == []


@on_linux
def test_no_descriptor_is_left_whatever_happens() -> None:
    before = descriptors()
    with rendezvous():
        assert len(descriptors()) == len(before) + 1
    with pytest.raises(FaultError), rendezvous():
        raise FaultError
    assert descriptors() == before


@on_linux
def test_worlds_side_by_side_meet_in_different_places() -> None:
    with rendezvous() as here, rendezvous() as there:
        assert here.path != there.path


def test_without_files_in_memory_a_directory_is_taken(
    monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with rendezvous() as place:
        assert place.directory is not None
        assert Path(place.directory).parent == temporary
    assert list(temporary.iterdir()) == []


@on_linux
def test_a_hidden_proc_falls_back_to_a_directory_and_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    before = descriptors()
    with rendezvous() as place:
        assert place.directory is not None
        assert descriptors() == before


@on_linux
def test_a_refused_file_in_memory_falls_back_to_a_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: str, flags: int) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    with rendezvous() as place:
        assert place.directory is not None
