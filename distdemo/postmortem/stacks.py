"""Take the stacks of running ranks with py-spy, and what the system says of their threads.

Nothing is stopped: ``--nonblocking`` reads the memory of a process that keeps running. So a stack
may be of two moments, and is only trusted if the next one is equal. What py-spy writes comes from
the memory of a process that may be someone else's: it is decoded strictly, with limits.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from distdemo.calls.flight.entries import MAX_FRAMES, is_torch, is_user, source_line
from distdemo.calls.records import SourceLine
from distdemo.encoding import decode, loads
from distdemo.files import read_file
from distdemo.platform import system
from distdemo.platform.portable import ThreadState
from distdemo.postmortem.processes import LiveJob, Process, is_python
from distdemo.postmortem.records import LiveRank, LiveThread, Unread, WaitsFor
from distdemo.view.foreign import one_line

PAUSE_S = 1.0  # between the two stacks of a thread
TIMEOUT_S = 20.0  # of one run of py-spy, which takes 20 ms
TRIES = 3  # a stack that changes while it is read can't be
AT_ONCE = 8  # runs of py-spy
MAX_JSON = 8 << 20  # bytes
MAX_SOURCE = 4 << 20  # bytes of a source file
MAX_THREADS = 1000
MAX_OTHERS = 4  # threads of a rank that are reported in addition to the main one
MAX_WORKERS = 8  # processes of a rank whose stacks are taken
MAX_TEXT = 200  # characters of a path or command
BLOCKED: tuple[WaitsFor, ...] = ("lock", "pipe", "file", "file lock", "terminal", "child")
"""Waits in which a thread doesn't get the processor."""
_DEBUGGER = re.compile(r"(?:^|/)(?:pdb|bdb)\.py$|(?:^|/)(?:ipdb|pudb|debugpy|pydevd\w*)/")
_LOADER = re.compile(r"(?:^|/)torch/utils/data/dataloader\.py$")
_WORKER = re.compile(r"(?:^|/)torch/utils/data/_utils/worker\.py$")
_CHILD = re.compile(r"(?:^|/)(?:subprocess|multiprocessing/(?:popen_\w+|process))\.py$")
_QUEUE = re.compile(r"(?:^|/)(?:queue|multiprocessing/queues)\.py$")
_LOCK = re.compile(r"(?:^|/)(?:threading|multiprocessing/synchronize)\.py$")
_DDP = re.compile(r"(?:^|/)torch/nn/parallel/distributed\.py$")
_OWNERS = {"DDP's ": _DDP, "FSDP's ": re.compile(r"(?:^|/)torch/distributed/fsdp/")}
"""Beginnings of the names of functions that the user calls by those of a module."""
_DISTRIBUTED = re.compile(rf"(?:^|/)torch/distributed/|{_DDP.pattern}")
_PRIVATE = re.compile(r"_(?!_init__$)")
_AUTOGRAD = re.compile(r"(?:^|/)torch/autograd/")
_WAIT = re.compile(r"\.wait\(")
_KERNEL: tuple[tuple[re.Pattern[str], WaitsFor], ...] = (
    (re.compile("futex"), "lock"),
    (re.compile("do_wait$|kernel_wait"), "child"),
    (re.compile("wait_for_partner|fifo|pipe"), "pipe"),
    (re.compile("nanosleep"), "sleep"),
    (re.compile("tty|wait_woken"), "terminal"),
    (re.compile("unix_|sk_wait|tcp_|inet_|skb_wait"), "socket"),
    (re.compile("flock|locks_lock|posix_lock"), "file lock"),
    (re.compile("folio|io_schedule|nfs|rpc_|page|request_wait"), "file"),
    (re.compile("poll|ep_|select"), "event"),
)
"""What a thread waits for, by the kernel's function that it sleeps in (``/proc/PID/wchan``)."""
_PREFIX = re.compile(r"^\s*(?:\d+: |Error: )?")


@dataclass(frozen=True, slots=True)
class _Frame:
    """Frame in py-spy's JSON."""

    name: str
    filename: str
    line: int


@dataclass(frozen=True, slots=True)
class _Thread:
    """Thread in py-spy's JSON. Frames begin with the innermost."""

    frames: tuple[_Frame, ...]
    thread_name: str | None = None
    os_thread_id: int | None = None


