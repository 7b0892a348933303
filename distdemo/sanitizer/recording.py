"""Notes in files, for ranks that others start; and the verdict of such files, afterwards.

Each rank writes ``rank-N.notes`` into one folder, from the making of its group on. A rank that was
killed leaves what it had noted by then.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from distdemo.encoding import decode, loads
from distdemo.errors import UsageError
from distdemo.files import MEMORY_BYTES, limited_memory, open_file
from distdemo.launcher.verdict import ranks_of
from distdemo.sanitizer.judge import Judge
from distdemo.sanitizer.notes import UNREADABLE, Ended
from distdemo.sanitizer.records import Finding, Place, Recording, Row

if TYPE_CHECKING:
    from distdemo.sanitizer.timeline import Timeline

FOLDER = "DISTDEMO_RECORD"
"""The variable that names the folder."""
CHUNK = 1 << 16
LONGEST_HEAD = 1 << 12
MOST_RANKS = 1 << 14
MOST_OPEN = 200_000
"""Calls that other ranks have not made; a rank that makes more is not read any further."""
_NONE = "Each rank writes one from the making of its group on, if it calls install()."


@dataclass(frozen=True, slots=True)
class _About:
    """The first line of a file."""

    rank: int
    world_size: int
    host: str


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
    """Compare what the files of a folder have recorded.

    Args:
        folder: Folder that the ranks wrote to.
        timeline: Timeline that gets every note, or None.

    Raises:
        UsageError: There are no files, none can be read, or they are of several worlds.
    """
    files, size = _files(folder)
    judge = Judge(size, timeline)
    for rank, about in files.items():
        if about is None:
            judge.matcher.stop(f"rank {rank}: {UNREADABLE}")
    try:
        with limited_memory():
            unread = _read(folder, judge, [rank for rank in files if files[rank] is not None])
    except MemoryError:
        raise UsageError(
            f"{folder} can't be compared.",
            f"It takes more than {MEMORY_BYTES >> 20} MiB of memory.",
            "Record fewer calls: install() later, or run fewer steps.",
        ) from None
    finding = _finding(judge, set(range(size)) - set(files))
    ranks = enumerate(judge.matcher.ranks)
    return Recording(
        str(folder),
        size,
        tuple(sorted(set(range(size)) - set(files))),
        tuple(r for r, s in ranks if r in files and r not in unread and s.ended is None),
        tuple(sorted({about.host for about in files.values() if about is not None})),
        judge.calls(),
        () if finding is None else (finding,),
        tuple(judge.matcher.shifts()),
        stopped="" if finding is not None else judge.matcher.stopped,
    )


def _files(folder: Path) -> tuple[dict[int, _About | None], int]:
    """Return the first line of each rank's file, or None if it can't be read; and the world's size.

    Raises:
        UsageError: There are no files, none can be read, or they are of several worlds.
    """
    files: dict[int, _About | None] = {}
    why = ""
    for path in sorted(folder.glob("rank-*.notes")):
        number = path.name.removeprefix("rank-").removesuffix(".notes")
        if not (number.isascii() and number.isdigit() and len(number) < 10):
            continue
        try:
            with open_file(path) as file:
                first = file.readline(LONGEST_HEAD).removeprefix(b"H ")
            if not first:  # the rank was killed before it wrote a line
                continue
            files[int(number)] = decode(_About, loads(first, max_bytes=LONGEST_HEAD))
        except (OSError, ValueError) as error:
            why = why or f"{path.name}: {getattr(error, 'strerror', None) or error}."
            files[int(number)] = None
    if not files:
        raise UsageError(f"{folder} has no rank-*.notes.", _NONE, f"Set {FOLDER} to the folder.")
    known = {rank: about for rank, about in files.items() if about is not None}
    sizes = {about.world_size for about in known.values()}
    if not known:
        raise UsageError(f"{folder} has no notes that can be read.", why, "Take another folder.")
    if max(sizes) > MOST_RANKS:
        what = f"{folder} has the notes of a world of {max(sizes):,} ranks."
        raise UsageError(what, f"sanitize compares up to {MOST_RANKS:,}.", "Take another folder.")
    if (
        len(sizes) > 1
        or max(files) >= max(sizes)
        or any(rank != about.rank for rank, about in known.items())
    ):
        raise UsageError(
            f"{folder} has the notes of several worlds.",
            f"They are of {' and '.join(map(str, sorted(sizes)))} ranks.",
            "Let each job write to a folder of its own.",
        )
    return files, sizes.pop()


def _read(folder: Path, judge: Judge, ranks: list[int]) -> set[int]:
    """Feed the files to the judge, in turn, so that few calls are open at a time.

    Returns:
        Ranks whose notes were not read to the end: something was unreadable, or another rank's
        notes ended so long ago that more calls would change nothing.
    """
    left = dict.fromkeys(ranks, 0)
    while left and not judge.matcher.stopped and judge.matcher.open_calls < MOST_OPEN:
        for rank, at in list(left.items()):
            try:
                with open_file(folder / f"rank-{rank}.notes") as file:
                    file.seek(at)
                    piece = file.read(CHUNK)
            except (OSError, ValueError):
                judge.matcher.stop(f"rank {rank}: {UNREADABLE}")
                break
            left[rank] += len(piece)
            if not piece:
                del left[rank]
            judge.feed(rank, piece)
            try:
                judge.read()
            except (ValueError, LookupError, TypeError, ArithmeticError):
                judge.matcher.stop(f"rank {rank}: {UNREADABLE}")
    return set(left)


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
