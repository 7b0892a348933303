"""Judge a job that runs now, by the positions of its ranks.

Stacks name a rank that isn't in a call of torch.distributed, or is in a different call from most.
If all ranks wait at one line, stacks can't tell which of them is behind.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from distdemo.calls.match.rules import KINDS
from distdemo.calls.match.shown import merged
from distdemo.calls.records import Finding, Row, SourceLine
from distdemo.encoding import decode, dumps, encode, loads
from distdemo.errors import UsageError
from distdemo.files import MAX_BYTES
from distdemo.launcher.verdict import ranks_of
from distdemo.postmortem.processes import MAX_RANKS, LiveJob
from distdemo.postmortem.records import LiveNode, LiveRank, LiveThread, RankCalls, Unread, WaitsFor
from distdemo.postmortem.stacks import look_at
from distdemo.view.format import plural, some

MARK = '"live_version"'
"""Text that the file of a node has."""
MAX_ROWS = 24
MAX_TEXT = 5_000  # characters of a path
UNPAIRED = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "wait()", "wait_tensor")
"""Functions in which ranks may rightly be while others are in another one."""
IN_THREAD: tuple[WaitsFor, ...] = ("", "lock", "queue", "event")
"""Things that a main thread may wait for while another thread of its rank is in a call."""
WAITS: dict[WaitsFor, str] = {
    "": "in C or C++",
    "ranks": "in {}",
    "lock": "waiting for a lock",
    "queue": "waiting for a queue",
    "pipe": "waiting for a pipe",
    "file": "waiting for a file system",
    "file lock": "waiting for a lock on a file",
    "terminal": "waiting for a terminal",
    "socket": "waiting for a connection",
    "event": "waiting for a connection, a pipe or a timer",
    "child": "waiting for a child process",
    "debugger": "in a debugger",
    "loader": "waiting for its data loader",
    "sleep": "sleeping",
    "nothing": "running",
}
"""Activity of a thread, in words."""
TAKES_LONG = "All this is of one moment: a rank that only takes long may still come."
OTHER_CALL = (
    "Ranks may be in different calls if these are on different groups, which stacks don't show; "
    "a recorder does."
)
UNREAD: dict[Unread, tuple[str, str]] = {
    "no py-spy": (
        "py-spy is not installed",
        "Install it into the environment of distdemo: pip install py-spy.",
    ),
    "another user": (
        "the process belongs to another user",
        "Ask that user, or run this as root.",
    ),
    "ptrace scope": (
        "kernel.yama.ptrace_scope forbids it",
        "Run this as root (sudo), or have root set kernel.yama.ptrace_scope to 0.",
    ),
    "denied": (
        "the kernel denies it",
        "Run this as root on the host, or give the container the capability SYS_PTRACE.",
    ),
    "ended": (
        "the process has ended",
        "The output of its ranks says how: distdemo postmortem FOLDER.",
    ),
    "failed": (
        "py-spy failed",
        "Run it again; py-spy dump --nonblocking --pid PID says more.",
    ),
}
"""Reasons why a stack can't be read, in words, and what to do."""


def look(job: LiveJob, *, needs_stacks: bool = True, notes: Sequence[str] = ()) -> LiveNode:
    """Return where the ranks of a job on this node are.

    Args:
        job: The job.
        needs_stacks: False if there are files of the job, which say more.
        notes: What else was tried, for the error.

    Raises:
        UsageError: No stack can be read.
    """
    host = socket.gethostname()
    ranks = look_at(job, host)
    unread = [rank for rank in ranks if rank.unread]
    if needs_stacks and len(unread) == len(ranks):
        why, hint = _why_unread(unread[0]), UNREAD[unread[0].unread][1]
        rows = "; ".join(f"{ranks_of(row.ranks).lower()} {row.did}" for row in rows_of(ranks))
        numbers = ranks_of(tuple(rank.rank for rank in ranks)).lower()
        known = f"All that could be read is what the kernel says: {rows}."
        if not any(rank.main.waits_for for rank in ranks):
            known = "The kernel doesn't say what they wait for, either."
        what = f"The stacks of {numbers} can't be read: {why}."
        raise UsageError(what, " ".join((known, *notes)), hint)
    return LiveNode(1, host, job.name, job.world_size, ranks, job.gone, job.is_ordered)


def node_text(node: LiveNode) -> str:
    """Return the content of the file of a node."""
    return dumps(encode(node, decodable=True)) + "\n"


