"""Records of a post-mortem: what the files have, and the report. No torch, no Rich."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from signal import SIGINT, SIGTERM
from typing import Literal, NamedTuple

from distdemo.calls.flight.entries import CallState
from distdemo.calls.records import CallCount, Finding, RankCall, SourceLine


class GroupId(NamedTuple):
    """Name, description and members of a group; logs have no members."""

    name: str
    desc: str = ""
    members: tuple[int, ...] = ()

    @property
    def is_default(self) -> bool:
        """True for the group of all ranks that init_process_group creates."""
        return self.desc == "default_pg" or (self.name == "0" and not self.desc)


class PastCall(NamedTuple):
    """Call of a rank, with its number in the group; 0 for a send or receive."""

    group: GroupId
    number: int
    call: RankCall
    state: CallState


@dataclass(slots=True)
class RankCalls:
    """Calls of one rank, in their order.

    Attributes:
        backend: ``nccl``, ``gloo``; empty if unknown.
        library: Version of the communication library, or empty.
        is_dump: True if it has the latest calls of all groups; a log has those that it names.
        groups: Groups of the rank, also those without calls.
        calls: The calls.
        times: Times of the first and the last call, in ns since 1970; 0 if unknown.
        line: Source line at which the rank is, if its stack was dumped.
    """

    backend: str = ""
    library: str = ""
    is_dump: bool = False
    groups: list[GroupId] = field(default_factory=list)
    calls: list[PastCall] = field(default_factory=list)
    times: tuple[int, int] = (0, 0)
    line: SourceLine | None = None

    def add_line(self, function: str, line: SourceLine) -> None:
        """Set the line of the last call, if it has none and the rank is in this function."""
        if not self.calls:
            return
        last = self.calls[-1]
        if not last.call.source_line.line and function in (last.call.op, "backward()"):
            self.calls[-1] = last._replace(call=replace(last.call, source_line=line))


@dataclass(frozen=True, slots=True)
class RankEnd:
    """End of a rank, as a log reports it.

    Attributes:
        kind: An exception of Python that was raised, or one of C++ that was thrown; a call that
            timed out; a process that doesn't answer NCCL; or an exit.
        text: The exception, ``ValueError: bad``; the call; or the process.
        code: Exit code, or the negative signal.
        source_line: Source line, or None.
        is_consequence: True if the rank only lost a peer, timed out or was stopped.
        lost_peer: True if the exception says so.
        timed_out: True if the exception says so, or a call timed out.
    """

    kind: Literal["raised", "thrown", "timed out", "silent", "exited"]
    text: str = ""
    code: int = 0
    source_line: SourceLine | None = None
    is_consequence: bool = False
    lost_peer: bool = False
    timed_out: bool = False

    @property
    def is_vague(self) -> bool:
        """True if it may be a consequence: an exit code that a lost connection gives, too."""
        return self.code in (1, -SIGINT, -SIGTERM)


WaitsFor = Literal[
    "",
    "ranks",
    "lock",
    "queue",
    "pipe",
    "file",
    "file lock",
    "terminal",
    "socket",
    "event",
    "child",
    "debugger",
    "loader",
    "sleep",
    "nothing",
]
"""Thing that a thread waits for: the other ``ranks``, in a function of torch.distributed or in
backward; an ``event`` of a socket, a pipe or a timer; ``nothing`` if it runs; empty if unknown."""


Unread = Literal["", "no py-spy", "another user", "ptrace scope", "denied", "ended", "failed"]
"""Reason why a stack couldn't be read; empty if it was."""


@dataclass(frozen=True, slots=True)
class LiveThread:
    """Position of a thread that exists now.

    Attributes:
        pid: Its process: the rank, or a worker of the rank's data loader.
        name: Name of the thread, ``MainThread``; empty if its stack wasn't read.
        waits_for: What it waits for.
        what: That by name: function of torch.distributed, path of the file, or child process.
        source_line: Innermost line of the user's code, or None.
    """

    pid: int
    name: str = ""
    waits_for: WaitsFor = ""
    what: str = ""
    source_line: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class LiveRank:
    """Rank that runs now.

    Attributes:
        rank: Global rank.
        pid: Its process.
        host: Its host.
        main: Its main thread.
        others: Its other threads, and workers of its data loader, that are in the user's code.
        unread: Reason why its stack couldn't be read.
        unread_text: What py-spy or the system says of that, or empty.
        moved: True if its main thread moved while the stacks were taken.
    """

    rank: int
    pid: int
    host: str
    main: LiveThread
    others: tuple[LiveThread, ...] = ()
    unread: Unread = ""
    unread_text: str = ""
    moved: bool = False


@dataclass(frozen=True, slots=True)
class LiveNode:
    """Ranks of a job on this node: the file that ``--live --output`` writes.

    Attributes:
        live_version: Version of this format.
        host: Name of the node.
        job: ``MASTER_ADDR:MASTER_PORT``, or the process that started the ranks.
        world_size: Number of ranks of the job; 0 if unknown.
        ranks: Its ranks.
        gone: Ranks that belong to this node and have no process.
        is_ordered: True if the ranks' numbers are inferred from the order of their start.
        called: Ranks that made calls between two answers, whether their stacks were read or not.
    """

    live_version: Literal[1]
    host: str
    job: str
    world_size: int
    ranks: tuple[LiveRank, ...]
    gone: tuple[int, ...] = ()
    is_ordered: bool = False
    called: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Postmortem:
    """Summary of the files that a job's ranks left behind, and the verdict.

    Attributes:
        source: Folder or files that were read.
        world_size: Number of ranks; 0 if unknown.
        files: Number of files by format, ``7 dumps``.
        backends: Backends with the version of their library, or hosts of recordings.
        absent: Ranks that left no calls.
        notes: What was inferred or is unknown, and which files were skipped.
        calls: Calls with their counts.
        findings: Findings, the most important first.
        warnings: Possible errors.
        stopped: Reason why errors may have been missed, or empty.
        has_recorder: False if there are only logs or stacks, which name no call.
        live: Ranks that ran when ``--live`` looked at them, and where they were.
    """

    source: str
    world_size: int
    files: tuple[str, ...]
    backends: tuple[str, ...]
    absent: tuple[int, ...]
    notes: tuple[str, ...]
    calls: tuple[CallCount, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...] = ()
    stopped: str = ""
    has_recorder: bool = True
    live: tuple[LiveRank, ...] = ()

    @property
    def ok(self) -> bool:
        """True if everything was compared and nothing is wrong."""
        return not (self.findings or self.stopped)
