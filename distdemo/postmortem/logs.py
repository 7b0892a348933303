"""Read logs of ranks: the NCCL watchdog's messages, tracebacks and torchrun's table of failures.

Messages: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp of torch 2.0 and later, and
torch/distributed/elastic/multiprocessing/errors/__init__.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from signal import SIGINT, SIGTERM, Signals

from distdemo.calls.records import Call, SourceLine
from distdemo.launcher.verdict import lost_peer
from distdemo.postmortem.dumps import OPS
from distdemo.postmortem.evidence import (
    COMPLETED,
    STARTED,
    Dump,
    End,
    Evidence,
    GroupKey,
    Track,
    line_text,
    source_line,
)
from distdemo.postmortem.parts import MAX_ENDS, Exit, Log, Parts, Writer, lines
from distdemo.view.foreign import one_line

MAX_GROUPS = 1000  # groups of a rank with a call that timed out
MAX_OPEN = 1000  # calls after the one that timed out
MAX_WRITERS = 100_000  # ranks in one file
MAX_TEXT = 200  # characters of an exception
STOPPED = (-SIGINT, -SIGTERM)  # exit codes of ranks that torchrun stopped
_PREFIX = re.compile(
    r"^(?:\s*(?:\[\d+\] )?(?=\[(?:default|trainer|rank)\d))?"
    r"(?:\[(?:default|trainer)(\d{1,6})\]:? ?)?(?:\[rank(\d{1,6})\]:? ?)?"
)
_TIMEOUT = re.compile(
    r"\[Rank (\d{1,6})\] Watchdog caught collective operation timeout: "
    r"WorkNCCL\(SeqNum=(\d{1,15}), OpType=(\w+)(?:, NumelIn=(\d{1,15}), "
    r"NumelOut=\d+)?, Timeout\(ms\)=(\d{1,12})\)"
)
_GROUP = re.compile(
    r"\[PG (?:ID )?(\w{1,99})(?: PG GUID ([^\s(]{1,99}))?\s?(?:\(([^)]{0,99})\))? Rank (\d{1,6})\]"
)
_WORK = re.compile(r"at work(?: sequence id)?: (\d{1,15})")
_STATUS = re.compile(
    r"last enqueued (?:NCCL )?work: (-?\d{1,15}), last completed (?:NCCL )?work: (-?\d{1,15})"
)
_FRAME = re.compile(r'^\s+File "([^"]+)", line (\d{1,9}), in (.+)$')
_NAME = re.compile(r"[\w.]{1,200}")
_ERROR = re.compile(r"Error|Exception|Interrupt|Exit|Timeout")
_THROWN = re.compile(r"^terminate called after throwing an instance of '([\w:]{1,80})'")
_WHAT = re.compile(
    r"^\s*what\(\):\s+(?:\[enforce fail at .{1,300}? (\d{1,20} vs \d{1,20})\. )?"
    r"(.*?)(?: Is there a .*)?$"
)
_ROOT = re.compile(r"^Root Cause \(first observed failure\)|^Failures:", re.MULTILINE)
_HOST = re.compile(r"^\s+host\s*: (\S{1,255})")
_PLACE = re.compile(r"^\s+rank\s*: (\d{1,9})(?: \(local_rank: (\d{1,6})\))?")
_EXIT = re.compile(r"^\s+exitcode\s*: (-?\d{1,9})(?: \(pid: (\d{1,10})\))?")
_FORCED = re.compile(r"Unable to shutdown process (\d{1,10}) via \S+, forcefully exiting")
_OUT_OF_MEMORY = re.compile(r"out of memory.{0,200}Killed process (\d{1,10})", re.IGNORECASE)
_CONSEQUENCE = re.compile(
    r"timed? ?out|Watchdog|communicator was aborted|Connection (?:closed|reset|refused)|"
    r"Broken pipe|remote process|"
    r"DistStoreError|DistNetworkError|SignalException|ChildFailedError|KeyboardInterrupt|SystemExit",
    re.IGNORECASE,
)
MARK = re.compile(
    r"Watchdog caught|last enqueued (?:NCCL )?work|Traceback \(most recent call last\)|"
    r"terminate called after throwing|^[ \t]*exitcode[ \t]*:|Connection closed by peer|"
    r"ProcessGroup(?:NCCL|Gloo)|^\[(?:rank|default)\d+\]:|[Oo]ut of memory: Killed process",
    re.MULTILINE,
)
"""Text that a log of ranks has."""


class _Messages:
    """Messages of one writer.

    Attributes:
        timeouts: Call that timed out, by number.
        status: Last enqueued and last completed call, by group and timed-out call.
        stack: Frames of the traceback that is being read.
        thrown: Type of the C++ exception that is being read, or empty.
        limit_ms: Time limit of a call.
    """

    def __init__(self) -> None:
        self.timeouts: dict[int, Call] = {}
        self.status: dict[GroupKey, tuple[int, int, int]] = {}
        self.stack: list[tuple[str, int, str]] | None = None
        self.thrown = ""
        self.limit_ms = 0


def read_log(text: str, parts: Parts) -> Log:
    """Return what a log has, and count its calls as parts of the file.

    Raises:
        ValueError: It has too many calls, errors or ranks.
    """
    log = Log()
    ranks: dict[Writer, _Messages] = {}
    for whole_line in lines(text):
        prefix = _PREFIX.match(whole_line)
        assert prefix is not None  # noqa: S101 - it matches the empty text
        line = whole_line[prefix.end() :]
        own: Writer = ("file", 0)
        if prefix[2]:
            own = "rank", int(prefix[2])
            if prefix[1]:
                log.pairs.add((int(prefix[1]), own[1]))
        elif prefix[1]:
            own = "local rank", int(prefix[1])
        if timeout := _TIMEOUT.search(line):
            named: Writer = ("message", int(timeout[1])) if own[0] == "file" else own
            state = ranks.setdefault(named, _Messages())
            op = timeout[3].lower()
            call = Call(OPS.get(op, op), SourceLine(), count=int(timeout[4] or 0))
            if int(timeout[2]) not in state.timeouts:
                log.ends.append((named, End(-1, f"timed out in {call.op}", is_consequence=True)))
            state.timeouts.setdefault(int(timeout[2]), call)
            state.limit_ms = int(timeout[5])
        elif status := _status(line):
            owner, key, numbers = status
            named = ("message", owner) if own[0] == "file" else own
            state = ranks.setdefault(named, _Messages())
            if len(state.status) < MAX_GROUPS:
                state.status.setdefault(key, numbers)
        elif end := _read_traceback(line, ranks.setdefault(own, _Messages())):
            log.ends.append((own, end))
        if len(log.ends) > MAX_ENDS or len(ranks) > MAX_WRITERS:
            raise ValueError(f"it has more than {MAX_ENDS:,} errors, or {MAX_WRITERS:,} ranks")
    log.writers = set(ranks)
    for writer, messages in ranks.items():
        if messages.timeouts or messages.status:
            log.dumps.append((writer, _dump(messages)))
            parts.count(log.dumps[-1][1])
    log.exits = list(islice(_table(text), MAX_ENDS))
    log.out_of_memory = {int(pid) for pid in _OUT_OF_MEMORY.findall(text)}
    return log


def add_log(log: Log, rank: int | None, first: int | None, evidence: Evidence) -> None:
    """Add a log to the evidence.

    Args:
        log: Log.
        rank: Rank of lines without a prefix, or None if unknown.
        first: Global rank of its host's local rank 0, or None if unknown.
        evidence: Evidence to add to.
    """

    def rank_of(writer: Writer) -> int | None:
        kind, number = writer
        if kind == "local rank":
            return None if first is None else first + number
        return number if kind == "rank" or (kind == "message" and rank is None) else rank

    for writer, dump in log.dumps:
        if (number := rank_of(writer)) is not None:
            evidence.add(number, dump)
    for writer, end in log.ends:
        number = rank_of(writer)
        if number is not None:
            evidence.ends.append(replace(end, rank=number))
        elif not end.is_consequence:
            evidence.unplaced.append(end)
    evidence.out_of_memory |= log.out_of_memory
    for each in log.exits:
        if each.is_first or each.code not in STOPPED:
            is_vague = each.code == 1 or each.code in STOPPED
            end = End(
                each.rank, _exit_text(each.code), "", False, each.is_first, is_vague, each.pid
            )
            evidence.exits.setdefault(each.rank, end)
        else:
            evidence.stopped.add(each.rank)


def _status(line: str) -> tuple[int, GroupKey, tuple[int, int, int]] | None:
    """Return the rank, group and call numbers in the watchdog's message on the last calls."""
    status = _STATUS.search(line)
    group = _GROUP.search(line) if status else None
    work = _WORK.search(line, group.end()) if group else None
    if not (status and group and work):
        return None
    key = (group[2] or group[1], group[3] or "", ())
    return int(group[4]), key, (int(work[1]), int(status[1]), int(status[2]))


