"""Compare the ranks' calls: pure logic over their notes, in any order of arrival.

The calls of a group form one sequence, and each member has its own position in it. Calls at the
same position must agree; calls that all members agreed on are only counted from then on. Sends and
receives are matched in order by group, sender, receiver and tag.
"""

from __future__ import annotations

import sys
from bisect import insort
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from typing import NamedTuple

from distdemo.calls.match.replicas import ReplicaCheck, StepCheck, drift_finding, shifted_finding
from distdemo.calls.match.rules import (
    KINDS,
    MEMBERS_ONLY,
    MISUSES,
    OWN_MEMORY,
    check_arguments,
    compare_parts,
    differs,
    lacking_in_nccl,
    majority,
)
from distdemo.calls.match.shifts import MAX_LINES, Lines, Stack
from distdemo.calls.notes import (
    AcceptNote,
    CallNote,
    DestroyNote,
    EndNote,
    GroupKey,
    MisuseNote,
    Note,
    NoWaitNote,
    ReplicaNote,
    ReturnNote,
    StopNote,
    WaitNote,
)
from distdemo.calls.records import Call, Finding, Kind, Row, SourceLine
from distdemo.launcher.verdict import lost_peer, ranks_of

FROM = ", from "  # separates a line from the line that called its function
MAX_PENDING = 10_000  # remembered calls per rank that were never waited for


@dataclass(eq=False, slots=True)
class Entry:
    """A call of one rank.

    Attributes:
        agreement: Values that must be equal on all ranks.
        accepted: True if torch can't reject it any longer.
        position: Position in the sequence of its group; meaningless for a send or receive.
        calls_there: Calls at that position; None for a send or receive.
        matched: True if the other side of the send or receive has arrived, known or not.
        other: Other side of the send or receive, if known.
        order: Number of calls that its rank made before it.
        waited: True if the rank waits or has waited for it.
        wrong: Problem of it, or of it and the other side.
        failed: True if it raised after it was made.
        step: Number of training steps before it; -1 if it reduces no gradients.
        started: False if the backend has enqueued it, and not started it.
        no_wait: True if the rank polled it until it was done, or took its future.
    """

    rank: int
    group: Group
    call: Call
    agreement: tuple[object, ...] = ()
    accepted: bool = False
    position: int = 0
    calls_there: Calls | None = None
    matched: bool = False
    other: Entry | None = None
    order: int = 0
    waited: bool = False
    wrong: Problem | None = None
    failed: bool = False
    step: int = -1
    no_wait: bool = False
    started: bool = True

    @property
    def sends(self) -> bool:
        """True for a send."""
        return self.call.rules.data == "to peer"

    @property
    def from_any(self) -> bool:
        """True for a receive from any rank: one sender is enough."""
        return self.call.peer == -1 and not self.sends


class Calls(dict[int, Entry]):
    """Calls at one position of a group, by rank.

    Attributes:
        unconfirmed: Number of these calls that torch may still reject.
    """

    __slots__ = ("unconfirmed",)

    def __init__(self) -> None:
        super().__init__()
        self.unconfirmed = 0


