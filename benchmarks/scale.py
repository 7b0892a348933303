"""Cost of the sanitizer on many ranks, without these ranks: their notes are written beforehand.

Every rank makes 1,000 calls a second for a minute: steps of DDP (buffers, buckets and the wait for
the last of them), waiting and non-blocking calls from Python, on the default group and on groups of
8. The notes are those of the real writer. Ranks are up to 20 ms apart. Figures are CPU seconds per
second of the job, so that 100 % is one core, and calls judged per second of CPU time. At the end
one rank passes a different ReduceOp.

``judge``: rank 0 alone, from the notes to the verdict. ``apart``: the same, but the ranks' notes
differ, so that every call of every rank is judged. ``host``: what the launcher of 8 ranks does.
``nodes``: from the ranks' memory over TCP to the verdict, with all processes on this machine;
``engine``: likewise, with a launcher for each rank, as under torchrun.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import random
import resource
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import rounds
from rounds import Result

from distdemo.calls.inspector import Inspector
from distdemo.calls.match.judge import Judge
from distdemo.calls.notes import Ring, Writer, note_line, shared
from distdemo.calls.records import Finding, RankCall, SourceLine, TorchPart
from distdemo.encoding import decode, encode
from distdemo.joined import messages
from distdemo.joined.control import Control
from distdemo.joined.engines import Placement
from distdemo.joined.messages import Hello, Sent
from distdemo.launcher.records import WorldSpec
from distdemo.launcher.torch_import import load_torch
from distdemo.launcher.workers import POLL_S

RATE = 1000  # calls per second and rank
SECONDS = 60
GROUP = 8  # ranks of a smaller group, and of a host
APART_BYTES = 200  # that ranks are apart, at most: about 20 ms
LIMIT_S = 5.0  # until a mismatch is named
BUCKETS = 6
WRONG = 30  # number of the call that differs on one rank

# ----------------------------------------------------------------------------------------- notes


def definitions(rank: int, size: int, *, wrong: bool = False) -> bytes:
    """Return the notes that define a rank's groups and calls."""
    lines: list[bytes] = []
    writer = Writer(lines.append)
    start = rank // GROUP * GROUP
    writer.write(f"G 0 0 gloo {list(range(size))}")
    writer.write(f"G 1 0 gloo {list(range(start, start + GROUP))}")
    backward = SourceLine("train.py", 40, "main", part=TorchPart("backward"), cpp=True)
    forward = replace(backward, line=38, part=TorchPart("ddp", "forward"))
    program = SourceLine("train.py", 50, "main")
    call = RankCall("all_reduce", backward, "float32", (1,), 1, "cpu", "sum", sync=False)
    calls = [(0, replace(call, op="broadcast", reduce_op="", root=0, source_line=forward))]
    calls += [(0, sized(call, 1000 * bucket)) for bucket in range(1, 1 + BUCKETS)]
    python = replace(call, source_line=program)
    calls += [(1, sized(replace(python, sync=True), count)) for count in (1024, 4096)]
    calls += [(1, sized(python, 512)), (0, sized(replace(python, sync=True), 2))]
    for number, (group, one) in enumerate(calls):
        line = replace(one.source_line, line=one.source_line.line + number)
        writer.write(note_line(replace(one, source_line=line), number, group))
    op = "product" if wrong else "sum"
    writer.write(note_line(replace(python, sync=True, reduce_op=op), WRONG, 0))
    return b"".join(lines)


def sized(call: RankCall, count: int) -> RankCall:
    """Return the call with a tensor of this size."""
    return replace(call, shape=(count,), count=count)


def step(writer: Writer, number: int) -> None:
    """Write the notes of a training step of 16 calls."""
    writer.write("0", is_call=True)
    for bucket in range(1, 1 + BUCKETS):
        last = writer.write(f"{bucket} {number}", is_call=True)
    writer.write(f"w {last}")
    writer.write("r")
    for _ in range(3):
        for call in (7, 8):
            for line in (f"{call}", "a", "r"):
                writer.write(line, is_call=line.isdigit())
    for _ in range(2):
        made = writer.write("9", is_call=True)
        for line in ("a", f"w {made}", "r"):
            writer.write(line)
    for line in ("10", "a", "r"):
        writer.write(line, is_call=line.isdigit())


def job(seconds: float) -> tuple[bytes, int]:
    """Return the notes of a rank without its definitions, and the number of its calls."""
    lines: list[bytes] = []
    writer = Writer(lines.append)
    for number in range(round(seconds * RATE / 16)):
        step(writer, number)
    return b"".join(lines), writer.calls


class Pieces:
    """The notes of one rank, in pieces of 0.2 seconds.

    Args:
        text: Notes.
        polls: Number of pieces.
        rank: The rank.
    """

    def __init__(self, text: bytes, polls: int, rank: int) -> None:
        self._text = text
        self._size = len(text) / polls
        self._polls = polls
        self._chance = random.Random(rank)
        self._at = 0

    def take(self, number: int) -> bytes:
        """Return the next piece."""
        end = int(self._size * (number + 1)) - self._chance.randrange(APART_BYTES)
        end = max(self._at, end) if number + 1 < self._polls else len(self._text)
        piece = self._text[self._at : end]
        self._at = end
        return piece


