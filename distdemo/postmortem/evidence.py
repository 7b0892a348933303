"""Calls of a job's ranks by group and number, and the ends of the ranks.

Every format is read into `Dump`, one per rank. Calls are numbers in a table and each rank's calls
are arrays, because a job can have thousands of ranks with thousands of calls each.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from distdemo.calls.records import Call, SourceLine

SCHEDULED, STARTED, COMPLETED, ENDED = range(4)
"""States of a call. ENDED: it has completed or failed, and the backend doesn't say which."""
MAX_CALLERS = 3  # lines that are kept around a source line
GroupKey = tuple[str, str, tuple[int, ...]]
"""Name, description and members of a group; no members if the format lacks them."""
_TORCH = re.compile(r"(?:^|(?:site|dist)-packages/|/pytorch/)(?:torch|torchcomms)/")
_PACKAGE = re.compile(r"(?:site|dist)-packages/")
_LIBRARY = re.compile(r"^<(?!cell )|/lib(?:64)?/python3[^/]*/|^(?:threading|runpy|selectors)\.py$")
_OURS = re.compile(r"(?:^|/)distdemo/")


@dataclass(slots=True)
class Track:
    """Calls of one rank in one group, numbered without gaps.

    Attributes:
        first: Number of the first known call.
        calls: Index of each call in a table of calls.
        states: State of each call.
        orders: Number of calls that the rank had made before, in all groups.
        created: Time of each call in ns since 1970; 0 if unknown.
    """

    first: int
    calls: array[int] = field(default_factory=lambda: array("I"))
    states: bytearray = field(default_factory=bytearray)
    orders: array[int] = field(default_factory=lambda: array("I"))
    created: array[int] = field(default_factory=lambda: array("q"))

    @property
    def reached(self) -> int:
        """Number of the last call."""
        return self.first + len(self.calls) - 1

    def add(self, call: int, state: int, order: int, created: int = 0) -> None:
        """Append a call."""
        self.calls.append(call)
        self.states.append(state)
        self.orders.append(order)
        self.created.append(created)


@dataclass(frozen=True, slots=True)
class Pair:
    """Send or receive that hasn't completed.

    Attributes:
        call: Index in a table of calls.
        peer: Group rank of the peer.
        order: Number of calls that the rank had made before.
    """

    group: GroupKey
    call: int
    sends: bool
    peer: int
    order: int


@dataclass(slots=True)
class Dump:
    """Calls of one rank, from one file.

    Attributes:
        source: Format, ``dump``.
        backend: ``nccl``, ``gloo``; empty if unknown.
        library: Version of the communication library, or empty.
        is_complete: True if it lists the latest calls of all groups.
        calls: Table of calls.
        tracks: Calls by group.
        groups: Groups that the rank is in, also without calls.
        pairs: Sends and receives that haven't completed.
        limit_s: Time limit of a call; 0 if unknown.
    """

    source: str = "dump"
    backend: str = ""
    library: str = ""
    is_complete: bool = False
    calls: list[Call] = field(default_factory=list)
    tracks: dict[GroupKey, Track] = field(default_factory=dict)
    groups: list[GroupKey] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    limit_s: float = 0.0

    @property
    def has_lines(self) -> bool:
        """True if some call has a source line."""
        return any(call.source_line.line for call in self.calls)


@dataclass(frozen=True, slots=True)
class End:
    """End of a rank.

    Attributes:
        rank: Global rank.
        how: ``raised ValueError: bad``, ``died of SIGKILL``.
        source_line: Source line, or empty.
        is_consequence: True if it only lost a peer, timed out or was stopped.
        is_first: True if the launcher named it as the first failure.
        is_vague: True if it may be a consequence: an exit code that a lost connection also gives.
        pid: Number of its process; 0 if unknown.
    """

    rank: int
    how: str
    source_line: str = ""
    is_consequence: bool = False
    is_first: bool = False
    is_vague: bool = False
    pid: int = 0


@dataclass(eq=False, slots=True)
class Group:
    """Process group.

    Attributes:
        name: Name that torch gave it.
        desc: Description by the user, or empty.
        members: Global ranks in group order.
        is_inferred: True if no file has the members.
        tracks: Calls by global rank.
        reached: Number of each rank's last call, where known.
        met: Number of the last call that all members must have made; 0 if unknown.
    """

    name: str
    desc: str
    members: tuple[int, ...]
    is_inferred: bool
    tracks: dict[int, Track] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    met: int = 0

    @property
    def is_default(self) -> bool:
        """True for the group of all ranks that init_process_group creates."""
        return self.desc == "default_pg" or (self.name == "0" and not self.desc)