def _is_consequence(text: str) -> bool:
    return lost_peer(text) or _CONSEQUENCE.search(text) is not None


def _read_traceback(line: str, state: _Messages) -> End | None:
    """Read a line of an exception, of Python or C++; return the end of the rank if complete."""
    if thrown := _THROWN.match(line):
        state.thrown = thrown[1]
    elif state.thrown and (what := _WHAT.match(line)):
        sizes = f" ({what[1]})" if what[1] else ""
        text = one_line(f"{state.thrown}: {what[2].rstrip('.')}{sizes}")[:MAX_TEXT]
        state.thrown = ""
        return End(-1, f"died of {text}", is_consequence=_is_consequence(text))
    elif line.startswith("Traceback (most recent call last)"):
        state.stack = []
    elif state.stack is not None and (frame := _FRAME.match(line)):
        state.stack.append((frame[1], int(frame[2]), frame[3]))
    elif state.stack is not None:
        error, _, message = line.partition(": ")
        error = error.rpartition(".")[2]
        if _NAME.fullmatch(error) and _ERROR.search(error):
            line_of_user, _ = source_line(reversed(state.stack))
            text = one_line(f"{error}: {message}".rstrip(": "))[:MAX_TEXT]
            state.stack = None
            return End(-1, f"raised {text}", line_text(line_of_user), _is_consequence(text))
    return None


