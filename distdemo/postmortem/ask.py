"""Ask what makes the ranks of a job answer: debug servers, NCCL's pipes for dumps, and NCCL RAS.

Only what belongs to the ranks' own processes on this node is asked, as ``/proc`` shows it. Nothing
is stopped. An answer may come from anyone: its size and time are limited, and only the reader of
files decodes it.

Sources: torch/csrc/distributed/c10d/control_plane/WorkerServer.cpp, FlightRecorder.hpp,
ProcessGroupNCCL.hpp (``DumpPipe``); NCCL's user guide, "RAS", and src/ras/client_support.cc.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from distdemo.calls.flight.pickles import is_pickle
from distdemo.files import MAX_BYTES, read_file
from distdemo.launcher.verdict import ranks_of
from distdemo.platform import system
from distdemo.postmortem.processes import LiveJob
from distdemo.view.format import short_size

LIMIT_S = 15.0  # for each kind of source; a rank's first dump takes up to 5 s
POLL_S = 0.2
AT_ONCE = 64  # ranks that are asked at the same time
TOTAL_BYTES = 1 << 30  # of the answers of all ranks, whose number is what their processes claim
SERVER_THREAD = "pt_workerserver"
"""Name of the thread of a debug server, as torch sets it."""
RECORDERS = ("dump_nccl_trace_pickle", "fr_trace_json")
"""Requests for the calls of a rank: over NCCL, with lines; and over others, without."""
CALL = b"profiling_name"
"""Text that a dump with calls has."""
RAS_PORT = 28028
RAS_REQUEST = b"CLIENT PROTOCOL 2\nTIMEOUT 5\nSET FORMAT JSON\nVERBOSE STATUS\n"
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
NONE = "none"
ANSWERED = "answered"
SILENT = f"no answer within {LIMIT_S:g} s"
NEXT_TIME = (
    "Nothing can be asked. Next time, call torch.distributed.debug.start_debug_server() in the "
    f"program; with NCCL, export {PIPE}=$PWD/dumps/pipe_ {PREFIXES[0]}=$PWD/dumps/rank_."
)
Source = Callable[[LiveJob, int, float], bytes | str]
"""Function that returns the answer of a rank, or why there is none."""


@dataclass(slots=True)
class Answers:
    """Answers of a job.

    Attributes:
        files: Content of the files that the answers make, by name.
        notes: What answered, a line for each kind of source that was asked.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def can_answer(job: LiveJob) -> bool:
    """Return True if a rank has a debug server or a pipe for dumps."""
    return any(_has_server(p.pid) or p.variables.get(PIPE) for p in job.ranks.values())


def ask(job: LiveJob, host: str) -> Answers:
    """Return the calls of the ranks on this node.

    Each kind of source is asked only for the ranks that none before has answered for.
    """
    answers = Answers()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, source in (("Debug servers", _calls), ("NCCL's pipes for dumps", _dump)):
            asked = [rank for rank in job.ranks if f"rank_{rank}" not in answers.files]
            results = _ask_each(pool, source, job, asked)
            answers.files |= _files("rank_{}", results)
            answers.notes += _note(name, results)
    if not answers.files:
        first = next(iter(job.ranks))
        ras = _answer(_report, job, first, time.monotonic() + LIMIT_S)
        answers.notes.append(f"NCCL RAS: {ras if isinstance(ras, str) else ANSWERED}.")
        answers.files |= {f"ras-{host}.json": ras} if isinstance(ras, bytes) else {}
    if all(note.endswith(f": {NONE}.") for note in answers.notes):
        answers.notes = [NEXT_TIME]
    return answers