def read_node(text: str) -> LiveNode:
    """Return what the file of a node has. It may come from anyone.

    Raises:
        ValueError: It isn't such a file.
    """
    node = decode(LiveNode, loads(text, max_bytes=MAX_BYTES))
    threads = [each for rank in node.ranks for each in (rank.main, *rank.others)]
    lines = [thread.source_line or SourceLine() for thread in threads]
    texts = [
        node.host,
        node.job,
        *(t for rank in node.ranks for t in (rank.host, rank.unread_text)),
    ]
    texts += [text for thread in threads for text in (thread.name, thread.what)]
    texts += [text for line in lines for text in (line.file, line.function)]
    if any(len(text) > MAX_TEXT for text in texts) or any(map(_is_long, lines)):
        raise ValueError("a text is too long")
    numbers = [*(r.rank for r in node.ranks), *node.gone, *node.called, node.world_size]
    if len(numbers) > 3 * MAX_RANKS or not all(0 <= number <= MAX_RANKS for number in numbers):
        raise ValueError("a rank is out of range")
    return node


def _is_long(line: SourceLine) -> bool:
    return bool(line.callers or line.inner[1:])


@dataclass(frozen=True, slots=True)
class LiveView:
    """Ranks of a job on all nodes that were looked at.

    Attributes:
        nodes: Nodes, each with its ranks.
        ranks: All ranks, in order.
        gone: Ranks that have no process.
        called: Ranks that made calls between two answers.
    """

    nodes: Sequence[LiveNode]
    ranks: tuple[LiveRank, ...] = field(init=False)
    gone: tuple[int, ...] = field(init=False)
    called: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        ranks = sorted((r for node in self.nodes for r in node.ranks), key=lambda r: r.rank)
        object.__setattr__(self, "ranks", tuple(ranks))
        here = {rank.rank for rank in ranks}
        gone = {number for node in self.nodes for number in node.gone} - here
        object.__setattr__(self, "gone", tuple(sorted(gone)))
        called = {number for node in self.nodes for number in node.called}
        object.__setattr__(self, "called", tuple(sorted(called)))

    def check(self) -> None:
        """Raise `UsageError` if the nodes are of several jobs."""
        counts = Counter(rank.rank for rank in self.ranks)
        if len({node.job for node in self.nodes}) > 1 or max(counts.values(), default=1) > 1:
            jobs = some([*dict.fromkeys(f"{node.job} on {node.host}" for node in self.nodes)])
            raise UsageError(
                "The files of --live are of several jobs.",
                f"They are of {jobs}.",
                "Write the files of each job into another folder.",
            )

    @property
    def job(self) -> str:
        """Name of the job, and its hosts."""
        hosts = some([*dict.fromkeys(node.host for node in self.nodes)])
        return f"job {self.nodes[0].job} on {hosts}" if self.nodes else ""

    @property
    def world_size(self) -> int:
        """Number of ranks; that of the ranks seen if no node knows it."""
        seen = [rank.rank + 1 for rank in self.ranks]
        return max([*seen, *(node.world_size for node in self.nodes)], default=0)

    @property
    def is_running(self) -> bool:
        """True if ranks made calls or moved, or if none is blocked, as far as is known."""
        if self.called or self.moved:
            return True
        return all(_call(rank).waits_for in ("nothing", "sleep") for rank in self.ranks)

    @property
    def waiting(self) -> list[LiveRank]:
        """Ranks that wait for others in a call."""
        return [rank for rank in self.ranks if _call(rank).waits_for == "ranks"]

    @property
    def unseen(self) -> tuple[int, ...]:
        """Ranks that no node has."""
        known = {*(rank.rank for rank in self.ranks), *self.gone}
        return tuple(rank for rank in range(self.world_size) if rank not in known)

    def notes(self) -> Iterator[str]:
        """Yield what was inferred or is unknown."""
        if any(node.is_ordered for node in self.nodes):
            yield (
                "The ranks' numbers are inferred from the order in which their processes started."
            )
        unread = [rank for rank in self.ranks if rank.unread]
        for why in dict.fromkeys(map(_why_unread, unread)):
            ranks = tuple(rank.rank for rank in unread if _why_unread(rank) == why)
            yield f"No stack of {ranks_of(ranks).lower()}: {why}."
        if self.gone and not self.waiting:
            yield f"{ranks_of(self.gone)} {_has(self.gone)} no process."
        if self.unseen:
            yield (
                f"{ranks_of(self.unseen)} {_has(self.unseen)} no process here. With several nodes, "
                "run this on each with -o FOLDER, then: distdemo postmortem FOLDER."
            )

    def findings(self) -> Iterator[Finding]:
        """Yield the finding that stacks allow, at most one."""
        waiting = self.waiting
        if not waiting or self.is_running:
            return
        others = tuple(rank.rank for rank in waiting)
        if self.gone:
            what = f"{ranks_of(self.gone)} {_has(self.gone)} no process, and {_who(waiting)}."
            row = Row(self.gone, "has no process")
            rows = (*rows_of(self.ranks), row)
            yield Finding("died", what, rows, "", KINDS["died"].rule, self.gone, others)
            return
        apart = [rank for rank in self.ranks if rank.main.waits_for and not rank.unread]
        apart = [rank for rank in apart if rank not in waiting]
        if apart:
            ranks = tuple(rank.rank for rank in apart)
            same = {_did(rank.main) for rank in apart}
            did = f" {_are(ranks)} {_did(apart[0].main)}," if len(same) == 1 else " are"
            what = f"{ranks_of(ranks)}{did} outside torch.distributed, and {_who(waiting)}."
            rows = (*rows_of(waiting), *rows_of(apart))
            yield Finding(
                "stuck", what, rows, "", f"{KINDS['stuck'].rule} {TAKES_LONG}", ranks, others
            )
            return
        yield from self._different_calls(waiting)

    def _different_calls(self, waiting: Sequence[LiveRank]) -> Iterator[Finding]:
        counts = Counter(_call(rank).what for rank in waiting)
        if len(counts) < 2 or any(op in UNPAIRED for op in counts):
            return
        (usual, most), (_, second), *_ = counts.most_common(2)
        few = [rank for rank in waiting if _call(rank).what != usual] if most > second else []
        ranks = tuple(rank.rank for rank in few)
        if ranks:
            which = _did(_call(few[0])) if len(counts) == 2 else "in other calls"
            what = f"{ranks_of(ranks)} {_are(ranks)} {which}, and all other ranks in {usual}."
        else:
            what = f"{ranks_of(tuple(r.rank for r in waiting))} are in different calls."
        rest = [rank for rank in waiting if rank not in few]
        rows = (*rows_of(rest), *rows_of(few))
        others = tuple(rank.rank for rank in rest) if ranks else ()
        yield Finding("call", what, rows, "", f"{KINDS['call'].rule} {OTHER_CALL}", ranks, others)

    @property
    def moved(self) -> tuple[int, ...]:
        """Ranks in a call that moved while the stacks were taken: the job isn't hung."""
        return tuple(rank.rank for rank in self.waiting if rank.moved)

    def stopped(self, *, has_calls: bool = False) -> str:
        """Return why stacks, and calls if there are any, name no rank: the rest of a sentence."""
        waiting = self.waiting
        if self.called:
            called = ranks_of(self.called).lower()
            return f"{called} made calls between two answers: the job isn't hung"
        if self.moved:
            moved = ranks_of(self.moved).lower()
            return f"{moved} moved while the stacks were taken: the job isn't hung"
        if not waiting:
            return "no rank waits for another one in torch.distributed"
        count = "all " + plural(len(waiting), "rank") if len(waiting) > 1 else "the only rank"
        if len(waiting) < self.world_size:
            count = ranks_of(tuple(rank.rank for rank in waiting)).lower()
        lines = {str(_call(rank).source_line or SourceLine()) for rank in waiting}
        where = f"at {lines.pop()}" if len(lines) == 1 else "in calls that may belong together"
        wait = "waits" if len(waiting) == 1 else "wait"
        who = "neither calls nor stacks" if has_calls else "stacks can't"
        return f"{count} {wait} {where}; {who} say who is behind"