@dataclass(eq=False, slots=True)
class Group:
    """A process group and the sequence of its calls.

    Attributes:
        members: Global ranks of the members, in group order.
        backend: ``gloo``, or ``gloo/cpu`` if devices have different backends.
        nth: Number of earlier groups with the same members and backend.
        numbers: Group rank by global rank; empty if a member is outside the world.
        reached: Number of calls made, by rank.
        uneven: Positions at which the parts have different sizes.
        open: Calls that some members haven't made yet, oldest first.
        agreed: Number of calls that all members agreed on.
        internal: Number of these that aren't the program's own.
        last: Latest of these calls, by rank.
        lines: Lines and shapes of these calls.
        destroyed: How each rank destroyed the group.
        steps: Comparison of the ranks' training steps.
        replicas: Comparison of the ranks' tensors.
        label: Name to show instead of the members, or empty.
        first: Number of earlier calls, of which there are no notes.
        silent: Members without notes; nothing waits for them.
    """

    members: tuple[int, ...]
    backend: str
    nth: int
    numbers: dict[int, int]
    reached: dict[int, int]
    uneven: set[int] = field(default_factory=set)
    open: deque[Calls] = field(default_factory=deque)
    agreed: int = 0
    internal: int = 0
    last: dict[int, Call] = field(default_factory=dict)
    lines: Lines = field(default_factory=Lines)
    destroyed: dict[int, DestroyNote] = field(default_factory=dict)
    steps: StepCheck = field(default_factory=StepCheck)
    replicas: ReplicaCheck = field(default_factory=ReplicaCheck)
    label: str = ""
    first: int = 0
    silent: frozenset[int] = frozenset()

    def begin(self, first: int, silent: Collection[int], label: str) -> None:
        """Start at a later call, without these members, and with this name."""
        self.label = label
        self.first = first
        self.agreed = first
        self.numbers = {rank: number for number, rank in enumerate(self.members)}
        self.silent = frozenset(silent)
        for rank in self.members:
            self.reached[rank] = sys.maxsize if rank in self.silent else first

    @property
    def size(self) -> int:
        """Number of members with notes."""
        return len(self.members) - len(self.silent)

    def name(self, world_size: int) -> str:
        """Return ``the default group``, or the members as text."""
        if self.label:
            return self.label
        if self.members == tuple(range(world_size)) and self.nth == 0:
            return "the default group"
        more = f" (number {self.nth + 1} with these ranks)" if self.nth else ""
        return f"group {list(self.members)}{more}"

    def number(self, position: int) -> int:
        """Return the number of a call that isn't agreed on, counting the program's own from 1."""
        before = (calls for calls in islice(self.open, position - self.agreed) if calls)
        internal = sum(next(iter(calls.values())).call.rules.internal for calls in before)
        return position + 1 - self.internal - internal


Position = tuple[Group, int]
"""A group and an index in its sequence of calls."""


@dataclass(eq=False, slots=True)
class Problem:
    """Error of one rank, or of a send and a receive.

    Attributes:
        entry: Call that has the error, or None.
        order: Number of calls that the rank made before.
        settled: Ranks that can't change it.
    """

    finding: Finding
    rank: int
    order: int
    entry: Entry | None = None
    settled: tuple[int, ...] = ()


class Channel(NamedTuple):
    """Key of the sends and receives that can be paired.

    Attributes:
        sender: Group rank of the sender, or −1 for any.
        receiver: Group rank of the receiver.
        tag: Tag of the message; 0 for NCCL, which has no tags.
    """

    group: Group
    sender: int
    receiver: int
    tag: int


@dataclass(slots=True)
class Unpaired:
    """Unmatched sends and receives of a channel, oldest first."""

    sends: deque[Entry] = field(default_factory=deque)
    receives: deque[Entry] = field(default_factory=deque)

    def queue(self, entry: Entry) -> deque[Entry]:
        """Return the sends if this is a send, or else the receives."""
        return self.sends if entry.sends else self.receives


@dataclass(eq=False, slots=True)
class RankState:
    """State of one rank, according to its notes.

    Attributes:
        call_count: Number of calls so far.
        pending: Non-blocking calls that weren't waited for yet, by number.
        threads: Threads that have made calls, and the main thread, 0.
        others: True if it has threads that have made no call yet.
        waits: Call that each thread is in.
        last: Latest call.
        unconfirmed: Latest call of each thread while torch may still reject it.
        failed: Positions at which its call failed and the rank continued.
        lost: True if it failed because another rank did.
        ended: End of its program; None if it is running or failed because another rank did.
        refused: Problem of its latest call, which raised immediately; the rank may handle that.
        waited: Number of the latest call that it has waited for; -1 for none.
    """

    call_count: int = 0
    pending: dict[int, Entry] = field(default_factory=dict)
    threads: set[int] = field(default_factory=lambda: {0})
    others: bool = False
    waits: dict[int, Entry] = field(default_factory=dict)
    last: Call | None = None
    unconfirmed: dict[int, Entry] = field(default_factory=dict)
    failed: set[tuple[Group, int]] = field(default_factory=set)
    lost: bool = False
    ended: EndNote | None = None
    refused: Problem | None = None
    waited: int = -1

    @property
    def over(self) -> bool:
        """True if its program has ended."""
        return self.lost or self.ended is not None

    @property
    def blocked(self) -> list[Entry]:
        """Calls that block the rank; empty while one of its threads is doing something else."""
        return list(self.waits.values()) if self.threads <= self.waits.keys() else []


