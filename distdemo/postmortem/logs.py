"""Read logs of ranks: the NCCL watchdog's messages, tracebacks and torchrun's table of failures.

Messages: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp of torch 2.0 and later, and
torch/distributed/elastic/multiprocessing/errors/__init__.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from signal import Signals

from distdemo.launcher.verdict import lost_peer
from distdemo.postmortem.dumps import OPS
from distdemo.postmortem.evidence import (
    COMPLETED,
    STARTED,
    Dump,
    End,
    GroupKey,
    Track,
    line_text,
    source_line,
)
from distdemo.postmortem.parts import Parts, lines
from distdemo.sanitizer.records import Call, SourceLine
from distdemo.view.foreign import one_line

MAX_GROUPS = 1000  # groups of a rank with a call that timed out
MAX_OPEN = 1000  # calls after the one that timed out
MAX_TEXT = 200  # characters of an exception
_PREFIX = re.compile(r"^\s*(?:\[\d+\] )?\[(?:rank|default|trainer)(\d{1,6})\]:? ?")
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
_TABLE = re.compile(r"^\s+(rank|exitcode)\s*: (-?\d{1,9})")
_STOPPED = (-2, -6, -15)  # SIGINT, SIGABRT by the watchdog, SIGTERM by torchrun
_CONSEQUENCE = re.compile(
    r"timed? ?out|Watchdog|abort|Connection (?:closed|reset|refused)|Broken pipe|remote process|"
    r"DistStoreError|DistNetworkError|SignalException|ChildFailedError|KeyboardInterrupt|SystemExit",
    re.IGNORECASE,
)
MARK = re.compile(
    r"Watchdog caught|last enqueued (?:NCCL )?work|Traceback \(most recent call last\)|"
    r"terminate called after throwing|^[ \t]*exitcode[ \t]*:|Connection closed by peer|"
    r"ProcessGroup(?:NCCL|Gloo)|^\[(?:rank|default)\d+\]:",
    re.MULTILINE,
)
"""Text that a log of ranks has."""


class _Rank:
    """Messages of one rank.

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


def read_log(text: str, rank: int | None, parts: Parts) -> None:
    """Add what a log has.

    Args:
        text: Content of the file.
        rank: Rank that the file belongs to, or None; prefixes of lines and messages come first.
        parts: Parts to add to.

    Raises:
        ValueError: It has too many calls or errors.
    """
    ranks: dict[int, _Rank] = {}
    for whole_line in lines(text):
        found = _PREFIX.match(whole_line)
        own = int(found[1]) if found else rank
        line = whole_line[found.end() :] if found else whole_line
        if timeout := _TIMEOUT.search(line):
            state = ranks.setdefault(int(timeout[1]) if own is None else own, _Rank())
            op = timeout[3].lower()
            call = Call(OPS.get(op, op), SourceLine(), count=int(timeout[4] or 0))
            state.timeouts.setdefault(int(timeout[2]), call)
            state.limit_ms = int(timeout[5])
        elif status := _status(line):
            owner, key, numbers = status
            state = ranks.setdefault(owner if own is None else own, _Rank())
            if len(state.status) < MAX_GROUPS:
                state.status.setdefault(key, numbers)
        elif own is not None:
            _read_traceback(line, own, ranks.setdefault(own, _Rank()), parts)
    for number, state in ranks.items():
        if state.timeouts or state.status:
            parts.add(number, _dump(state))
    for end in _table(text):
        parts.add_end(end)


def _status(line: str) -> tuple[int, GroupKey, tuple[int, int, int]] | None:
    """Return the rank, group and call numbers in the watchdog's message on the last calls."""
    status = _STATUS.search(line)
    group = _GROUP.search(line) if status else None
    work = _WORK.search(line, group.end()) if group else None
    if not (status and group and work):
        return None
    key = (group[2] or group[1], group[3] or "", ())
    return int(group[4]), key, (int(work[1]), int(status[1]), int(status[2]))


def _read_traceback(line: str, rank: int, state: _Rank, parts: Parts) -> None:
    """Read a line of an exception, of Python or C++."""
    if thrown := _THROWN.match(line):
        state.thrown = thrown[1]
    elif state.thrown and (what := _WHAT.match(line)):
        sizes = f" ({what[1]})" if what[1] else ""
        text = one_line(f"{state.thrown}: {what[2].rstrip('.')}{sizes}")[:MAX_TEXT]
        parts.add_end(End(rank, f"died of {text}", "", lost_peer(text)))
        state.thrown = ""
    elif line.startswith("Traceback (most recent call last)"):
        state.stack = []
    elif state.stack is not None and (frame := _FRAME.match(line)):
        state.stack.append((frame[1], int(frame[2]), frame[3]))
    elif state.stack is not None:
        error, _, message = line.partition(": ")
        error = error.rpartition(".")[2]
        if not (_NAME.fullmatch(error) and _ERROR.search(error)):
            return
        line_of_user, _ = source_line(reversed(state.stack))
        text = one_line(f"{error}: {message}".rstrip(": "))[:MAX_TEXT]
        is_consequence = lost_peer(text) or _CONSEQUENCE.search(text) is not None
        parts.add_end(End(rank, f"raised {text}", line_text(line_of_user), is_consequence))
        state.stack = None


def _dump(state: _Rank) -> Dump:
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


def _table(text: str) -> Iterator[End]:
    """Yield the failures in torchrun's table."""
    for head, part in zip(_ROOT.finditer(text), _ROOT.split(text)[1:], strict=True):
        rank = None
        for found in filter(None, map(_TABLE.match, part.splitlines())):
            if found[1] == "rank":
                rank = int(found[2])
            elif rank is not None and int(found[2]):
                code, is_first = int(found[2]), head[0].startswith("Root")
                yield End(rank, _exit_text(code), "", code in _STOPPED, is_first)
                rank = None


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"died of {Signals(-code).name}"
    except ValueError:
        return f"died of signal {-code}"
