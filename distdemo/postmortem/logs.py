"""Read logs of ranks: the NCCL watchdog's messages, tracebacks and torchrun's table of failures.

Messages: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp of torch 2.0 and later, and
torch/distributed/elastic/multiprocessing/errors/__init__.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from signal import SIGINT, SIGTERM, Signals

from distdemo.calls.records import UNKNOWN_CALL, PartialCall, SourceLine
from distdemo.launcher.verdict import lost_peer
from distdemo.postmortem.content import CallState, Content, Dump, End, GroupName, Writer, lines
from distdemo.postmortem.dumps import OPS
from distdemo.postmortem.stacks import line_text, source_line
from distdemo.view.foreign import one_line

MAX_ENDS = 10_000  # errors in one file
MAX_OPEN = 1000  # calls after the one that timed out
MAX_CHARS = 200  # of an exception
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
        status: Timed-out, last enqueued and last completed call, by group.
        stack: Frames of the traceback that is being read.
        thrown: Type of the C++ exception that is being read, or empty.
        limit_ms: Time limit of a call.
    """

    def __init__(self) -> None:
        self.timeouts: dict[int, PartialCall] = {}
        self.status: dict[GroupName, tuple[int, int, int]] = {}
        self.stack: list[tuple[str, int, str]] | None = None
        self.thrown = ""
        self.limit_ms = 0

    def read_error(self, line: str) -> End | None:
        """Read a line of an exception, of Python or C++; return the end of the rank if complete."""
        if thrown := _THROWN.match(line):
            self.thrown = thrown[1]
        elif self.thrown and (what := _WHAT.match(line)):
            sizes = f" ({what[1]})" if what[1] else ""
            end = _end("died of", f"{self.thrown}: {what[2].rstrip('.')}{sizes}", "")
            self.thrown = ""
            return end
        elif line.startswith("Traceback (most recent call last)"):
            self.stack = []
        elif self.stack is not None and (frame := _FRAME.match(line)):
            self.stack.append((frame[1], int(frame[2]), frame[3]))
        elif self.stack is not None:
            error, _, message = line.partition(": ")
            error = error.rpartition(".")[2]
            if _NAME.fullmatch(error) and _ERROR.search(error):
                place, _ = source_line(reversed(self.stack))
                self.stack = None
                return _end("raised", f"{error}: {message}".rstrip(": "), line_text(place))
        return None

    def dump(self) -> Dump:
        """Return the calls of one rank: the last that completed, and those after it."""
        dump = Dump("nccl", limit_s=self.limit_ms / 1000)
        first_number = min(self.timeouts, default=0)
        default = {("0", "", ()): (first_number, first_number, first_number - 1)}
        for group, (number, enqueued, completed) in (self.status or default).items():
            first = completed if 0 < completed < number <= completed + MAX_OPEN else number
            for each in range(first, min(max(enqueued, number), first + 2 * MAX_OPEN) + 1):
                call = dump.number(self.timeouts.get(each, UNKNOWN_CALL))
                state = CallState.COMPLETED if each <= completed else CallState.STARTED
                dump.add(group, each, call, state)
        return dump


def read_log(text: str) -> Content:
    """Return what a log has.

    Raises:
        ValueError: It has too many errors.
    """
    content = Content("log")
    messages: dict[Writer, _Messages] = defaultdict(_Messages)
    for whole_line in lines(text):
        prefix = _PREFIX.match(whole_line)
        assert prefix is not None  # it matches the empty text
        line = whole_line[prefix.end() :]
        writer: Writer = ("file", 0)
        if prefix[2]:
            writer = "rank", int(prefix[2])
            if prefix[1]:
                content.hosts.add(("", writer[1] - int(prefix[1])))
        elif prefix[1]:
            writer = "local rank", int(prefix[1])
        if timeout := _TIMEOUT.search(line):
            named: Writer = ("message", int(timeout[1])) if writer[0] == "file" else writer
            number = int(timeout[2])
            op = timeout[3].lower()
            count = int(timeout[4]) if timeout[4] else -1
            call = PartialCall(OPS.get(op, op), SourceLine(), count=count)
            if number not in messages[named].timeouts:
                end = End(f"timed out in {call.op}", is_consequence=True)
                content.ends.append((named, end))
            messages[named].timeouts.setdefault(number, call)
            messages[named].limit_ms = int(timeout[5])
        elif status := _status(line):
            rank, group, numbers = status
            named = ("message", rank) if writer[0] == "file" else writer
            messages[named].status.setdefault(group, numbers)
        elif end_of_rank := messages[writer].read_error(line):
            content.ends.append((writer, end_of_rank))
        if len(content.ends) > MAX_ENDS:
            raise ValueError(f"it has more than {MAX_ENDS:,} errors")
    content.writers = set(messages)
    content.dumps = [(w, m.dump()) for w, m in messages.items() if m.timeouts or m.status]
    _read_table(text, content)
    content.out_of_memory = {int(pid) for pid in _OUT_OF_MEMORY.findall(text)}
    return content


def _status(line: str) -> tuple[int, GroupName, tuple[int, int, int]] | None:
    """Return the rank, group and call numbers in the watchdog's message on the last calls."""
    status = _STATUS.search(line)
    group = _GROUP.search(line) if status else None
    work = _WORK.search(line, group.end()) if group else None
    if not (status and group and work):
        return None
    group_name = (group[2] or group[1], group[3] or "", ())
    return int(group[4]), group_name, (int(work[1]), int(status[1]), int(status[2]))


def _end(verb: str, error: str, place: str) -> End:
    text = one_line(error)[:MAX_CHARS]
    is_consequence = lost_peer(text) or _CONSEQUENCE.search(text) is not None
    return End(f"{verb} {text}", place, is_consequence)


def _read_table(text: str, content: Content) -> None:
    """Add the failures in torchrun's table."""
    forced = {int(pid) for pid in _FORCED.findall(text)}
    for head, part in zip(_ROOT.finditer(text), _ROOT.split(text)[1:], strict=True):
        host = ""
        place = None
        for line in part.splitlines():
            if named := _HOST.match(line):
                host = named[1]
            elif match := _PLACE.match(line):
                place = match
            elif place and (match := _EXIT.match(line)) and int(match[1]):
                rank = int(place[1])
                if place[2]:
                    content.hosts.add((host, rank - int(place[2])))
                pid = int(match[2] or 0)
                code = -SIGTERM if pid in forced else int(match[1])
                is_first = head[0].startswith("Root")
                if code in STOPPED and not is_first:
                    content.stopped.add(rank)
                else:
                    end = End(_exit_text(code), is_exit=True, is_first=is_first, pid=pid)
                    content.ends.append((("rank", rank), end))
                place = None


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"died of {Signals(-code).name}"
    except ValueError:
        return f"died of signal {-code}"