class Matcher:
    """Compares the calls of all ranks.

    Attributes:
        ranks: State of each rank.
        stopped: Reason why the comparison has stopped, or empty.
        found: Problems, and positions at which calls differ.
        stacks: Lines inside and outside each source line, by file and line.
        nccl: True if every group must keep NCCL's rules.
        has_replicas: True if ranks have compared tensors that must be equal.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.ranks = [RankState() for _ in range(world_size)]
        self.stopped = ""
        self.nccl = False
        self.has_replicas = False
        self.found: list[Problem | Position] = []
        self.stacks: defaultdict[tuple[str, int], set[Stack]] = defaultdict(set)
        self.groups: dict[GroupKey, Group] = {}
        self._channels: dict[Channel, Unpaired] = {}
        self._paired: set[SourceLine] = set()
        self._severed: defaultdict[MisuseNote, set[int]] = defaultdict(set)

    def group(self, members: tuple[int, ...], backend: str, nth: int) -> Group:
        """Return the group with this key; create it the first time."""
        group = self.groups.get((members, backend, nth))
        if group is None:
            known = all(0 <= member < self.world_size for member in members)
            numbers = {rank: number for number, rank in enumerate(members)} if known else {}
            group = Group(members, backend, nth, numbers, dict.fromkeys(members, 0))
            self.groups[members, backend, nth] = group
        return group

    @property
    def open_calls(self) -> int:
        """Number of calls that some other rank hasn't made yet."""
        collectives = sum(len(group.open) for group in self.groups.values())
        pairs = self._channels.values()
        return collectives + sum(len(each.sends) + len(each.receives) for each in pairs)

    def stop(self, why: str) -> None:
        """Stop comparing, for this reason unless there is an earlier one."""
        self.stopped = self.stopped or why

    def line(self, line: SourceLine) -> str:
        """Return a source line as text, with the lines that tell it apart.

        Callers are added up to the first that differs, or one if it is in another file.
        """
        inner, outer = zip(*{line.stack, *self.stacks.get((line.file, line.line), ())}, strict=True)
        depth = _first_difference(outer) + 1
        if not depth and line.callers and not line.callers[0].startswith(f"{line.name}:"):
            depth = 1
        at = _first_difference(inner)
        text = line.text(line.inner[:1] + (line.inner[at : at + 1] if at > 0 else ()))
        return FROM.join((text, *line.callers[:depth]))

    def rows(self, calls: Mapping[int, Call]) -> list[Row]:
        """Return one row per call and line, with the ranks that made it."""
        ranks = sorted(calls)
        return merged([Row((r,), str(calls[r]), self.line(calls[r].source_line)) for r in ranks])

    def add(self, rank: int, note: Note) -> Entry | None:
        """Process one note of a rank, and return the call that it is about, if any.

        Notes of one rank must arrive in order.
        """
        if self.stopped:
            return None
        state, entry = self.ranks[rank], None
        if isinstance(note, CallNote):
            self._accept(state, note.thread)
            state.threads.add(note.thread)
            state.waits.pop(note.thread, None)
            state.last, state.refused = note.call, None
            entry = self._record_call(rank, note)
            if entry is not None:
                state.unconfirmed[note.thread] = entry
                if note.call.source_line.via:  # our kernels record no rejection
                    self._accept(state, note.thread)
            if entry is not None and note.call.sync:
                entry.waited = True
                state.waited = entry.order
                state.waits[note.thread] = entry
            elif entry is not None:
                state.pending[state.call_count] = entry
                if len(state.pending) > MAX_PENDING:
                    del state.pending[next(iter(state.pending))]
            state.call_count += 1
        elif isinstance(note, AcceptNote):
            state.others = note.others
            self._accept(state, note.thread)
        elif isinstance(note, WaitNote):
            entry, state.others = state.pending.pop(note.number, None), note.others
            self._accept(state, note.thread)
            if entry is not None:
                entry.waited = True
                state.waited = max(state.waited, entry.order)
                state.waits[note.thread] = entry
        elif isinstance(note, NoWaitNote):
            entry = state.pending.get(note.number)
            if entry is not None:
                entry.no_wait = True
        elif isinstance(note, ReturnNote):
            entry = self._record_return(state, note)
        elif isinstance(note, MisuseNote):
            self._report_misuse(rank, note)
        elif isinstance(note, ReplicaNote):
            self._check_replicas(rank, note)
        elif isinstance(note, DestroyNote):
            for key in note.groups:
                self.group(*key).destroyed.setdefault(rank, note)
            for thread, entry in list(state.unconfirmed.items()):
                if rank in entry.group.destroyed:
                    self._accept(state, thread)
        elif isinstance(note, StopNote):
            self.stop(f"rank {rank}: {note.why}")
        else:
            self._record_end(state, note)
        return entry

    def _record_end(self, state: RankState, note: EndNote) -> None:
        self.accept_all(state)
        if lost_peer(note.how):  # it was waiting for a rank that failed
            state.lost = True
        else:
            state.ended = note
            state.waits.clear()
            last = state.last.source_line if state.last is not None else SourceLine()
            raised = note.source_line
            raised_there = (raised.file, raised.line) == (last.file, last.line)
            if state.refused is not None and (note.how.startswith("exited") or raised_there):
                self.found.append(state.refused)

    def accept_all(self, state: RankState) -> None:
        """Confirm the latest calls of a rank that has ended: torch hasn't rejected them."""
        for thread in list(state.unconfirmed):
            self._accept(state, thread)

    def _accept(self, state: RankState, thread: int) -> None:
        """Confirm the latest call of a thread: torch hasn't rejected it."""
        entry = state.unconfirmed.pop(thread, None)
        if entry is None:
            return
        entry.accepted = True
        if entry.calls_there is not None:
            entry.calls_there.unconfirmed -= 1
            if not entry.calls_there.unconfirmed:
                self._agree(entry.group)

    def _record_return(self, state: RankState, note: ReturnNote) -> Entry | None:
        entry = state.waits.pop(note.thread, None)
        if note.undone:
            entry = state.unconfirmed.pop(note.thread, None)
            if entry is not None:
                state.pending.pop(entry.order, None)
                self._undo(entry)
            return entry
        self._accept(state, note.thread)
        if entry is not None and note.failed:
            entry.failed = True
            if entry.call.peer is None:
                state.failed.add((entry.group, entry.position))
        elif entry is not None and entry.from_any and not entry.matched:
            self._resolve_sender(entry, note.source)
        return entry

    def _undo(self, entry: Entry) -> None:
        """Remove a call that torch rejected before making it."""
        group, rank, position = entry.group, entry.rank, entry.position
        if entry.wrong is not None and entry.wrong in self.found:
            self.found.remove(entry.wrong)
            self.ranks[rank].refused = entry.wrong
        if entry.call.peer is not None:
            channel, other = self._channel(entry), entry.other
            if other is None or channel is None:
                self._dequeue(entry)
                return
            other.matched, other.other, other.wrong = False, None, None
            self._enqueue(channel, other)
            self._pair_queued(channel)
            return
        group.reached[rank] -= 1
        calls_there = group.open[position - group.agreed]
        calls_there.pop(rank, None)
        calls_there.unconfirmed -= 1
        if (group, position) in self.found and differs(
            self.calls_at((group, position)), group.members
        ) is None:
            self.found.remove((group, position))

    # ---------------------------------------------------------------------------- collectives

    def _record_call(self, rank: int, note: CallNote) -> Entry | None:
        members, backend, nth = note.group
        call = note.call
        group = self.group(members, backend, nth)
        if rank not in group.numbers:
            return None  # a note of another world
        if call.op.startswith("outside "):
            self._report_non_member(rank, call)
            return None
        wrong = check_arguments(call, group.numbers[rank], len(members), backend)
        order = self.ranks[rank].call_count
        entry = Entry(rank, group, call, note.agreement, order=order, step=note.step)
        if self.nccl and wrong is None and (why := lacking_in_nccl(call)):
            wrong = "nccl", why
        if wrong is not None:
            found = self._argument_finding(rank, group, call, *wrong)
            entry.wrong = Problem(found, rank, entry.order, entry)
            self.found.append(entry.wrong)
        if call.peer is not None:
            self._match(entry)
            return entry
        for thread, other in list(self.ranks[rank].unconfirmed.items()):  # its other threads' calls
            if other.group is group:
                self._accept(self.ranks[rank], thread)
        entry.position = group.reached[rank]
        group.reached[rank] += 1
        index = entry.position - group.agreed
        while len(group.open) <= index:
            group.open.append(Calls())
        calls = group.open[index]
        at = (group, entry.position)
        if at not in self.found and self._clashes(entry, calls):
            self.found.append(at)
        calls[rank] = entry
        calls.unconfirmed += 1
        entry.calls_there = calls
        return entry

    def _agree(self, group: Group) -> None:
        """Drop the calls that all members agreed on."""
        while group.open and len(group.open[0]) == group.size:
            if group.open[0].unconfirmed or (group, group.agreed) in self.found:
                return
            self._drop_agreed(group)

    def _clashes(self, entry: Entry, others: Calls) -> bool:
        """Return True if a call doesn't match the other calls at its position."""
        first, call = next(iter(others.values()), entry), entry.call
        if first.agreement != entry.agreement:
            if not call.partial:
                return True
            calls = {other.agreement: (rank, other.call) for rank, other in others.items()}
            known = {**dict(calls.values()), entry.rank: call}
            return differs(known, entry.group.members) is not None
        if call.partial or not call.rules.parts:
            return False
        uneven, members = entry.group.uneven, entry.group.members
        if call.part is None or call.part != first.call.part:
            uneven.add(entry.position)  # every pair must be compared from now on
        if entry.position not in uneven:
            return False
        return any(
            compare_parts({each: other.call, entry.rank: call}, members) is not None
            for each, other in others.items()
        )

    def _drop_agreed(self, group: Group) -> None:
        """Drop the oldest open call, which all members agreed on."""
        entries = group.open.popleft()
        calls = {rank: entry.call for rank, entry in entries.items()}
        self._check_steps(group, entries)
        group.uneven.discard(group.agreed)
        group.lines.add(calls, group.number(group.agreed))
        if calls[min(calls)].rules.internal:
            group.internal += 1
        else:
            group.last = calls
        group.agreed += 1

    def _check_replicas(self, rank: int, note: ReplicaNote) -> None:
        group, self.has_replicas = self.group(*note.group), True
        if rank not in group.numbers:
            return
        drifted = group.replicas.compare(rank, note, group.reached[rank], len(group.members))
        if drifted is not None:
            found = drift_finding(note, *drifted, self.line(note.checksums.source_line))
            order = self.ranks[rank].call_count
            self.found.append(Problem(found, rank, order, settled=group.members))

    def _check_steps(self, group: Group, entries: Calls) -> None:
        steps = {rank: entry.step for rank, entry in entries.items()}
        if max(steps.values()) < 0:
            return
        shifted = group.steps.compare(steps)
        if shifted is not None:
            calls = {rank: entry.call for rank, entry in entries.items()}
            found = shifted_finding(shifted, steps, calls, self.line)
            entry = entries[found.ranks[0]]
            self.found.append(Problem(found, entry.rank, entry.order, entry))

    def first(self) -> Problem | Position | None:
        """Return the problem that comes first in the order of the ranks' calls."""

        def order(found: Problem | Position) -> tuple[int, int]:
            if isinstance(found, Problem):
                return found.order, found.rank
            return min((each.order, each.rank) for each in self.entries_at(found).values())

        return min(self.found, key=order, default=None)

    def shifts(self) -> list[Finding]:
        """Return warnings: severed gradients, and calls that may have matched the wrong call."""
        found = [self._severed_warning(*each) for each in self._severed.items()]
        for group in self.groups.values():
            opened = ({rank: entry.call for rank, entry in calls.items()} for calls in group.open)
            found += group.lines.warnings(group.name(self.world_size), opened, self.rows)
        return found

    def _severed_warning(self, note: MisuseNote, callers: set[int]) -> Finding:
        ranks, in_place = tuple(sorted(callers)), note.what == "severed"
        how = "a collective in place" if in_place else "the result of a collective"
        what = f"{ranks_of(ranks)}: a gradient ignores {how}."
        then = Row(ranks, "backward" if in_place else "uses the result", str(note.then))
        rows = Row(ranks, note.did, self.line(note.source_line)), then
        return Finding("severed", what, rows, "", KINDS["severed"].rule, ranks)

    def before(self, group: Group) -> str:
        """Return how many calls of the group all ranks agreed on, as text."""
        agreed, last = group.agreed - group.internal - group.first, group.last
        for position, calls in enumerate(group.open, group.agreed):
            if len(calls) < group.size or (group, position) in self.found:
                break
            if not calls[min(calls)].call.rules.internal:
                agreed, last = agreed + 1, {rank: entry.call for rank, entry in calls.items()}
        if not last:
            return ""
        count = f"on {agreed} calls; the last was" if agreed > 1 else "on one call,"
        lines = {rank: self.line(call.source_line) for rank, call in last.items()}
        usual = majority(dict(lines))
        others: dict[str, list[int]] = {}
        for rank, line in lines.items():
            if line != usual:
                others.setdefault(line, []).append(rank)
        places = [str(usual), *(f"{line} ({ranks_of(r).lower()})" for line, r in others.items())]
        op = next(iter(last.values())).op
        return f"Before that, all ranks agreed {count} {op} at {', '.join(places)}."

    def _report_non_member(self, rank: int, call: Call) -> None:
        op = call.op.removeprefix("outside ")
        what = f"{ranks_of((rank,))}: {op} on a group that doesn't include this rank."
        row = Row((rank,), op, self.line(call.source_line))
        self._add(rank, Finding("group", what, (row,), "", MEMBERS_ONLY, (rank,)))

    def _add(self, rank: int, finding: Finding) -> None:
        self.found.append(Problem(finding, rank, self.ranks[rank].call_count))

    def _report_misuse(self, rank: int, note: MisuseNote) -> None:
        if note.what.startswith("severed"):
            if len(self._severed) < MAX_LINES:
                self._severed[note].add(rank)
            return
        what, rule = MISUSES.get(note.what, (note.what, ""))
        rows = [Row((rank,), note.did, str(note.source_line))]
        did = "reads it" if note.what == "read" else "writes to it"
        rows += [Row((rank,), did, str(note.then))] if note.then.line else []
        what = f"{ranks_of((rank,))}: {what}"
        self._add(rank, Finding("buffers", what, tuple(rows), "", rule, (rank,)))

    def _argument_finding(
        self, rank: int, group: Group, call: Call, kind: Kind, why: str
    ) -> Finding:
        name = group.name(self.world_size)
        row = Row((rank,), str(call), self.line(call.source_line))
        where = "" if name.startswith("the default") else f" in {name}"
        what = f"{ranks_of((rank,))}: {why[:-1]}{where}."
        rule = OWN_MEMORY if kind == "buffers" else KINDS[kind].rule
        return Finding(kind, what, (row,), self.before(group), rule, (rank,))

    # --------------------------------------------------------------------- sends and receives

    def _match(self, entry: Entry) -> None:
        """Pair a send or receive with its other side, or queue it."""
        channel = self._channel(entry)
        if channel is not None:
            self._enqueue(channel, entry)
            self._pair_queued(channel)

    def _channel(self, entry: Entry) -> Channel | None:
        """Return the channel of a send or receive, or None if its peer isn't in the group."""
        call, group = entry.call, entry.group
        if call.peer is None or not -entry.from_any <= call.peer < len(group.members):
            return None
        own = group.numbers[entry.rank]
        tag = 0 if group.backend.startswith("nccl") else call.tag
        ends = (own, call.peer) if entry.sends else (call.peer, own)
        return Channel(group, *ends, tag)

    def _enqueue(self, channel: Channel, entry: Entry) -> None:
        """Queue a send or receive in the order of its rank's calls."""
        insort(
            self._channels.setdefault(channel, Unpaired()).queue(entry),
            entry,
            key=lambda each: each.order,
        )

    def _dequeue(self, entry: Entry) -> None:
        channel = self._channel(entry)
        waiting = None if channel is None else self._channels.get(channel)
        if channel is None or waiting is None or entry not in waiting.queue(entry):
            return
        waiting.queue(entry).remove(entry)
        if not (waiting.sends or waiting.receives):
            del self._channels[channel]
        if channel.sender == -1:  # sends may now match the rank's other receives
            for sender in range(len(channel.group.members)):
                self._pair_queued(channel._replace(sender=sender))

    def _resolve_sender(self, entry: Entry, source: int) -> None:
        """Record the source of a receive from any rank."""
        self._dequeue(entry)
        if source < 0:
            entry.matched = True
            return
        entry.call = replace(entry.call, peer=source)
        self._match(entry)

    def _pair_queued(self, channel: Channel) -> None:
        """Pair sends with receives in order.

        An older open receive from any rank may match a send first.
        """
        waiting = self._channels.get(channel)
        if waiting is None or channel.sender == -1:
            return
        from_any = self._channels.get(channel._replace(sender=-1))
        while waiting.sends and waiting.receives:
            if from_any is not None and from_any.receives[0].order < waiting.receives[0].order:
                return
            self._pair(waiting.sends.popleft(), waiting.receives.popleft())
        if not (waiting.sends or waiting.receives):
            del self._channels[channel]

    def awaited(self, entry: Entry, *, certain: bool = False) -> tuple[int, ...]:
        """Return the global ranks that this call still waits for.

        Args:
            entry: Call of a rank.
            certain: True to leave out ranks that only receive from this one: a backend may finish
                the call without them.
        """
        members, call, numbers = entry.group.members, entry.call, entry.group.numbers
        if call.peer is None:
            own, reached = numbers[entry.rank], entry.group.reached
            unstarted = {
                rank
                for rank, other in (entry.calls_there or {}).items()
                if entry.started and not other.started
            }
            makers = call.members or members  # other ranks may return from new_group immediately
            return tuple(
                m
                for number, m in enumerate(members)
                if m != entry.rank
                and (reached[m] <= entry.position or m in unstarted)
                and (
                    (call.receives_from(own, number) and {entry.rank, m} <= {*makers})
                    or (not certain and call.sends_to(own, number))
                )
            )
        if certain and entry.sends and not entry.group.backend.startswith("gloo"):
            return ()  # the backend may buffer it
        if entry.matched or call.peer is None or not -1 <= call.peer < len(members):
            return ()
        channel = self._channel(entry)
        if channel is None:
            return ()
        if call.peer == -1:  # any of these may match
            senders = (channel._replace(sender=number) for number in range(len(members)))
            others = tuple(m for m in members if m != entry.rank)
            sent = (waiting.sends for each in senders if (waiting := self._channels.get(each)))
            return () if any(sent) else others
        if members[call.peer] in entry.group.silent:
            return ()
        taken = entry.sends and channel._replace(sender=-1) in self._channels
        return () if taken else (members[call.peer],)

    def _pair(self, send: Entry, receive: Entry) -> None:
        send.matched = receive.matched = True
        if len(self._paired) < MAX_LINES:
            self._paired |= {send.call.source_line, receive.call.source_line}
        send.other, receive.other = receive, send
        sent, received = send.call, receive.call
        if sent.partial:
            return
        sends, receives = f"Rank {send.rank} sends", f"and rank {receive.rank} receives"
        counts = f"{sends} {sent.count} elements, {receives} {received.count}"
        if sent.dtype != received.dtype:
            what = f"{sends} {sent.dtype}, {receives} {received.dtype}."
        elif sent.count > received.count:
            what = f"{counts}: the receiver's tensor is too small."
        elif sent.count < received.count and send.group.backend != "mpi":
            what = f"{counts}: the receiver's tensor is too large, and only part of it is filled."
        else:
            return
        rows = tuple(
            Row((e.rank,), str(e.call), self.line(e.call.source_line)) for e in (send, receive)
        )
        both = (send.rank, receive.rank)
        found = Finding("p2p", what, rows, "", KINDS["p2p"].rule, both)
        send.wrong = receive.wrong = Problem(found, send.rank, send.order, send)
        self.found.append(send.wrong)

    def unmatched(self) -> list[Entry]:
        """Return the sends and receives without another side, in the order of the ranks' calls.

        A send that an open receive from any rank may match isn't included.
        """
        found: list[Entry] = []
        for channel, waiting in self._channels.items():
            if channel.sender == -1:
                found += (e for e in waiting.receives if e.waited and self.awaited(e))
            elif channel._replace(sender=-1) not in self._channels:
                found += (*waiting.sends, *waiting.receives)
        return sorted(found, key=lambda each: (each.order, each.rank))

    def has_paired(self, entry: Entry) -> bool:
        """Return True if a send or receive on the same line was paired."""
        return entry.call.source_line in self._paired

    def has_left_group(self, rank: int, group: Group) -> bool:
        """Return True if a rank will make no more calls on a group."""
        if rank in group.silent:
            return False
        return rank in group.destroyed or self.ranks[rank].ended is not None

    def is_cut_off(self, rank: int, group: Group) -> bool:
        """Return True if a rank has closed its connections: other ranks' calls may raise."""
        ended = self.ranks[rank].ended
        return rank in group.destroyed or (ended is not None and ended.how != "returned")

    def missing_members(self) -> Iterator[tuple[Position, tuple[int, ...]]]:
        """Yield positions that some members never reach, and these members."""
        for group in self.groups.values():
            if not (group.open and group.numbers):
                continue
            gone = [rank for rank in group.members if self.has_left_group(rank, group)]
            first = min((group.reached[rank] for rank in gone), default=0)
            for position in range(first, group.agreed + len(group.open)) if gone else ():
                lack = tuple(rank for rank in gone if group.reached[rank] <= position)
                yield (group, position), lack

    def entries_at(self, at: Position) -> Calls:
        """Return the entries at this position, by rank."""
        group, position = at
        return group.open[position - group.agreed]

    def calls_at(self, at: Position) -> dict[int, Call]:
        """Return the calls at this position, by rank."""
        return {rank: entry.call for rank, entry in self.entries_at(at).items()}


def merged(rows: Sequence[Row]) -> list[Row]:
    """Merge rows that differ only in their ranks."""
    together: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        together.setdefault((row.did, row.source_line), []).extend(row.ranks)
    return [Row(tuple(ranks), *said) for said, ranks in together.items()]


def _first_difference(lines: Sequence[tuple[str, ...]]) -> int:
    """Return the first index at which these differ, or -1."""
    columns = enumerate(zip_longest(*lines))
    return next((index for index, column in columns if len({*column}) > 1), -1)