def _dump(state: _Messages) -> Dump:
    """Return the calls of one rank: the last that completed, and those after it."""
    dump = Dump("log", "nccl", limit_s=state.limit_ms / 1000)
    dump.calls = [Call("", SourceLine()), *state.timeouts.values()]
    numbers = {number: index for index, number in enumerate(state.timeouts, 1)}
    first_number = min(state.timeouts, default=0)
    default = {("0", "", ()): (first_number, first_number, first_number - 1)}
    status = state.status or default
    for key, (number, enqueued, completed) in status.items():
        first = completed if 0 < completed < number <= completed + MAX_OPEN else number
        track = dump.tracks[key] = Track(first)
        for each in range(first, min(max(enqueued, number), first + 2 * MAX_OPEN) + 1):
            order = max(0, each - first)
            track.add(numbers.get(each, 0), COMPLETED if each <= completed else STARTED, order)
    return dump


def _table(text: str) -> Iterator[Exit]:
    """Yield the failures in torchrun's table."""
    forced = {int(pid) for pid in _FORCED.findall(text)}
    for head, part in zip(_ROOT.finditer(text), _ROOT.split(text)[1:], strict=True):
        host, place = "", None
        for line in part.splitlines():
            if named := _HOST.match(line):
                host = named[1]
            elif found := _PLACE.match(line):
                place = found
            elif place and (left := _EXIT.match(line)) and int(left[1]):
                local = int(place[2]) if place[2] else None
                pid = int(left[2] or 0)
                code = -SIGTERM if pid in forced else int(left[1])
                is_first = head[0].startswith("Root")
                yield Exit(host, int(place[1]), local, code, pid, is_first)
                place = None


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"died of {Signals(-code).name}"
    except ValueError:
        return f"died of signal {-code}"
