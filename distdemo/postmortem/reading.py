"""Read files in worker processes, each recognised by its content.

A file may come from anyone. The memory and time of a worker are limited, so that a file that
crashes or blocks the interpreter is skipped like any other that can't be used.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import signal
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from pickle import UnpicklingError

from distdemo.calls.recording import rank_of
from distdemo.encoding import loads
from distdemo.files import MAX_BYTES, MEMORY_BYTES, limit_memory, open_file, read_file
from distdemo.launcher.process_tree import die_with_parent
from distdemo.postmortem import dumps, hosts, logs, ras, stacks
from distdemo.postmortem.parts import MAX_TEXT, Log, Parts

HEAD_BYTES = 4096
CPU_S = 30  # for a file, and 1 s more per MiB: a pickle can take forever to load
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOG_FILE = re.compile(r"\.(?:log|out|err)$|^std(?:out|err)")
_ERRORS = (
    UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(slots=True)
class _Worker:
    """Worker process.

    Attributes:
        left: Files that it hasn't reported yet, in order.
    """

    process: BaseProcess
    left: list[Path]


def read_all(
    paths: Sequence[Path], read: Callable[[Path], Parts] | None = None
) -> Generator[tuple[Path, Parts]]:
    """Yield each file with what it has. Close the iterator to end the workers."""
    read = read or read_parts
    count = min(len(os.sched_getaffinity(0)), len(paths))
    workers: dict[Connection, _Worker] = {}
    try:
        for number in range(count):
            _start(paths[number::count], read, workers)
        while workers:
            for receiver in wait(list(workers)):
                assert isinstance(receiver, Connection)  # noqa: S101 - `wait` returns its arguments
                worker = workers[receiver]
                try:
                    parts = receiver.recv()
                except (EOFError, OSError):  # it was killed, perhaps while it sent
                    worker.process.join()
                    del workers[receiver]
                    if worker.left:
                        yield worker.left.pop(0), Parts(why=_crash(worker.process.exitcode))
                        _start(worker.left, read, workers)
                else:
                    yield worker.left.pop(0), parts
    finally:
        for worker in workers.values():
            worker.process.kill()
        for worker in workers.values():
            worker.process.join()


def _start(
    paths: Sequence[Path],
    read: Callable[[Path], Parts],
    workers: dict[Connection, _Worker],
) -> None:
    """Start a worker that reads these files, if there are any."""
    if not paths:
        return
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(paths, read, sender), daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        process.start()
        workers[receiver] = _Worker(process, list(paths))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sender.close()


def _work(paths: Sequence[Path], read: Callable[[Path], Parts], sender: Connection) -> None:
    """Read files in a worker process. It leaves signals to its parent, which kills it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_memory(MEMORY_BYTES)
    gc.disable()  # no format has cycles, and collecting takes a third of the time
    for path in paths:
        try:
            sender.send(read(path))
        except MemoryError:
            sender.send(Parts(why="needs too much memory"))


def _crash(exit_code: int | None) -> str:
    """Return why a worker ended while it read a file."""
    if exit_code == -signal.SIGXCPU:
        return "takes too long to read"
    return f"ends its reader with exit code {exit_code}"


def read_parts(path: Path) -> Parts:
    """Return what a file has, or why it can't be used."""
    try:
        with open_file(path) as file:
            head = file.read(HEAD_BYTES)
            limit_time(os.fstat(file.fileno()).st_size)
        if rank_of(path) >= 0:
            return Parts("recording")
        if not head:
            has_rank = hosts.local_rank(path) is not None or hosts.rank_in_name(path) is not None
            is_log = has_rank and _LOG_FILE.search(path.name)
            return Parts("empty", log=Log()) if is_log else Parts(why="empty")
        return _read(path, head)
    except MemoryError:
        return Parts(why=f"needs more than {MEMORY_BYTES >> 20} MiB of memory")
    except _ERRORS as error:
        return Parts(why=getattr(error, "strerror", None) or str(error)[:MAX_TEXT])


def limit_time(size: int) -> None:
    """Limit the CPU time for a file of this size in bytes."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 1 + CPU_S + (size >> 20)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _read(path: Path, head: bytes) -> Parts:
    """Return what a file has that begins like this."""
    rank = hosts.rank_in_name(path)
    if dumps.is_pickle(head):
        return _dump(rank, dumps.unpickled(read_file(path)))
    if head.lstrip().startswith(b"{"):
        data = read_file(path)
        if b'"communicators"' not in data:
            return _dump(rank, loads(data, max_bytes=MAX_BYTES))
        parts = Parts("RAS report")
        try:
            text = ras.repaired(data.decode(errors="replace"))
            ras.read_json(loads(text, max_bytes=MAX_BYTES), parts)
        except _ERRORS as error:
            return Parts(why=f"truncated, or not a RAS report ({error})"[:MAX_TEXT])
        return parts
    if b"\0" in head:
        return Parts(why="unknown file type")
    text = read_file(path).decode(errors="replace")
    if stacks.HEAD.search(text[:HEAD_BYTES]):
        stand = stacks.read_stack(text)
        if rank is None or stand is None:
            return Parts(why="no rank in the name" if rank is None else "no main thread")
        return Parts("stack", stand=stand)
    if ras.is_report(text):
        parts = Parts("RAS report")
        ras.read_text(text, parts)
        return parts
    if logs.MARK.search(text) or _LOG_FILE.search(path.name):
        parts = Parts("log")
        parts.log = logs.read_log(text, parts)
        return parts
    return Parts(why="unknown file type")


def _dump(rank: int | None, data: object) -> Parts:
    """Return the calls in a dump of the flight recorder."""
    if rank is None:
        return Parts(why="no rank in the name")
    parts = Parts("dump")
    try:
        parts.add(rank, dumps.parse(data))
    except _ERRORS as error:
        why = f"not a flight recorder's dump ({type(error).__name__}: {error})"
        return Parts(why=why[:MAX_TEXT])
    return parts


def job_of(path: Path) -> tuple[Path, str]:
    """Return the folder and the name without the rank, which are equal for dumps of one job."""
    return path.parent, hosts.NUMBER.sub("", path.name)
