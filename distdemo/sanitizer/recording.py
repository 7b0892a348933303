"""Notes in files, for ranks that others start; and the verdict of such files, afterwards.

Each rank writes ``rank-N.notes`` into one folder, from the making of its group on. A rank that was
killed leaves what it had noted by then.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from distdemo.errors import UsageError
from distdemo.launcher.verdict import ranks_of
from distdemo.sanitizer.judge import Judge
from distdemo.sanitizer.notes import Ended
from distdemo.sanitizer.records import Finding, Place, Recording, Row

if TYPE_CHECKING:
    from distdemo.sanitizer.timeline import Timeline

FOLDER = "DISTDEMO_RECORD"
"""The variable that names the folder."""
CHUNK = 1 << 20
_NONE = "Each rank writes one from the making of its group on, if it calls install()."


class _File:
    """Where this rank writes; it is opened once the rank knows its number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = -1

    def write(self, data: bytes) -> None:
        """Add this; before there is a group there is nothing to say."""
        import torch.distributed as dist

        from distdemo.launcher.messages import Identity

        if self._fd < 0:
            if not dist.is_initialized():
                return
            rank, size = dist.get_rank(), dist.get_world_size()
            path = self._folder / f"rank-{rank}.notes"
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)
            self._pipe = Identity(self._fd)
            about = {"rank": rank, "world_size": size, "host": socket.gethostname()}
            os.write(self._fd, f"H {json.dumps(about)}\n".encode())
        if not self._pipe.holds():
            raise BrokenPipeError("the program has closed the file of its notes")
        while data:
            data = data[os.write(self._fd, data) :]


def record(folder: Path) -> None:
    """From now on note every call of this process in a file of this folder, and how it ends.

    Raises:
        OSError: the folder can't be made.
    """
    import atexit

    from distdemo.sanitizer.hooks import Recorder, install, is_installed, safely
    from distdemo.sanitizer.notes import Writer

    if is_installed():
        return
    folder.mkdir(parents=True, exist_ok=True)
    recorder = install(Recorder(Writer(_File(folder.absolute()).write, timed=True)))
    before, leave = sys.excepthook, sys.exit
    left: list[tuple[int, object, Place]] = []

    def failed(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        safely(recorder, recorder.ended, error)
        recorder.off = True
        before(kind, error, trace)

    def leaving(status: object = None, /) -> NoReturn:
        left[:] = [(recorder.calls, status, recorder.place())]
        leave(status)  # type: ignore[arg-type]  # whatever it is

    def ended() -> None:
        calls, status, place = left[0] if left else (-1, None, None)
        if status in (None, 0) or calls != recorder.calls:  # it was caught
            recorder.ended(None)
        else:
            recorder.ended(SystemExit(status), place)

    sys.excepthook, sys.exit = failed, leaving  # Python tells nobody of the code that it exits with
    atexit.register(safely, recorder, ended)


def judged(folder: Path, timeline: Timeline | None = None) -> Recording:
    """What the files of a folder come to.

    Args:
        folder: that the ranks wrote to.
        timeline: gets every note; None: nothing does.

    Raises:
        UsageError: there are none, they can't be read, or they are of several worlds.
    """
    files: dict[int, tuple[Path, str]] = {}
    sizes: set[int] = set()
    for path in sorted(folder.glob("rank-*.notes")):
        rank, size, host = _about(path)
        files[rank] = (path, host)
        sizes.add(size)
    if not files:
        raise UsageError(f"{folder} has no rank-*.notes.", _NONE, f"Set {FOLDER} to the folder.")
    if len(sizes) > 1 or not 0 <= min(files) <= max(files) < max(sizes):
        raise UsageError(
            f"{folder} has the notes of several worlds.",
            f"They are of {' and '.join(map(str, sorted(sizes)))} ranks.",
            "Let each job write to a folder of its own.",
        )
    size = sizes.pop()
    judge = Judge(size, timeline)
    left = dict.fromkeys(files, 0)
    while left:  # in turn, so that few calls are open at a time
        for rank, at in list(left.items()):
            with files[rank][0].open("rb") as file:
                file.seek(at)
                piece = file.read(CHUNK)
            left[rank] += len(piece)
            judge.feed(rank, piece)
            if not piece:
                del left[rank]
        judge.read()
    finding = _finding(judge, set(range(size)) - set(files))
    return Recording(
        str(folder),
        size,
        tuple(sorted(set(range(size)) - set(files))),
        tuple(r for r, s in enumerate(judge.matcher.ranks) if r in files and s.ended is None),
        tuple(sorted({host for _, host in files.values()})),
        judge.calls(),
        () if finding is None else (finding,),
        tuple(judge.matcher.shifts()),
        stopped="" if finding is not None else judge.matcher.stopped,
    )


def _about(path: Path) -> tuple[int, int, str]:
    try:
        with path.open("rb") as file:
            first = file.readline(1 << 12).decode("ascii")
        about = json.loads(first.removeprefix("H "))
        rank, size, host = int(about["rank"]), int(about["world_size"]), str(about["host"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} can't be read.", f"{error}.", "Leave it out.") from error
    return rank, size, host


def _finding(judge: Judge, absent: set[int]) -> Finding | None:
    matcher = judge.matcher
    if any(state.lost for state in matcher.ranks):
        for rank, state in enumerate(matcher.ranks):
            if state.ended is None and not state.lost and not state.blocked:
                matcher.take(rank, Ended("ended without a word"))
    running = {
        rank: str(state.last.place) if state.last else ""
        for rank, state in enumerate(matcher.ranks)
        if state.ended is None
    }
    found = judge.conclude(running)
    if found is None or found.what:
        return found
    what = f"At the end of the notes others wait for {ranks_of(found.ranks).lower()}."
    rows = tuple(
        Row(row.ranks, "left no notes") if absent.issuperset(row.ranks) else row
        for row in found.rows
    )
    return replace(found, what=what, rows=rows)
