"""Read texts about ranks: their logs, ``ncclras -f json`` and stacks by py-spy or faulthandler.

Logs have the NCCL watchdog's messages (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp of torch
2.0 and later), tracebacks, and torchrun's table of failures
(torch/distributed/elastic/multiprocessing/errors/__init__.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from signal import SIGINT, SIGTERM
from typing import Literal

from distdemo.calls.flight.entries import OPS, CallState, number, source_line, text_of, typed
from distdemo.calls.records import UNKNOWN_CALL, PartialCall, SourceLine
from distdemo.encoding import loads
from distdemo.files import MAX_BYTES
from distdemo.launcher.verdict import lost_peer
from distdemo.postmortem.records import GroupId, PastCall, RankCalls, RankEnd
from distdemo.view.foreign import one_line

MAX_LINE = 4_000  # characters of a line that are read
MAX_ENDS = 10_000  # errors in one file
MAX_OPEN = 1000  # calls after the one that timed out
MAX_CHARS = 200  # of an exception
STOPPED = (-SIGINT, -SIGTERM)  # exit codes of ranks that torchrun stopped
MARK = re.compile(
    r"Watchdog caught|last enqueued (?:NCCL )?work|Traceback \(most recent call last\)|"
    r"terminate called after throwing|^[ \t]*exitcode[ \t]*:|Connection closed by peer|"
    r"ProcessGroup(?:NCCL|Gloo)|^\[(?:rank|default)\d+\]:",
    re.MULTILINE,
)
"""Text that a log of ranks has."""
_PREFIX = re.compile(
    r"^(?:\s*(?:\[\d+\] )?(?=\[(?:default|trainer|rank)\d))?"
    r"(?:\[(?:default|trainer)\d{1,6}\]:? ?)?(?:\[rank(\d{1,5})\]:? ?)?"
)
_TIMEOUT = re.compile(
    r"\[Rank (\d{1,5})\] Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(\d{1,15}), OpType=(\w+)(?:, NumelIn=(\d{1,15}), NumelOut=\d+)?, "
)
_STATUS = re.compile(
    r"\[PG (?:ID )?(\w{1,99})(?: PG GUID ([^\s(]{1,99}))?\s?(?:\(([^)]{0,99})\))? Rank (\d{1,5})\]"
    r".{0,300}?at work(?: sequence id)?: (\d{1,15}).{0,99}?last enqueued (?:NCCL )?work: "
    r"(-?\d{1,15}), "
    r"last completed (?:NCCL )?work: (-?\d{1,15})"
)
_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d{1,9}), in (.+)$')
_EXCEPTION = re.compile(
    r"(?:\w{1,99}\.){0,9}(\w{0,99}(?:Error|Exception|Interrupt|Exit|Timeout)\w{0,99})(?=: |:?$)"
)
_THROWN = re.compile(r"^terminate called after throwing an instance of '([\w:]{1,80})'")
_WHAT = re.compile(
    r"^\s*what\(\):\s+(?:\[enforce fail at .{1,300}? (\d{1,20} vs \d{1,20})\. )?"
    r"(.*?)(?: Is there a .*)?$"
)
_TABLE = re.compile(r"^Root Cause \(first observed failure\)|^Failures:")
_TABLE_RANK = re.compile(r"^\s+rank\s*: (\d{1,5})\b")
_TABLE_EXIT = re.compile(r"^\s+exitcode\s*: (-?\d{1,9})(?: \(pid: (\d{1,10})\))?")
_FORCED = re.compile(r"Unable to shutdown process (\d{1,10}) via \S+, forcefully exiting")
_CONSEQUENCE = re.compile(
    r"timed? ?out|Watchdog|communicator was aborted|Connection (?:closed|reset|refused)|"
    r"Broken pipe|remote process|"
    r"DistStoreError|DistNetworkError|SignalException|ChildFailedError|KeyboardInterrupt|SystemExit",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(r"timed? ?out", re.IGNORECASE)
FAULT = " (most recent call first):\n"
STACK = re.compile(
    r"^Process \d+: .*\n(?:.*\n){0,3}?Thread |\A(?:Current t|T)hread 0x[\da-f]+"
    rf"(?: \[[^\]\n]*\])?{re.escape(FAULT)}",
    re.MULTILINE,
)
"""Beginning of a stack, by py-spy or faulthandler."""
_FAULT_FRAME = re.compile(r'^  File "([^"]+)", line (\d{1,9}) in (.+)$', re.MULTILINE)
RAS = '"communicators"'
_THREAD = re.compile(
    r'^Thread (?:0x[\da-fA-F]+|\d+) \([^)]*\): "MainThread"\n((?: {4}.*\n?)*)', re.MULTILINE
)
_STACK_FRAME = re.compile(r"^ {4}(.+?) \(([^():]+)(?::(\d{1,9}))?\)$", re.MULTILINE)
_NO_COMMA = re.compile(r'(?<=[\w"])(\s*\n\s*"\w+"\s*:)')  # in missing_ranks of NCCL 2.28


@dataclass(slots=True)
class Log:
    """Content of a log. A rank that no line tells is None.

    Attributes:
        calls: Calls in the watchdog's messages, by rank.
        ends: How ranks ended, in the order of the lines.
        first: Ranks that torchrun saw fail first.
        stopped: Ranks that torchrun stopped.
    """

    calls: dict[int, RankCalls] = field(default_factory=dict)
    ends: list[tuple[int | None, RankEnd]] = field(default_factory=list)
    first: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)


def read_log(text: str, rank: int | None) -> Log:
    """Return what a log has.

    Args:
        text: Log.
        rank: Rank that wrote the lines without ``[rank3]:``; None if unknown.

    Raises:
        ValueError: It has too many errors.
    """
    log = Log()
    errors: defaultdict[int | None, _ErrorReader] = defaultdict(_ErrorReader)
    watchdogs: defaultdict[int, _Watchdog] = defaultdict(_Watchdog)
    table = _Table({int(pid) for pid in _FORCED.findall(text)})
    for whole_line in text.splitlines():
        prefix = _PREFIX.match(whole_line[:MAX_LINE])
        assert prefix is not None  # it matches the empty text
        line = whole_line[prefix.end() : MAX_LINE]
        writer = int(prefix[1]) if prefix[1] else rank
        if timeout := _TIMEOUT.search(line):
            rank_of_call = int(timeout[1]) if writer is None else writer
            op = OPS.get(timeout[3].lower(), timeout[3].lower())
            call = PartialCall(op, SourceLine(), count=int(timeout[4] or -1))
            watchdogs[rank_of_call].add_timeout(int(timeout[2]), call)
            end = RankEnd("timed out", op, is_consequence=True, timed_out=True)
            log.ends.append((rank_of_call, end))
        elif status := _STATUS.search(line):
            rank_of_call = int(status[4]) if writer is None else writer
            number, enqueued, completed = map(int, status.group(5, 6, 7))
            group = GroupId(status[2] or status[1], status[3] or "")
            watchdogs[rank_of_call].add_status(group, (number, enqueued, completed))
        elif raised := errors[writer].read(line):
            log.ends.append((writer, raised))
        else:
            table.read(line, log)
        if len(log.ends) > MAX_ENDS:
            raise ValueError(f"it has more than {MAX_ENDS:,} errors")
    log.calls = {number: watchdog.calls() for number, watchdog in watchdogs.items()}
    return log


class _Watchdog:
    """Messages of the NCCL watchdog of one rank."""

    def __init__(self) -> None:
        self._timeouts: dict[int, PartialCall] = {}
        self._status: dict[GroupId, tuple[int, int, int]] = {}

    def add_timeout(self, number: int, call: PartialCall) -> None:
        """Add a call that timed out."""
        self._timeouts.setdefault(number, call)

    def add_status(self, group: GroupId, numbers: tuple[int, int, int]) -> None:
        """Add the numbers of the timed-out, the last enqueued and the last completed call."""
        self._status.setdefault(group, numbers)

    def calls(self) -> RankCalls:
        """Return the last call of each group that completed, and those after it."""
        number = min(self._timeouts, default=0)
        status = self._status or {GroupId("0"): (number, number, number - 1)}
        calls = RankCalls("nccl", groups=list(status))
        for group, (number, enqueued, completed) in status.items():
            first = completed if 0 < completed < number <= completed + MAX_OPEN else number
            for place in range(first, min(max(enqueued, number), first + 2 * MAX_OPEN) + 1):
                call = self._timeouts.get(place, UNKNOWN_CALL)
                state = CallState.COMPLETED if place <= completed else CallState.STARTED
                calls.calls.append(PastCall(group, place, call, state))
        return calls


class _ErrorReader:
    """Reader of exceptions of one rank, of Python and C++."""

    def __init__(self) -> None:
        self._stack: list[SourceLine] | None = None
        self._thrown = ""  # type of a C++ exception

    def read(self, line: str) -> RankEnd | None:
        """Read a line; return the end of the rank with the last line of an exception."""
        if thrown := _THROWN.match(line):
            self._thrown = thrown[1]
        elif self._thrown and (what := _WHAT.match(line)):
            sizes = f" ({what[1]})" if what[1] else ""
            text = f"{self._thrown}: {what[2].rstrip('.')}{sizes}"
            self._thrown = ""
            return _end("thrown", text)
        elif line.startswith("Traceback (most recent call last)"):
            self._stack = []
        elif self._stack is not None and (frame := _FRAME.match(line)):
            self._stack.append(SourceLine(frame[1], int(frame[2]), frame[3]))
        elif self._stack is not None and (error := _EXCEPTION.match(line)):
            place = source_line(reversed(self._stack))
            self._stack = None
            message = line[error.end() :]
            return _end("raised", error[1] + message, place.alone if place.line else None)
        return None


def _end(kind: Literal["raised", "thrown"], error: str, line: SourceLine | None = None) -> RankEnd:
    text = one_line(error)[:MAX_CHARS].rstrip(": ")
    has_lost_peer = lost_peer(text)
    return RankEnd(
        kind,
        text,
        source_line=line,
        is_consequence=has_lost_peer or _CONSEQUENCE.search(text) is not None,
        lost_peer=has_lost_peer,
        timed_out=_TIMED_OUT.search(text) is not None,
    )


class _Table:
    """Reader of the failures in torchrun's table.

    Args:
        forced: Processes that torchrun killed because they didn't stop.
    """

    def __init__(self, forced: set[int]) -> None:
        self._forced = forced
        self._is_first: bool | None = None  # None outside the table
        self._rank: int | None = None

    def read(self, line: str, log: Log) -> None:
        """Read a line, and add a failure to the log."""
        if _TABLE.match(line):
            self._is_first = line.startswith("Root")
        elif self._is_first is None:
            return
        elif match := _TABLE_RANK.match(line):
            self._rank = int(match[1])
        elif self._rank is not None and (match := _TABLE_EXIT.match(line)):
            code = -SIGTERM if int(match[2] or 0) in self._forced else int(match[1])
            if self._is_first:
                log.first.add(self._rank)
            if code in STOPPED and not self._is_first:
                log.stopped.add(self._rank)
            elif code:
                log.ends.append((self._rank, RankEnd("exited", code=code)))
            self._rank = None


# ----------------------------------------------------------------------------------- RAS and stacks


def read_ras(text: str) -> Log:
    """Return what NCCL's RAS knows: the calls that each rank has launched, by op.

    Ranks are those of the largest communicator. Its last call that all have launched counts,
    and the next one. Format: NCCL's user guide, "RAS", and src/ras/client_support.cc.
    """
    log = Log()
    report = typed(loads(_NO_COMMA.sub(r",\1", text), max_bytes=MAX_BYTES), dict)
    communicators = [typed(comm, dict) for comm in typed(report["communicators"], list)]
    largest = max((number(comm["size"]) for comm in communicators), default=0)
    for comm in communicators:
        if comm["size"] != largest:
            continue
        counts: dict[str, dict[int, int]] = {}
        for rank in typed(comm["ranks"], list):
            for op, count in typed(rank["collective_counts"], dict).items():
                counts.setdefault(op, {})[number(rank["rank"])] = number(count)
        for op, count_of in counts.items():
            _add_counts(log, f"{text_of(comm['hash'])} {op}", op, count_of)
        for rank in typed(comm.get("missing_ranks", []), list):
            process = f"process {rank.get('pid')!r} on {rank.get('host')!r}"
            log.ends.append((number(rank["rank"]), RankEnd("silent", process[:MAX_CHARS])))
    return log


def _add_counts(log: Log, name: str, op: str, counts: Mapping[int, int]) -> None:
    group = GroupId(name, name, tuple(sorted(counts)))
    least = min(counts.values())
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", op).lower()
    call = PartialCall(OPS.get(words, words), SourceLine(), count=-1)
    for rank, count in counts.items():
        calls = log.calls.setdefault(rank, RankCalls("nccl", is_dump=True))
        calls.groups.append(group)
        if least:
            calls.calls.append(PastCall(group, least, call, CallState.COMPLETED))
        if count > least:
            calls.calls.append(PastCall(group, least + 1, call, CallState.STARTED))


def _frames(text: str) -> list[SourceLine]:
    """Return the frames of the main thread, innermost first; faulthandler writes it last."""
    if FAULT in text:
        found = _FAULT_FRAME.findall(text.rpartition(FAULT)[2])
        return [SourceLine(file, int(line), function) for file, line, function in found]
    thread = _THREAD.search(text)
    return [
        SourceLine(file, int(line or 0), function)
        for function, file, line in _STACK_FRAME.findall(thread[1] if thread else "")
    ]


def read_stacks(stacks: Mapping[int, str]) -> dict[int, RankCalls]:
    """Return the call that each rank is in, by the stack of its main thread."""
    group = GroupId("stacks", "stacks", tuple(sorted(stacks)))
    ranks = {}
    for rank, text in stacks.items():
        frames = _frames(text)
        line = source_line(frames)
        ranks[rank] = RankCalls(is_dump=True, groups=[group], line=line.alone)
        ops = [f.function for f in frames if "torch/distributed/" in f.file and f.line]
        ops = [op for op in ops if not op.endswith("wrapper")]
        if ops:
            call = PartialCall(ops[-1], line, count=-1)
            ranks[rank].calls = [PastCall(group, 1, call, CallState.STARTED)]
    return ranks
