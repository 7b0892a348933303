"""Write notes to files, for ranks that distdemo doesn't start, and compare such files afterwards.

Each rank writes ``rank-N.notes`` to a folder, starting when its group is created. The notes of a
killed rank are preserved.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from distdemo.calls.match.judge import Judge
from distdemo.calls.notes import UNREADABLE, EndNote
from distdemo.calls.records import Finding, Recording, Row, SourceLine
from distdemo.encoding import decode, loads
from distdemo.errors import UsageError
from distdemo.files import MEMORY_BYTES, create_file, limited_memory, open_file
from distdemo.launcher.verdict import ranks_of

if TYPE_CHECKING:
    from distdemo.calls.timeline import Timeline

FOLDER = "DISTDEMO_RECORD"
"""Environment variable that names the folder."""
CHUNK = 1 << 16
MAX_HEADER_BYTES = 1 << 12
MAX_RANKS = 1 << 14
MAX_OPEN = 200_000
"""Maximum number of calls that other ranks haven't made; reading stops there."""
_NAME = re.compile(r"rank-(\d{1,9})\.notes")
_NONE = "Each rank that calls install() writes one, starting when its group is created."


@dataclass(frozen=True, slots=True)
class _Header:
    """First line of a file."""

    rank: int
    world_size: int
    host: str