def ask_again(job: LiveJob, answers: Answers) -> tuple[int, ...]:
    """Return the ranks that have made calls since they answered; keep what they answer now.

    Only JSON is compared: a pickle of NCCL's dump may have numbers that change by themselves, and
    is read in another process.
    """
    old = {rank: answers.files.get(f"rank_{rank}", b"") for rank in job.ranks}
    asked = [rank for rank, dump in old.items() if dump.startswith(b"{")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = _ask_each(pool, _calls, job, asked)
    answers.files |= _files("rank_{}", results)
    return tuple(rank for rank, r in results.items() if isinstance(r, bytes) and r != old[rank])


def ask_stacks(job: LiveJob, ranks: Sequence[int]) -> dict[str, bytes]:
    """Return files with the stacks of these ranks, as far as debug servers tell them."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return _files("stack_rank_{}.txt", _ask_each(pool, _stack, job, ranks))


def _most(job: LiveJob) -> int:
    """Return the bytes that an answer may have: its share, and no more than a file."""
    return min(MAX_BYTES, TOTAL_BYTES // len(job.ranks))


def _ask_each(
    pool: Executor, source: Source, job: LiveJob, ranks: Sequence[int]
) -> dict[int, bytes | str]:
    """Return the answer of each rank, or why there is none."""
    deadline = time.monotonic() + LIMIT_S
    tasks = {rank: pool.submit(_answer, source, job, rank, deadline) for rank in ranks}
    return {rank: task.result() for rank, task in tasks.items()}


def _files(name: str, results: dict[int, bytes | str]) -> dict[str, bytes]:
    return {name.format(rank): r for rank, r in results.items() if isinstance(r, bytes)}


def _note(name: str, results: dict[int, bytes | str]) -> Iterator[str]:
    """Yield which ranks answered, as ``Debug servers: answered (ranks 0, 2), none (rank 1)``."""
    texts = {rank: r if isinstance(r, str) else ANSWERED for rank, r in results.items()}
    kinds = [*dict.fromkeys(texts.values())]
    of = {kind: tuple(rank for rank, text in texts.items() if text == kind) for kind in kinds}
    if kinds == [NONE]:
        yield f"{name}: {NONE}."
    elif kinds:
        yield f"{name}: {', '.join(f'{k} ({ranks_of(of[k]).lower()})' for k in kinds)}."


def _answer(source: Source, job: LiveJob, rank: int, deadline: float) -> bytes | str:
    """Return the answer of a source, or why there is none."""
    try:
        return source(job, rank, deadline)
    except TimeoutError:
        return SILENT
    except OSError as error:
        return f"{error.strerror or error}".lower()
    except ValueError as error:
        return str(error)


def _exchange(address: tuple[str, int], request: bytes, deadline: float, most: int) -> bytes:
    """Return what a server sends until it closes the connection, at most so many bytes.

    Raises:
        OSError: It can't be reached, or takes too long.
        ValueError: It sends too much.
    """
    answer = bytearray()
    with socket.create_connection(address, _left(deadline)) as link:
        link.sendall(request)
        while True:
            link.settimeout(_left(deadline))
            data = link.recv(1 << 16)
            if not data:
                return bytes(answer)
            answer += data
            if len(answer) > most:
                raise ValueError(f"more than {short_size(most)}")


def _left(deadline: float) -> float:
    """Return the seconds that are left, at least a millisecond: 0 would mean not to wait."""
    return max(0.001, deadline - time.monotonic())


# ------------------------------------------------------------------------------- debug servers


def _calls(job: LiveJob, rank: int, deadline: float) -> bytes | str:
    """Return the calls that a rank's debug server has, or why there are none."""
    port = _server(job, rank, deadline)
    most = _most(job)
    dump = b""
    for name in RECORDERS:
        dump = _request(port, f"POST /handler/{name}", deadline, most)
        if CALL in dump:
            break
    return dump or "no flight recorder"


def _stack(job: LiveJob, rank: int, deadline: float) -> bytes | str:
    """Return the stacks of a rank's threads by its debug server, as faulthandler writes them."""
    port = _server(job, rank, deadline)
    return _request(port, "POST /handler/dump_traceback", deadline, _most(job)) or "no stacks"


def _server(job: LiveJob, rank: int, deadline: float) -> int:
    """Return the port of a rank's debug server.

    It listens on all addresses, and its port is only in the job's store, whose own port isn't
    tried.

    Raises:
        OSError: It can't be reached, or takes too long.
        ValueError: There is none.
    """
    process = job.ranks[rank]
    if not _has_server(process.pid):
        raise ValueError(NONE)
    own = system.tcp_sockets([process.pid])[process.pid].values()
    if not own:
        raise ValueError("ports can't be read")
    if not system.shares_network(process.pid):
        raise ValueError("in another network namespace")
    ends = [end.local for end in own if end.listens]
    stores = {job.port, process.number("MASTER_PORT")}
    ports = [port for address, port in ends if address == "::" and port not in stores]
    for port in ports:
        if b"torch.distributed.WorkerServer" in _request(port, "GET /", deadline, _most(job)):
            return port
    raise ValueError(NONE)


def _has_server(pid: int) -> bool:
    return SERVER_THREAD in system.thread_names(pid)


def _request(port: int, line: str, deadline: float, most: int) -> bytes:
    """Return the body of an answer over HTTP; empty if the server doesn't know the request.

    Raises:
        OSError: The server can't be reached, or takes too long.
        ValueError: It sends too much, or something else.
    """
    request = f"{line} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    answer = _exchange(("127.0.0.1", port), request.encode(), deadline, most)
    head, blank, body = answer.partition(b"\r\n\r\n")
    words = head.split(maxsplit=2)
    if not blank or len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise ValueError("no answer over HTTP")
    if words[1] == b"404":
        return b""
    if words[1] != b"200":
        raise ValueError(f"status {words[1][:9].decode(errors='replace')} over HTTP")
    return body


# ----------------------------------------------------------------------- NCCL's pipes for dumps


def _dump(job: LiveJob, rank: int, deadline: float) -> bytes | str:
    """Return the dump that a rank writes when something is written into its pipe, or why not.

    The pipe is the one that the rank has open. The names of pipe and dump are in the environment of
    the process, so only processes of this user are asked: those of others could name any file.
    """
    process = job.ranks[rank]
    stem = process.variables.get(PIPE)
    if not stem:
        return NONE
    if process.user != os.geteuid():
        return "another user's"
    prefixes = [process.variables[name] for name in PREFIXES if process.variables.get(name)]
    if not prefixes:
        return f"{PREFIXES[0]} isn't set"
    pipe = system.open_pipe(process.pid, f"{stem}{rank}.pipe".rpartition("/")[2])
    if pipe is None:
        return "not open"
    paths = [Path(system.path_of(process.pid, f"{prefix}{rank}")) for prefix in prefixes]
    most = _most(job)
    before = {path: _version(path) for path in paths}
    with os.fdopen(pipe, "wb", buffering=0) as file:
        file.write(b"1\n")
    seen = before
    while time.monotonic() < deadline:
        time.sleep(POLL_S)
        last, seen = seen, {path: _version(path) for path in paths}
        for path in paths:
            new = seen[path]
            if new and new == last[path] != before[path]:
                if new[2] > most:
                    return f"more than {short_size(most)}"
                with suppress(OSError, ValueError):
                    data = read_file(path, max_bytes=most)
                    if is_pickle(data[:2]) and data.endswith(b"."):  # written completely
                        return data
    return SILENT


def _version(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is written; None if there is none."""
    with suppress(OSError):
        status = path.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size
    return None


# ------------------------------------------------------------------------------------- NCCL RAS


def _report(job: LiveJob, rank: int, deadline: float) -> bytes | str:
    """Return the report of NCCL RAS as JSON, or why there is none.

    Ranks of several jobs on a node may share the port, so it must be this job's alone.
    """
    process = job.ranks[rank]
    digits = process.variables.get("NCCL_RAS_ADDR", "").rpartition(":")[2]
    port = int(digits) if digits.isdecimal() else RAS_PORT
    ends = {key: end for key, end in system.listening(process.pid).items() if end[1] == port}
    sockets = system.tcp_sockets([each.pid for each in job.ranks.values()])
    own = {key for found in sockets.values() for key in found}
    if not own.intersection(ends):
        return NONE
    if not own.issuperset(ends):
        return f"another job listens on port {port}, too"
    if not system.shares_network(process.pid):
        return "in another network namespace"
    answer = _exchange(next(iter(ends.values())), RAS_REQUEST, deadline, MAX_BYTES)
    start = answer.find(b"\n{")
    if not answer.startswith(b"SERVER PROTOCOL ") or start < 0:
        return "no JSON, which NCCL 2.28.7 and newer have"
    return answer[start + 1 :]
