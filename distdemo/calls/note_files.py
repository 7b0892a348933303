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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from distdemo.calls.exclusion import Exclusion
from distdemo.calls.match.judge import Judge
from distdemo.calls.notes import UNREADABLE, EndNote, Writer
from distdemo.calls.records import Finding, NoteComparison, SourceLine
from distdemo.encoding import decode, encode, loads
from distdemo.errors import UsageError
from distdemo.files import MEMORY_BYTES, create_file, limited_memory, open_file
from distdemo.launcher.rendezvous import set_recorder
from distdemo.launcher.verdict import ranks_of
from distdemo.view.format import some

FOLDER = "DISTDEMO_RECORD"
"""Environment variable that names the folder."""
CALLS = "DISTDEMO_RECORD_CALLS"
"""Environment variable with the number of calls that torch's flight recorder keeps."""
CHUNK = 1 << 16
MAX_HEADER_BYTES = 1 << 12
MAX_RANKS = 1 << 14
MAX_OPEN = 200_000
"""Maximum number of calls that other ranks haven't made; reading stops there."""
_NAME = re.compile(r"rank-(\d{1,9})\.notes")


@dataclass(frozen=True, slots=True)
class _Header:
    """First line of a file."""

    rank: int
    world_size: int
    host: str


# ------------------------------------------------------------------------------------ in a rank