class _File:
    """File that this rank writes to, opened once the rank knows its number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fd = -1

    def write(self, data: bytes) -> None:
        """Append data. Without a group, there is nothing to record yet."""
        import torch.distributed as dist

        from distdemo.launcher.messages import Identity

        if self._fd < 0:
            if not dist.is_initialized():
                return
            rank, size = dist.get_rank(), dist.get_world_size()
            self._fd = create_file(self._folder / f"rank-{rank}.notes")
            self._pipe = Identity(self._fd)
            about = {"rank": rank, "world_size": size, "host": socket.gethostname()}
            os.write(self._fd, f"H {json.dumps(about)}\n".encode())
        if not self._pipe.is_open():
            raise BrokenPipeError("the program closed the file with its notes")
        while data:
            data = data[os.write(self._fd, data) :]


def record(folder: Path) -> None:
    """Record every call of this process, and its end, in a file in this folder.

    Raises:
        OSError: The folder can't be created.
    """
    import atexit

    from distdemo.calls.notes import Writer
    from distdemo.calls.record.hooks import install, is_installed
    from distdemo.calls.record.recorder import Recorder, safely

    if is_installed():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    recorder = install(Recorder(Writer(_File(folder.absolute()).write, timed=True)))
    before, leave = sys.excepthook, sys.exit
    left: list[tuple[int, object, SourceLine]] = []

    def failed(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        safely(recorder, recorder.record_end, error)
        recorder.off = True
        before(kind, error, trace)

    def leaving(status: object = None, /) -> NoReturn:
        left[:] = [(recorder.calls, status, recorder.source_line())]
        leave(status)  # type: ignore[arg-type]  # any object

    def ended() -> None:
        calls, status, source_line = left[0] if left else (-1, None, None)
        if status in (None, 0) or calls != recorder.calls:  # SystemExit was caught
            recorder.record_end(None)
        else:
            recorder.record_end(SystemExit(status), source_line)

    sys.excepthook, sys.exit = failed, leaving  # atexit functions can't see the exit code
    atexit.register(safely, recorder, ended)


def compare_recordings(paths: Iterable[Path], timeline: Timeline | None = None) -> Recording:
    """Compare the recordings of one world.

    Args:
        paths: One file per rank.
        timeline: Timeline that gets every note, or None.

    Raises:
        UsageError: There are no files, none can be read, or they are of several worlds.
    """
    files, size, hosts, unreadable = _ranks(list(paths))
    judge = Judge(size, timeline)
    for rank in unreadable:
        judge.matcher.stop(f"rank {rank}: {UNREADABLE}")
    try:
        with limited_memory():
            unread = _read(files, judge)
    except MemoryError:
        raise UsageError(
            "These recordings can't be compared.",
            f"It takes more than {MEMORY_BYTES >> 20} MiB of memory.",
            "Record fewer calls: install() later, or run fewer steps.",
        ) from None
    absent = tuple(sorted(set(range(size)) - set(files) - unreadable))
    states = enumerate(judge.matcher.ranks)
    unended = tuple(r for r, s in states if r in files and r not in unread and s.ended is None)
    finding = _finding(judge, set(absent))
    reasons = (
        judge.matcher.stopped,
        _text(unread, f"made {MAX_OPEN:,} calls that other ranks never made"),
        _text(absent, "left no notes"),
        _text(unended, "did not end"),
    )
    return Recording(
        size,
        absent,
        unended,
        hosts,
        judge.calls(),
        () if finding is None else (finding,),
        tuple(judge.warnings()),
        stopped=next(filter(None, reasons), "") if finding is None else "",
    )


def _ranks(
    paths: Sequence[Path],
) -> tuple[dict[int, Path], int, tuple[str, ...], set[int]]:
    """Read the first line of each file.

    Returns:
        Files by rank, the world's size, the hosts, and ranks whose file can't be read.

    Raises:
        UsageError: There are no files, none can be read, or they are of several worlds.
    """
    files: dict[int, Path] = {}
    headers: list[_Header] = []
    broken: dict[int, str] = {}
    several = ""
    for path in paths:
        named = rank_of(path)
        try:
            with open_file(path) as file:
                first = file.readline(MAX_HEADER_BYTES).removeprefix(b"H ")
            if not first:  # the rank was killed before it wrote a line
                continue
            header = decode(_Header, loads(first, max_bytes=MAX_HEADER_BYTES))
        except (OSError, ValueError) as error:
            broken[named] = f"{path}: {getattr(error, 'strerror', None) or error}."
            continue
        if header.rank != named:
            several = f"{path} has the notes of rank {header.rank}."
        elif named in files:
            several = f"{files[named]} and {path} are both of rank {named}."
        files[named] = path
        headers.append(header)
    if not files:
        what = f"{', '.join(map(str, paths[:3]))}: there are no notes that can be read."
        why = next(iter(broken.values()), _NONE)
        raise UsageError(what, why, f"Set {FOLDER} to a separate folder for each job.")
    sizes = sorted({header.world_size for header in headers})
    if sizes[-1] > MAX_RANKS:
        what = f"These are the notes of {sizes[-1]:,} ranks."
        raise UsageError(what, f"postmortem compares up to {MAX_RANKS:,}.", "Try another folder.")
    if len(sizes) > 1 or max((*files, *broken)) >= sizes[0]:
        several = f"These worlds have {' and '.join(map(str, sizes))} ranks."
    if several:
        raise UsageError(
            "These are the notes of several worlds.", several, "Use a separate folder for each job."
        )
    hosts = tuple(sorted({header.host for header in headers}))
    return files, sizes[0], hosts, set(broken)


def rank_of(path: Path) -> int:
    """Return the rank in the name of a recording, ``rank-3.notes``; -1 if it has another name."""
    found = _NAME.fullmatch(path.name)
    return -1 if found is None else int(found[1])


def _read(files: Mapping[int, Path], judge: Judge) -> set[int]:
    """Feed the files to the judge in small pieces, so that few calls are open at a time.

    Returns:
        Ranks whose notes were not read to the end: something was unreadable, or another rank's
        notes ended so long ago that more calls would change nothing.
    """
    left = dict.fromkeys(sorted(files), 0)
    while left and not judge.matcher.stopped and judge.matcher.open_calls < MAX_OPEN:
        for rank, at in list(left.items()):
            try:
                with open_file(files[rank]) as file:
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


def _text(ranks: Collection[int], did: str) -> str:
    """Return ``rank 1 left no notes``, or an empty text if there are no such ranks."""
    return f"{ranks_of(tuple(ranks)).lower()} {did}" if ranks else ""


def _finding(judge: Judge, absent: set[int]) -> Finding | None:
    matcher = judge.matcher
    for state in matcher.ranks:
        matcher.accept_all(state)
    if any(state.lost for state in matcher.ranks):
        for rank, state in enumerate(matcher.ranks):
            if state.ended is None and not state.lost and not state.blocked:
                matcher.add(rank, EndNote("ended without an end note"))
    running = {
        rank: str(state.last.source_line) if state.last else ""
        for rank, state in enumerate(matcher.ranks)
        if state.ended is None
    }
    found = judge.conclude(running)
    if found is None or found.kind != "stuck":
        return found
    what = f"At the end of the notes, {found.what[0].lower()}{found.what[1:]}"
    rows = tuple(
        Row(row.ranks, "left no notes") if absent.issuperset(row.ranks) else row
        for row in found.rows
    )
    return replace(found, what=what, rows=rows)
