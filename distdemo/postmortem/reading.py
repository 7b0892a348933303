"""Read files in worker processes, each recognised by its content.

A file may come from anyone. The memory and time of a worker are limited, so that a file that
crashes or blocks the interpreter is skipped like any other that can't be used.
"""

from __future__ import annotations

import gc
import os
import pickle
import re
import resource
import signal
from collections.abc import Callable, Generator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from distdemo.calls.recording import rank_of
from distdemo.encoding import loads
from distdemo.files import MAX_BYTES, MEMORY_BYTES, limit_memory, open_file, read_file
from distdemo.launcher.process_tree import die_with_parent
from distdemo.postmortem import dumps, hosts, logs, ras, stacks
from distdemo.postmortem.content import MAX_TEXT, Content

HEAD_BYTES = 4096
CPU_S = 30  # for a file, and 1 s more per MiB: a pickle can take forever to load
MAX_CONTENT_BYTES = 64 << 20  # of what a file has
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOG_FILE = re.compile(r"\.(?:log|out|err)$|^std(?:out|err)")
Read = Callable[[Path], Content]


def read_all(
    paths: Sequence[Path], read: Read | None = None
) -> Generator[tuple[Path, bytes | Content]]:
    """Yield each file with its pickled content, or why it has none.

    Close the iterator to end the workers.
    """
    workers: dict[Connection, tuple[BaseProcess, list[Path]]] = {}  # with the files to come
    count = len(os.sched_getaffinity(0))
    try:
        for number in range(min(count, len(paths))):
            _start(paths[number::count], read or read_content, workers)
        while workers:
            for receiver in wait(list(workers)):
                assert isinstance(receiver, Connection)  # `wait` returns its arguments
                process, rest = workers[receiver]
                try:
                    content = receiver.recv_bytes()
                except (EOFError, OSError):  # it was killed, perhaps while it sent
                    process.join()
                    del workers[receiver]
                    if rest:
                        yield rest[0], Content(why=_crash(process.exitcode))
                        _start(rest[1:], read or read_content, workers)
                else:
                    yield rest.pop(0), content
    finally:
        for process, _ in workers.values():
            process.kill()
        for process, _ in workers.values():
            process.join()


def _start(
    paths: Sequence[Path], read: Read, workers: dict[Connection, tuple[BaseProcess, list[Path]]]
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
        workers[receiver] = process, list(paths)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        sender.close()


def _work(paths: Sequence[Path], read: Read, sender: Connection) -> None:
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
            data = pickle.dumps(read(path))
        except MemoryError:
            data = pickle.dumps(Content(why=f"needs more than {MEMORY_BYTES >> 20} MiB of memory"))
        if len(data) > MAX_CONTENT_BYTES:
            data = pickle.dumps(Content(why="has too many calls or errors"))
        sender.send_bytes(data)


def _crash(exit_code: int | None) -> str:
    """Return why a worker ended while it read a file."""
    if exit_code == -signal.SIGXCPU:
        return "takes too long to read"
    return f"ends its reader with exit code {exit_code}"


def limit_time(size: int) -> None:
    """Limit the CPU time for a file of this size in bytes."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 1 + CPU_S + (size >> 20)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def read_content(path: Path) -> Content:
    """Return what a file has, or why it can't be used."""
    try:
        with open_file(path) as file:
            head = file.read(HEAD_BYTES)
            limit_time(os.fstat(file.fileno()).st_size)
        if rank_of(path) >= 0:
            return Content("recording")
        if head:
            return _recognised(path, head)
        has_rank = hosts.local_rank(path) is not None or hosts.rank_in_name(path) is not None
        is_log = has_rank and LOG_FILE.search(path.name)
        return Content("empty") if is_log else Content(why="empty")
    except MemoryError:
        raise
    except Exception as error:  # which a parser raises depends on the file
        return Content(why=getattr(error, "strerror", None) or str(error)[:MAX_TEXT])


def _recognised(path: Path, head: bytes) -> Content:
    """Return the content of a file that begins like this."""
    if dumps.is_pickle(head):
        return _dump(path, dumps.unpickled(read_file(path)))
    data = b"" if b"\0" in head else read_file(path)
    text = data.decode(errors="replace")
    if head.lstrip().startswith(b"{") and b'"communicators"' not in data:
        return _dump(path, loads(data, max_bytes=MAX_BYTES))
    if head.lstrip().startswith(b"{"):
        try:
            return ras.read_json(loads(ras.repaired(text), max_bytes=MAX_BYTES))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            return Content(why=f"truncated, or not a RAS report ({error})"[:MAX_TEXT])
    if stacks.HEAD.search(text[:HEAD_BYTES]):
        stand = stacks.read_stack(text)
        why = "no main thread" if stand is None else ""
        if hosts.rank_in_name(path) is None:
            why = "no rank in the name"
        return Content("" if why else "stack", why, stand=stand)
    if ras.is_report(text):
        return ras.read_text(text)
    if logs.MARK.search(text) or (text and LOG_FILE.search(path.name)):
        return logs.read_log(text)
    return Content(why="unknown file type")


def _dump(path: Path, data: object) -> Content:
    """Return the calls in a dump of the flight recorder."""
    rank = hosts.rank_in_name(path)
    if rank is None:
        return Content(why="no rank in the name")
    try:
        return Content("dump", dumps=[(("rank", rank), dumps.parse(data))])
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        why = f"not a flight recorder's dump ({type(error).__name__}: {error})"
        return Content(why=why[:MAX_TEXT])