class Evidence:
    """Everything that was read about one job.

    Attributes:
        calls: Table of all ranks' calls.
        dumps: Ranks with calls, and the formats these are from.
        groups: Groups of the job.
        pairs: Sends and receives that haven't completed, by rank, with global peers.
        ends: How ranks ended, by their own messages.
        unplaced: Ends that no line gives a rank.
        unknown: Files and folders with logs of ranks that no line names.
        exits: Exit codes and signals, by rank.
        out_of_memory: Processes that the kernel killed because memory ran out.
        stopped: Ranks that had not failed before the launcher stopped them.
        silent: Ranks whose log is empty.
        stands: Source line and collective of ranks whose stack was dumped.
        backends: Backends and library versions.
        notes: Facts for the report.
        world_size: Number of ranks.
        limit_s: Longest time limit of a call.
        older: Ranks whose dump is from before the end of calls that other ranks' dumps have.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.dumps: dict[int, set[str]] = {}
        self.groups: list[Group] = []
        self.pairs: dict[int, list[tuple[Group, Pair]]] = {}
        self.ends: list[End] = []
        self.unplaced: list[End] = []
        self.unknown: dict[str, None] = {}
        self.exits: dict[int, End] = {}
        self.out_of_memory: set[int] = set()
        self.stopped: set[int] = set()
        self.silent: set[int] = set()
        self.stands: dict[int, tuple[SourceLine, str]] = {}
        self.backends: dict[str, None] = {}
        self.notes: list[str] = []
        self.world_size = 0
        self.limit_s = 0.0
        self.older: tuple[int, ...] = ()
        self._index: dict[object, int] = {}
        self._named: dict[str, list[Group]] = {}
        self._pairs: list[tuple[int, Pair]] = []
        self._complete: set[int] = set()

    def add(self, rank: int, dump: Dump) -> None:
        """Add the calls of one rank. Calls that an earlier file of the rank has stay."""
        numbers = [self._number(call) for call in dump.calls]
        self.dumps.setdefault(rank, set()).add(dump.source)
        self.backends.update(
            dict.fromkeys(filter(None, (f"{dump.backend} {dump.library}".strip(),)))
        )
        self.limit_s = max(self.limit_s, dump.limit_s)
        if dump.is_complete:
            self._complete.add(rank)
        for key in (*dump.groups, *dump.tracks):
            self._group(key)
        for key, track in dump.tracks.items():
            group = self._group(key)
            if rank not in group.tracks:
                track.calls = array("I", [numbers[each] for each in track.calls])
                group.tracks[rank] = track
        for pair in dump.pairs:
            self._group(pair.group)
            self._pairs.append(
                (rank, Pair(pair.group, numbers[pair.call], pair.sends, pair.peer, pair.order))
            )

    def _number(self, call: Call) -> int:
        number = self._index.setdefault((call, call.source_line.stack), len(self.calls))
        if number == len(self.calls):
            self.calls.append(call)
        return number

    def _group(self, key: GroupKey) -> Group:
        """Return the group with this key; names are unique among groups with unknown members."""
        name, desc, members = key
        named = self._named.setdefault(name, [])
        for group in named:
            if (group.desc == desc or not (desc and group.desc)) and (
                group.members == members or not (members and group.members)
            ):
                group.members = group.members or members
                group.desc = group.desc or desc
                group.is_inferred = not group.members
                return group
        group = Group(name, desc, members, not members)
        self.groups.append(group)
        named.append(group)
        return group

    def infer(self) -> None:
        """Fill in the world size, members and counts that no file has; note what was inferred."""
        self._place_ends()
        known = {*self.dumps, *self.silent, *self.stands, *self.exits, *self.stopped}
        known.update(end.rank for end in self.ends)
        known.update(member for group in self.groups for member in group.members)
        default = [g for g in self.groups if g.is_default and not g.is_inferred]
        self.world_size = max(known, default=-1) + 1
        if not default and known:
            self.notes.append(
                f"The world size, {self.world_size}, is inferred from the highest rank."
            )
        inferred = [group for group in self.groups if group.is_inferred]
        for group in inferred:
            group.members = tuple(
                range(self.world_size) if group.is_default else sorted(group.tracks)
            )
        if any(not group.is_default for group in inferred):
            self.notes.append("The members of groups are inferred from the ranks that called them.")
        for group in self.groups:
            group.reached = {rank: track.reached for rank, track in group.tracks.items()}
            for rank in self._complete.intersection(group.members).difference(group.tracks):
                group.reached[rank] = 0
        for rank, pair in self._pairs:
            group = self._group(pair.group)
            if pair.peer < len(group.members):
                self.pairs.setdefault(rank, []).append((group, pair))
        older: set[int] = set()
        for group in self.groups:
            group.met = self._met(group, (COMPLETED, ENDED))
            ended = self._met(group, (ENDED,))  # NCCL also completes calls that it has aborted
            older.update(rank for rank, reached in group.reached.items() if reached < ended)
        self.older = tuple(sorted(older))

    def _place_ends(self) -> None:
        """Give each end without a rank to the only rank with its exit code, if there is one."""
        named = {end.rank for end in self.ends}
        for verb, code in (("died", "died of SIGABRT"), ("raised", "exited with code 1")):
            ends = {end.how: end for end in self.unplaced if end.how.startswith(verb)}
            ranks = [r for r, end in self.exits.items() if end.how == code and r not in named]
            if len(ends) == len(ranks) == 1:
                (end,) = ends.values()
                self.unplaced = [each for each in self.unplaced if each.how != end.how]
                self.ends.append(replace(end, rank=ranks[0]))

    def _met(self, group: Group, states: Collection[int]) -> int:
        """Return the number of the last call that all members must have made; 0 if unknown.

        A call in one of these states can't have failed if the rank made another one afterwards.
        """
        met = 0
        for track in group.tracks.values():
            for index in range(len(track.calls) - 2, max(-1, met - track.first), -1):
                if track.states[index] in states and synchronises(self.calls[track.calls[index]]):
                    met = track.first + index
                    break
        return met


def synchronises(call: Call) -> bool:
    """Return True if no rank completes the call before all members have made it."""
    return call.op != "" and call.rules.data == "all to all"


def source_line(frames: Iterable[tuple[str, int, str]]) -> tuple[SourceLine, str]:
    """Return the user's line of a stack, and the name of the torch function that it called.

    Args:
        frames: File, line and function of each frame, innermost first.
    """
    inner: list[SourceLine] = []
    found: list[SourceLine] = []
    torch: SourceLine | None = None
    for file, line, function in frames:
        each = SourceLine(file, line, function)
        if _TORCH.search(file):
            wraps = function.rpartition(".")[2] == "wrapper"
            if not (found or inner) and "distributed" in file and not wraps:
                torch = each
        elif _OURS.search(file) or (_LIBRARY.search(file) and not _PACKAGE.search(file)):
            continue
        elif _PACKAGE.search(file):
            if not found:
                inner.append(each)
        else:
            found.append(each)
            if len(found) > MAX_CALLERS:
                break
    called = torch.function if torch is not None else ""
    if not found and inner:
        found, inner = inner[:1], []
    if not found:
        return SourceLine(within="" if torch is None else str(torch)), called
    callers = tuple(map(str, found[1:]))
    at = found[0]
    return SourceLine(
        at.file, at.line, at.function, "", "", tuple(map(str, inner)), callers
    ), called


def line_text(line: SourceLine) -> str:
    """Return a source line as text, with its caller if in another file; empty if unknown."""
    if not (line.line or line.within):
        return ""
    callers = [each for each in line.callers[:1] if not each.startswith(f"{line.name}:")]
    return ", from ".join((str(line), *callers))


def group_text(group: Group) -> str:
    """Return ``the default group``, or ``group "tp" [0-3]``."""
    from distdemo.view.format import ranks_text

    if group.is_default:
        return "the default group"
    name = "" if group.desc in ("", "undefined") else f'"{group.desc}" '
    return f"group {name}[{ranks_text(group.members)}]"


def call_text(call: Call) -> str:
    """Return ``all_reduce(float32[4])``, or the number of elements if the format has no shape."""
    if call.dtype or not call.count:
        return str(call) if call.dtype else call.op
    return f"{call.op}({call.count:,} elements)"