def _call(rank: LiveRank) -> LiveThread:
    """Return the thread in which a rank waits for other ranks; the main one if none does."""
    if rank.main.waits_for in IN_THREAD:
        return next((each for each in rank.others if each.waits_for == "ranks"), rank.main)
    return rank.main


def add_lines(calls: RankCalls, rank: LiveRank) -> None:
    """Add the lines of a rank's stack to its calls: where it is, and where it made the last one."""
    calls.line = rank.main.source_line or calls.line
    here = _call(rank)
    if here.waits_for == "ranks" and here.source_line:
        calls.add_line(here.what, here.source_line)


def _why_unread(rank: LiveRank) -> str:
    """Return why the stack of a rank couldn't be read."""
    text, _ = UNREAD[rank.unread]
    return f"{text} ({rank.unread_text})" if rank.unread_text else text


def _has(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _who(waiting: Sequence[LiveRank]) -> str:
    """Return ``ranks 0, 2, 3 are waiting in all_reduce``."""
    names = dict.fromkeys(_call(rank).what for rank in waiting)
    ranks = tuple(rank.rank for rank in waiting)
    return f"{ranks_of(ranks).lower()} {_are(ranks)} waiting in {some([*names])}"


def _are(ranks: Sequence[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _did(thread: LiveThread) -> str:
    """Return what a thread does."""
    text = WAITS[thread.waits_for].format(thread.what)
    return f"{text}, {thread.what}" if thread.what and thread.waits_for != "ranks" else text


def rows_of(ranks: Sequence[LiveRank]) -> list[Row]:
    """Return rows of what ranks and their other threads do; equal ones are merged."""
    rows = []
    for rank in ranks:
        did = _did(rank.main)
        if rank.unread and not rank.main.waits_for:
            did = "can't be read"
        rows.append(Row((rank.rank,), did, rank.main.source_line))
        for other in rank.others:
            who = "its worker" if other.pid != rank.pid else f"its thread {other.name}".rstrip()
            if rank.main.waits_for != "ranks" or other.waits_for == "ranks":
                rows.append(Row((rank.rank,), f"{who}: {_did(other)}", other.source_line))
    return merged(rows)[:MAX_ROWS]