class UnreadError(Exception):
    """A stack can't be read.

    Attributes:
        reason: Reason.
        text: What py-spy or the system says, or empty.
    """

    def __init__(self, reason: Unread, text: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text


def _kind(state: ThreadState) -> WaitsFor:
    """Return what a thread waits for, as far as the kernel knows."""
    if state.state == "R":
        return "nothing"
    return next((kind for name, kind in _KERNEL if name.search(state.function)), "")


def look_at(job: LiveJob, host: str) -> tuple[LiveRank, ...]:
    """Return where the ranks of a job are.

    Each stack is taken twice. A rank has moved if its stacks differ, or if it got the processor
    between them in a wait during which it never does; calls over gloo are such waits.
    """
    pyspy = _find_pyspy()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        first = [*pool.map(partial(_take, pyspy=pyspy), job.ranks.values())]
        time.sleep(PAUSE_S)
        second = [*pool.map(partial(_take, pyspy=pyspy), job.ranks.values())]
        others = [*pool.map(partial(_others, pyspy=pyspy), job.ranks.values(), second)]
    ranks = []
    stacks = zip(job.ranks.items(), first, second, others, strict=True)
    for (rank, process), before, after, rest in stacks:
        main = _thread(process, after.main, after.sleep)
        moved = before.main != after.main and not (before.unread or after.unread)
        is_lock = _kind(after.sleep) == "lock"  # clients of a store poll instead
        is_blocked = is_lock if main.waits_for == "ranks" else main.waits_for in BLOCKED
        if is_blocked and not system.uses_gpu(process.pid):
            moved = moved or before.sleep.switches != after.sleep.switches
            if moved and main.waits_for != "ranks":
                main = replace(main, waits_for="nothing", what="")
        why = after.unread, after.unread_text
        ranks.append(LiveRank(rank, process.pid, host, main, rest, *why, moved))
    return tuple(ranks)


class _Stacks(NamedTuple):
    """Stacks of a process.

    Attributes:
        main: Its main thread.
        threads: Its other threads.
        sleep: What the kernel says of the main thread.
        unread: Reason why there is no stack.
        unread_text: What py-spy or the system says of that, or empty.
    """

    main: _Thread
    threads: tuple[_Thread, ...]
    sleep: ThreadState
    unread: Unread = ""
    unread_text: str = ""


def _find_pyspy() -> str:
    """Return the path of py-spy, of this Python's environment or of PATH; empty if none is."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy") or ""
    return found if os.path.isabs(found) else ""  # noqa: PTH117 - a text


def _take(process: Process, pyspy: str) -> _Stacks:
    sleep = _asleep(process.pid, process.pid)
    none = _Thread(())
    try:
        threads = _dump(process.pid, pyspy)
    except UnreadError as error:
        return _Stacks(none, (), sleep, error.reason, one_line(error.text))
    main = next((t for t in threads if t.os_thread_id == process.pid), None)
    main = main or next((t for t in threads if t.thread_name == "MainThread"), None)
    if main is None:
        return _Stacks(none, threads, sleep, "failed", "its main thread runs no Python")
    return _Stacks(main, tuple(t for t in threads if t is not main), sleep)


def _dump(pid: int, pyspy: str) -> tuple[_Thread, ...]:
    """Return the threads of a process that run Python.

    Raises:
        UnreadError: py-spy is missing, or can't read them.
    """
    if not pyspy:
        raise UnreadError("no py-spy")
    why = UnreadError("failed")
    for _ in range(TRIES):
        line = [pyspy, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        try:
            done = subprocess.run(  # noqa: S603 - a program of this environment, and a number
                line, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False
            )
            if done.returncode == 0:
                data = loads(done.stdout, max_bytes=MAX_JSON)
                return decode(tuple[_Thread, ...], data)[:MAX_THREADS]
            why = _why_denied(pid) or _cause(done.stderr)
        except subprocess.TimeoutExpired:
            raise UnreadError("failed", f"py-spy took more than {TIMEOUT_S:g} s") from None
        except OSError as error:
            raise UnreadError("failed", f"py-spy can't be started: {error.strerror}") from None
        except ValueError as error:
            why = UnreadError("failed", f"py-spy's answer can't be read: {error}"[:MAX_TEXT])
    raise why


def _cause(text: bytes) -> UnreadError:
    """Return the innermost cause in py-spy's error."""
    lines = text.decode(errors="replace").partition("Stack backtrace:")[0].strip().splitlines()
    line = _PREFIX.sub("", lines[-1])[:MAX_TEXT] if lines else "no reason"
    is_denied = any(words in line for words in ("Permission denied", "not permitted"))
    return UnreadError("denied" if is_denied else "failed", f"py-spy says: {line}")


def _why_denied(pid: int) -> UnreadError | None:
    """Return why this process may not read the memory of another one, or None."""
    owner = system.owner(pid)
    if owner is None:
        return UnreadError("ended")
    if owner != os.geteuid() != 0:
        return UnreadError("another user")
    scope = system.ptrace_scope(pid)
    return UnreadError("ptrace scope", f"it is {scope}") if scope else None


def _asleep(pid: int, tid: int) -> ThreadState:
    """Return what the kernel says of a thread, as text that can be shown."""
    state = system.thread_state(pid, tid)
    return state._replace(path=one_line(state.path)[:MAX_TEXT])


# ------------------------------------------------------------------------------------ what they do


def _thread(process: Process, thread: _Thread, sleep: ThreadState) -> LiveThread:
    """Return the position of a thread and what it waits for."""
    name = one_line(thread.thread_name or "")[:MAX_TEXT]
    frames = [
        SourceLine(frame.filename, max(0, frame.line), frame.name.rpartition(".")[2] or frame.name)
        for frame in thread.frames[:MAX_FRAMES]
    ]
    if not frames:
        return LiveThread(process.pid, "", _kind(sleep), sleep.path)
    line = source_line(frames).alone
    waits_for, what = _awaited(process, frames, sleep)
    return LiveThread(process.pid, name, waits_for, what, line if line.line else None)


def _awaited(
    process: Process, frames: Sequence[SourceLine], sleep: ThreadState
) -> tuple[WaitsFor, str]:
    """Return what a thread waits for, and its name."""
    inner = [*_inside(frames)]  # called by the innermost line of the user

    def calls(pattern: re.Pattern[str]) -> bool:
        return any(pattern.search(frame.file) for frame in inner)

    if calls(_DEBUGGER):
        return "debugger", ""
    if calls(_LOADER) and not any("SingleProcess" in frame.function for frame in inner):
        return "loader", ""
    leaf, call = frames[0], _call(inner)
    if call and (is_torch(leaf.file) or _kind(sleep) in ("lock", "event", "socket")):
        return "ranks", call
    has_gpu = system.uses_gpu(process.pid)
    if sleep.state == "R" and not has_gpu:
        return "nothing", ""
    if calls(_CHILD) or _kind(sleep) == "child":
        return "child", _children(process.pid)
    if calls(_AUTOGRAD) and is_torch(leaf.file):
        return "ranks", "backward()"
    if calls(_QUEUE):
        return "queue", ""
    if calls(_LOCK):
        return "lock", ""
    kind = _kind(sleep)
    if kind == "lock" and leaf is next(iter(_users(frames)), None) and _waits_at(process, leaf):
        return "ranks", "wait()"
    if has_gpu and kind in ("nothing", "lock", "event"):
        return "", ""  # it may wait for the GPU, where a collective may run
    return kind, sleep.path


def _call(frames: Sequence[SourceLine]) -> str:
    """Return the outermost public function of torch.distributed, or the outermost; or empty."""
    found = [frame for frame in frames if _DISTRIBUTED.search(frame.file)]
    found = [frame for frame in found if not frame.function.endswith("wrapper")]
    public = [frame for frame in found if not _PRIVATE.match(frame.function)]
    if not found:
        return ""
    *_, frame = public or found
    owner = next((name for name, place in _OWNERS.items() if place.search(frame.file)), "")
    return f"{owner}{frame.function}"


def _inside(frames: Sequence[SourceLine]) -> Iterator[SourceLine]:
    """Yield the frames that the user's innermost line has called, innermost first."""
    for frame in frames:
        if is_user(frame.file):
            return
        yield frame


def _users(frames: Sequence[SourceLine]) -> Iterator[SourceLine]:
    return (frame for frame in frames if is_user(frame.file))


def _waits_at(process: Process, line: SourceLine) -> bool:
    """Return True if a line of the user's own program calls ``wait``, which has no frame.

    Only files of this user's processes are read: those of others could name any file.
    """
    if process.user != os.geteuid():
        return False
    folder = system.about(process.pid, "cwd")
    if not folder:
        return False
    try:
        place = os.path.join(folder, line.file)  # noqa: PTH118 - a text
        lines = read_file(place, max_bytes=MAX_SOURCE).decode(errors="replace").splitlines()
    except (OSError, ValueError):
        return False
    return line.line <= len(lines) and _WAIT.search(lines[line.line - 1]) is not None


def _children(pid: int) -> str:
    """Return the children of a process: ``cat (process 12297)``."""
    names = {child: system.about(child, "name") for child in system.children(pid)}
    texts = [f"{one_line(name)} (process {child})" for child, name in names.items() if name]
    return ", ".join(texts)[:MAX_TEXT]


def _others(process: Process, stacks: _Stacks, pyspy: str) -> tuple[LiveThread, ...]:
    """Return other threads, and the workers of the data loader, that are in the user's code."""
    found = []
    for thread in stacks.threads:
        frames = [SourceLine(f.filename, f.line, f.name) for f in thread.frames[:MAX_FRAMES]]
        if any(_users(frames)):
            sleep = _asleep(process.pid, thread.os_thread_id or 0)
            found.append(_thread(process, thread, sleep))
    if stacks.main.frames and any(_LOADER.search(f.filename) for f in stacks.main.frames):
        workers = [pid for pid in system.children(process.pid) if is_python(pid)][:MAX_WORKERS]
        for pid in workers:
            worker = _take(replace(process, pid=pid), pyspy)
            frames = [SourceLine(f.filename, f.line) for f in worker.main.frames[:MAX_FRAMES]]
            if not any(_WORKER.search(frame.file) for frame in _inside(frames)):
                part = _thread(replace(process, pid=pid), worker.main, worker.sleep)
                found += [part] if part.source_line else []
    return tuple(found[:MAX_OTHERS])