def memory() -> int:
    """Return the bytes of memory that this process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def share(seconds: float, job_s: float) -> str:
    """Return a CPU time as text: its share of the time of the job."""
    return f"{100 * seconds / job_s:.1f} % of a core"


# ----------------------------------------------------------------------------------------- rank 0


def judge(size: int, smoke: bool, *, is_apart: bool = False) -> Iterator[Result]:
    """Yield what rank 0 does with the notes of this many ranks."""
    seconds = 2 if smoke or is_apart else SECONDS
    polls = round(seconds / POLL_S)
    text, calls = job(seconds)
    judged = Judge(size)
    for rank in range(size):
        judged.feed(rank, definitions(rank, size, wrong=rank == size // 3))
        if is_apart and rank % 2:
            alone = f"G 2 0 gloo [{rank}]\n{note_line(RankCall('barrier', SourceLine()), 99, 2)}"
            judged.feed(rank, f"{alone}\n99\na\nr\n".encode())
    judged.read()
    pieces = [Pieces(text, polls, rank) for rank in range(size)]
    used = longest = 0.0
    before = memory()
    for number in range(polls):
        for rank in range(size):
            judged.feed(rank, pieces[rank].take(number))
        began = time.process_time()
        assert judged.poll() is None
        took = time.process_time() - began
        used += took
        longest = max(longest, took)
        if number == min(9, polls // 2):
            before = memory()
    grown = memory() - before
    assert is_apart or all(state.call_count == calls for state in judged.matcher.ranks)
    began = time.process_time()
    finding, waited = named(judged, size)
    waited += time.process_time() - began
    assert finding.ranks == (size // 3,), finding
    needed = size * RATE
    kind = "apart, " if is_apart else ""
    rate = size * calls / used
    met = None if is_apart or size > 256 else rate > needed and waited < LIMIT_S
    yield Result(
        f"{size} ranks, {kind}calls judged",
        f"{rate:,.0f} per CPU second",
        f"{rate / needed:.2f} × what is needed",
        "" if met is None else "at least 1 ×",
        met,
        f"{share(used, seconds)}; longest poll {longest:.2f} s; {grown / 2**20:.1f} MiB more; "
        f"mismatch named in {waited:.2f} s",
    )


def named(judged: Judge, size: int) -> tuple[Finding, float]:
    """Have one rank make a different call, and return the finding and the seconds of polls."""
    for rank in range(size):
        judged.feed(rank, f"{WRONG}\na\nr\n".encode())
    polls = 1
    while (finding := judged.poll()) is None:
        polls += 1
    return finding, polls * POLL_S


# ------------------------------------------------------------------------------------------ a host


def ring_of(inspector: Inspector, nth: int) -> Ring:
    """Return the ring that the n-th rank of an inspector writes to."""
    return Ring(shared(inspector.notes.path, inspector.notes.size, nth))


def host(smoke: bool) -> Iterator[Result]:
    """Yield what the launcher of 8 ranks does with their notes."""
    seconds = 2 if smoke else SECONDS
    polls = round(seconds / POLL_S)
    text, calls = job(seconds)
    inspector = Inspector(WorldSpec(256, deadline=60.0), range(8, 16))
    rings = [ring_of(inspector, nth) for nth in range(GROUP)]
    pieces = [Pieces(text, polls, rank) for rank in range(GROUP)]
    used = 0.0
    size = 0
    for number in range(polls):
        for ring, own in zip(rings, pieces, strict=True):
            ring.write(own.take(number))
        began = time.process_time()
        sent = [messages.write(Sent(1, rank, encode(value))) for rank, value in inspector.relay()]
        used += time.process_time() - began
        size += sum(map(len, sent))
    yield Result(
        "a host of 8 ranks: read and encode",
        share(used, seconds),
        details=f"{GROUP * calls / used:,.0f} calls per CPU second; "
        f"{size / seconds / 2**10:,.0f} KiB/s sent",
    )


# -------------------------------------------------------------------------------- several hosts


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def node(place: Placement, port: int, seconds: float, pipe: Connection) -> None:
    """Be a node: write the notes of its ranks, and send them as a launcher does."""
    ranks = place.ranks_of(place.node)
    polls = round(seconds / POLL_S)
    text, _ = job(seconds)
    pieces = [Pieces(text, polls, rank) for rank in ranks]
    inspector = Inspector(WorldSpec(place.world_size, deadline=60.0), ranks)
    rings = [ring_of(inspector, nth) for nth in range(len(ranks))]
    control = Control(host="127.0.0.1", port=port, place=place, timeout_s=60, listening=None)
    child = control_process(set())
    control.send(Hello(socket.gethostname()))

    def relay() -> None:
        for rank, value in inspector.relay():
            control.send(Sent(1, rank, encode(value)))

    for ring, rank in zip(rings, ranks, strict=True):
        ring.write(definitions(rank, place.world_size, wrong=rank == place.world_size // 3))
    relay()
    pipe.send(None)
    began = pipe.recv()
    used = time.process_time()
    for number in range(polls):
        for ring, own in zip(rings, pieces, strict=True):
            ring.write(own.take(number))
        relay()
        time.sleep(max(0.0, began + (number + 1) * POLL_S - time.monotonic()))
    for ring in rings:
        ring.write(f"{WRONG}\na\nr\n".encode())
    relay()
    used = time.process_time() - used
    pipe.send((used, cpu_s(child)))
    pipe.recv()
    control.close()


def nodes(size: int, smoke: bool, *, engine: bool = False) -> Iterator[Result]:
    """Yield the share of each process when nodes send the notes of this many ranks over TCP."""
    load_torch()  # before memory is limited
    seconds = 2 if smoke else SECONDS / 3
    count = size if engine else size // GROUP
    place = Placement("terminals", 0, size, nnodes=count, job=f"scale-{os.getpid()}")
    listening = socket.create_server(("127.0.0.1", 0), backlog=size)
    port = listening.getsockname()[1]
    context = multiprocessing.get_context("fork")
    helpers: list[tuple[Any, Connection]] = []
    for number in range(1, count):
        pipe, other = context.Pipe()
        there = replace(place, node_rank=number)
        process = context.Process(target=node, args=(there, port, seconds, other))
        atexit.register(process.kill)
        process.start()
        other.close()
        helpers.append((process, pipe))
    known = {child.pid or 0 for child in multiprocessing.active_children()}
    control = Control(host="127.0.0.1", port=port, place=place, timeout_s=60, listening=listening)
    child = control_process(known)
    inspector = Inspector(WorldSpec(size, deadline=60.0), place.ranks_of(0))
    rings = [ring_of(inspector, nth) for nth in range(len(place.ranks_of(0)))]
    polls = round(seconds / POLL_S)
    text, _ = job(seconds)
    pieces = [Pieces(text, polls, rank) for rank in place.ranks_of(0)]

    def receive() -> None:
        for sender, data in control.receive():
            assert isinstance(data, bytes), (sender, data)
            message = messages.read(sender, data)
            if isinstance(message, Sent):
                inspector.on_message(message.rank, decode(str, message.value))

    for ring, rank in zip(rings, place.ranks_of(0), strict=True):
        ring.write(definitions(rank, size))
    for _, pipe in helpers:
        pipe.recv()
    used, used_by_control, before = time.process_time(), cpu_s(child), memory()
    began = time.monotonic()
    for _, pipe in helpers:
        pipe.send(began)
    for number in range(polls):
        for ring, own in zip(rings, pieces, strict=True):
            ring.write(own.take(number))
        until = began + (number + 1) * POLL_S
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, POLL_S / 4))
            receive()
        inspector.poll([None] * size)
    for ring in rings:
        ring.write(f"{WRONG}\na\nr\n".encode())
    ended = time.monotonic()
    while not inspector.poll([None] * size):
        time.sleep(POLL_S)
        receive()
    waited = time.monotonic() - ended
    finding = inspector.judge.finding
    assert finding is not None
    assert finding.ranks == (size // 3,), finding
    used, used_by_control = time.process_time() - used, cpu_s(child) - used_by_control
    others = [pipe.recv() for _, pipe in helpers]
    grown = memory() - before
    for process, pipe in helpers:
        pipe.send(None)
        process.join()
    control.close()
    launcher = sum(own for own, _ in others) / len(others)
    sender = sum(own for _, own in others) / len(others)
    job_s = ended - began
    yield Result(
        f"{size} ranks, {count} nodes: rank 0",
        f"{share(used, job_s)}, its store {share(used_by_control, job_s)}",
        f"job {job_s:.1f} s",
        f"at most {LIMIT_S:g} s" if size <= 256 and not engine else "",
        waited < LIMIT_S if size <= 256 and not engine else None,
        f"each other node {share(launcher, job_s)}, its store {share(sender, job_s)}; mismatch "
        f"named in {waited:.2f} s; {grown / 2**20:.1f} MiB more",
    )


def control_process(known: set[int]) -> int:
    """Return the process that was started since these."""
    return min({child.pid or 0 for child in multiprocessing.active_children()} - known)


PARTS: dict[str, rounds.Part] = {
    **{f"judge-{size}": partial(judge, size) for size in (64, 256, 1024)},
    **{f"apart-{size}": partial(judge, size, is_apart=True) for size in (64, 256)},
    "host": host,
    **{f"nodes-{size}": partial(nodes, size) for size in (64, 256)},
    "engine-64": partial(nodes, 64, engine=True),
}

if __name__ == "__main__":
    sys.exit(rounds.main(__doc__, PARTS))