class _RankFile:
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
            header = _Header(dist.get_rank(), dist.get_world_size(), socket.gethostname())
            self._fd = create_file(self._folder / f"rank-{header.rank}.notes")
            self._pipe = Identity(self._fd)
            os.write(self._fd, f"H {json.dumps(encode(header))}\n".encode())
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
    from multiprocessing import process, util

    from distdemo.calls.record.frames import source_line
    from distdemo.calls.record.hooks import current_recorder, install
    from distdemo.calls.record.recorder import Recorder

    if current_recorder() is not None:
        return
    kept = os.environ.get(CALLS, "")
    set_recorder(int(kept) if kept.isascii() and kept.isdigit() else None)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    recorder = install(Recorder(Writer(_RankFile(folder.absolute()).write, timed=True)))
    show_error = sys.excepthook
    leave = sys.exit
    last_exit: tuple[int, Any, SourceLine] = (-1, None, SourceLine())  # calls before, status, line

    def failed(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        recorder.safely(recorder.record_end, error)
        recorder.off = True
        show_error(kind, error, trace)

    def leaving(status: Any = None, /) -> NoReturn:
        nonlocal last_exit
        last_exit = recorder.calls, status, source_line()
        leave(status)

    def ended() -> None:
        calls, status, line = last_exit
        error = sys.exc_info()[1]  # of a child of multiprocessing
        if error is not None and not isinstance(error, SystemExit):
            recorder.record_end(error)
        elif status in (None, 0) or calls != recorder.calls:  # SystemExit was caught
            recorder.record_end(None)
        else:
            recorder.record_end(SystemExit(status), line)
        recorder.off = True

    sys.excepthook = failed  # atexit functions can't see the exit code
    sys.exit = leaving
    atexit.register(recorder.safely, ended)
    if process.parent_process() is not None:  # forked children call no atexit functions
        util.Finalize(None, recorder.safely, (ended,), exitpriority=-1)


# ----------------------------------------------------------------------------------- afterwards


def rank_of(path: Path) -> int:
    """Return the rank in the name of a recording, ``rank-3.notes``; -1 if it has another name."""
    match = _NAME.fullmatch(path.name)
    return -1 if match is None else int(match[1])


def compare_recordings(paths: Iterable[Path], excluded: Iterable[str] = ()) -> NoteComparison:
    """Compare the recordings of one world.

    Args:
        paths: One file per rank.
        excluded: Patterns of the names of parameters that aren't compared.

    Raises:
        UsageError: There are no files, none can be read, they are of several worlds, or a pattern
            matches nothing.
    """
    files, headers, unreadable = _headers(list(paths))
    size = headers[0].world_size
    judge = Judge(size)
    judge.training.ledger.exclusion = exclusion = Exclusion(excluded)
    absent = tuple(sorted(set(range(size)) - set(files) - unreadable))
    judge.matcher.unknown = frozenset(absent)
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
    if exclusion.unmatched:
        raise UsageError(
            f"--except matches no parameter: {some(exclusion.unmatched)}.",
            "The patterns are those of file names: 'experts.*'.",
            "Leave it out, or name a parameter.",
        )
    states = enumerate(judge.matcher.ranks)
    unended = {rank for rank, state in states if state.ended is None} & (set(files) - unread)
    finding = _finding(judge)
    stopped = judge.matcher.stopped
    for ranks, did in (
        (unread, f"made {MAX_OPEN:,} calls that other ranks never made"),
        (absent, "left no notes"),
        (unended, "did not end"),
    ):
        if ranks and not stopped:
            stopped = f"{ranks_of(tuple(ranks)).lower()} {did}"
    return NoteComparison(
        size,
        absent,
        tuple(sorted(unended)),
        tuple(sorted({header.host for header in headers})),
        judge.calls(),
        () if finding is None else (finding,),
        tuple(judge.warnings()),
        stopped=stopped if finding is None else "",
    )


def _headers(paths: list[Path]) -> tuple[dict[int, Path], list[_Header], set[int]]:
    """Return files and headers by rank, and the ranks whose file can't be read.

    Raises:
        UsageError: There are no files, none can be read, or they are of several worlds.
    """
    files: dict[int, Path] = {}
    headers: list[_Header] = []
    unreadable: set[int] = set()
    why = "Each rank that calls install() writes one, starting when its group is created."
    for path in paths:
        rank = rank_of(path)
        try:
            with open_file(path) as file:
                first = file.readline(MAX_HEADER_BYTES).removeprefix(b"H ")
            if not first:  # the rank was killed before it wrote a line
                continue
            header = decode(_Header, loads(first, max_bytes=MAX_HEADER_BYTES))
        except (OSError, ValueError) as error:
            why = f"{path}: {getattr(error, 'strerror', None) or error}."
            unreadable.add(rank)
            continue
        headers.append(header)
        size = headers[0].world_size
        if header.rank != rank or rank in files or header.world_size != size or rank >= size:
            raise UsageError(
                "These are the notes of several worlds.",
                f"{path} is of rank {header.rank} of {header.world_size}.",
                "Use a separate folder for each job.",
            )
        files[rank] = path
    if not files:
        what = f"{some([*map(str, paths)])}: there are no notes that can be read."
        raise UsageError(what, why, f"Set {FOLDER} to a separate folder for each job.")
    if size > MAX_RANKS:
        what = f"These are the notes of {size:,} ranks."
        raise UsageError(what, f"postmortem compares up to {MAX_RANKS:,}.", "Try another folder.")
    return files, headers, unreadable


def _read(files: Mapping[int, Path], judge: Judge) -> set[int]:
    """Feed the files to the judge in small pieces, so that few calls are open at a time.

    Returns:
        Ranks whose notes were not read to the end: something was unreadable, or another rank's
        notes ended so long ago that more calls would change nothing.
    """
    matcher = judge.matcher
    positions = dict.fromkeys(sorted(files), 0)
    while positions and not matcher.stopped and matcher.open_calls < MAX_OPEN:
        for rank, position in list(positions.items()):
            try:
                with open_file(files[rank]) as file:
                    file.seek(position)
                    piece = file.read(CHUNK)
                judge.feed(rank, piece)
                judge.read()
            except (OSError, ValueError, LookupError, TypeError, ArithmeticError):
                matcher.stop(f"rank {rank}: {UNREADABLE}")
                break
            positions[rank] += len(piece)
            if not piece:
                del positions[rank]
    return set(positions)


def _finding(judge: Judge) -> Finding | None:
    matcher = judge.matcher
    for state in matcher.ranks:
        matcher.accept_all(state)
    if any(state.lost for state in matcher.ranks):
        for rank, state in enumerate(matcher.ranks):
            is_unknown = rank in matcher.unknown
            if state.ended is None and not (state.lost or state.blocked or is_unknown):
                matcher.add(rank, EndNote("unknown"))
    unended = (rank for rank, state in enumerate(matcher.ranks) if state.ended is None)
    finding = judge.conclude(dict.fromkeys(unended))
    if finding is None or finding.kind != "stuck":
        return finding
    return replace(finding, limit="At the end of the notes")
