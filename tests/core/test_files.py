"""Write files whole or not at all; a failure is an error in three parts."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from distdemo.cli.files import why_unwritable, write_result
from distdemo.errors import DistdemoError
from distdemo.files import create_file

OLD, NEW = b"an earlier result", b"the new one"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    path.write_bytes(OLD)
    return path


class Stopped(BaseException):
    """Exception like that of a second Ctrl-C."""


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes writing stop in the middle with an error."""

    def stops(error: BaseException) -> None:
        whole = Path.open

        def opened(path: Path, mode: str = "r", **options: Any):
            file = whole(path, mode, **(options | {"buffering": 0}))
            write = file.write

            def halfway(data: bytes) -> None:
                write(data[: len(data) // 2])
                raise error

            monkeypatch.setattr(file, "write", halfway, raising=False)
            return file

        monkeypatch.setattr(Path, "open", opened)

    return stops


def test_a_new_file_replaces_the_old_one_and_keeps_its_mode(old: Path) -> None:
    old.chmod(0o640)
    write_result("--output", old, lambda: "grün")
    assert old.read_text(encoding="utf-8") == "grün"
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert os.listdir(old.parent) == [old.name]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), Stopped()])
def test_a_full_disk_or_an_interruption_leaves_the_old_file_and_nothing_beside_it(
    old: Path, half, error
) -> None:
    half(error)
    with pytest.raises((DistdemoError, Stopped)) as caught:
        write_result("--output", old, lambda: NEW)
    assert getattr(caught.value, "why", "") in ("", "OSError: [Errno 28] No space left on device.")
    assert old.read_bytes() == OLD
    assert os.listdir(old.parent) == [old.name]


def test_a_link_a_pipe_and_an_open_file_are_written_to_themselves(old: Path) -> None:
    link, pipe = (old.with_name(f"{name}.json") for name in ("link", "pipe"))
    link.symlink_to(old)
    write_result("--output", link, lambda: NEW)
    assert link.is_symlink()
    assert old.read_bytes() == NEW
    with old.open("r+b") as file:
        write_result("--output", Path(f"/dev/fd/{file.fileno()}"), lambda: OLD)
        assert os.fstat(file.fileno()).st_ino == old.stat().st_ino
    assert old.read_bytes() == OLD
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_result("--output", pipe, lambda: NEW)
    assert os.read(reader, 99) == NEW
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_failure_to_make_a_file_is_an_error_in_three_parts(old: Path) -> None:
    for error, words in (
        (ValueError("no\n parse"), "ValueError: no parse"),
        (DistdemoError("What.", "Why.", "Try."), "What.\nWhy.\nTry."),
    ):
        with pytest.raises(DistdemoError) as caught:
            write_result("--output", old, Mock(side_effect=error))
        assert words in str(caught.value)
        assert len(str(caught.value).splitlines()) == 3
    assert old.read_bytes() == OLD


# ------------------------------------------------------------------------ before anything runs


def test_a_check_changes_nothing(old: Path) -> None:
    dangling, pipe = (old.with_name(f"{name}.json") for name in ("dangling", "pipe"))
    dangling.symlink_to(old.with_name("later.json"))
    os.mkfifo(pipe)
    before = sorted(os.listdir(old.parent)), old.stat()
    for path in (old, old.with_name("new.json"), dangling, pipe, Path("/dev/null")):
        assert why_unwritable(path) == "", path
    assert (sorted(os.listdir(old.parent)), old.stat()) == before


def test_paths_that_can_not_be_written(old: Path) -> None:
    (old.with_name("lost.json")).symlink_to("no/such/folder/x.json")
    for name, why in (
        ("", "It is a folder."),
        ("none/x.json", f"There is no folder {old.parent}/none."),
        ("lost.json", f"There is no folder {old.parent}/no/such/folder."),
        (f"{'x' * 251}.json", "File name too long."),
    ):
        assert why_unwritable(old.parent / name) == why


def test_a_file_of_ones_own_is_created_or_emptied(tmp_path):
    path = tmp_path / "notes"
    for _ in range(2):
        fd = create_file(path)
        os.write(fd, b"new")
        os.close(fd)
        assert path.read_bytes() == b"new"
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("planted", ["link", "dangling link", "name", "fifo", "folder", "theirs"])
def test_nothing_that_was_planted_is_written_to(tmp_path, planted, monkeypatch):
    precious = tmp_path / "precious"
    path = tmp_path / "notes"
    precious.write_bytes(b"kept")
    if planted == "name":
        path.hardlink_to(precious)
    elif planted == "folder":
        path.mkdir()
    elif planted == "fifo":
        os.mkfifo(path)
    elif planted == "theirs":
        path.touch()
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    else:
        path.symlink_to(precious if planted == "link" else tmp_path / "new")
    with pytest.raises(OSError, match="notes"):
        create_file(path)
    assert precious.read_bytes() == b"kept"
    assert not (tmp_path / "new").exists()
