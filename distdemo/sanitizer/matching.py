"""The comparison of what ranks call: pure logic over their notes, in whatever order they come.

The calls of a group form one sequence, in which every member has a position of its own. Calls at
the same position have to agree; what all members have agreed on is forgotten, but for its count.
Sends and receives are matched by group, sender, receiver and tag, each in its order.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, permutations
from typing import NamedTuple

from distdemo.launcher.verdict import lost_peer, ranks_of
from distdemo.sanitizer.notes import (
    Came,
    Ended,
    GroupKey,
    Left,
    Made,
    Note,
    Stopped,
    Touched,
    Waits,
)
from distdemo.sanitizer.records import AGREEMENT, Call, Finding, Kind, Place, Row

P2P = ("send", "recv")
FROM = ", from "  # between a line and the one that called its function
MOST_PLACES = 1000  # lines of a group's calls that are remembered
MOST_PENDING = 10_000  # calls of a rank that were never waited for

RULES: dict[Kind, str] = {
    "call": "All ranks of a group must make the same calls in the same order.",
    "shape": "The sizes that ranks pass must fit together.",
    "dtype": "All ranks of a group must pass the same dtype.",
    "device": "All ranks of a group must pass tensors on the same kind of device.",
    "reduce_op": "All ranks of a group must pass the same ReduceOp. gloo would return a wrong "
    "result and no error.",
    "root": "All ranks of a group must name the same root.",
    "splits": "What a rank gives another must be as much as that one takes from it.",
    "argument": "The backend refuses such a call, or waits for what never comes.",
    "absent": "All ranks of a group must make the same calls before the first one leaves.",
    "uneven": "All ranks must go through the loop equally often. DDP has join for other loops.",
    "group": "new_group must be called by all ranks of the world, in the same order and with the "
    "same members, and only members may use the group.",
    "p2p": "Every send needs a receive with the same peer, tag, dtype and size.",
    "deadlock": "Let one side receive while the other sends, or use isend, irecv or "
    "batch_isend_irecv.",
    "buffers": "Every tensor of a list needs memory of its own, and all ranks the same strides.",
    "shift": "If these were not meant for each other, some rank has made a call too many or too "
    "few before.",
}
TOUCHED = {
    "written": (
        "a tensor is written to while a call works on it.",
        "Wait for a call before you change its tensors.",
    ),
    "read": (
        "a tensor is read while a call fills it.",
        "Wait for a call before you read what it brings.",
    ),
    "unwaited": ("a call is never waited for.", "Wait for every call that doesn't block."),
    "strided": (
        "a tensor has gaps, which the backend takes as if it had none.",
        "Pass contiguous tensors.",
    ),
}
"""What is wrong with the memory of a call, and what has to hold."""
DIFFER: dict[Kind, str] = {
    "buffers": "the ranks lay out their tensors differently",
    "call": "the ranks make different calls",
    "shape": "the sizes don't fit together",
    "dtype": "the ranks pass different dtypes",
    "device": "the ranks pass tensors on different devices",
    "reduce_op": "the ranks reduce differently",
    "root": "the ranks name different roots",
    "splits": "what is given is not what is taken",
    "group": "the ranks make different groups",
}


@dataclass(eq=False, slots=True)
class Entry:
    """A call of one rank.

    Attributes:
        position: in the sequence of its group; of a send or receive meaningless.
        beside: the calls at that position; of a send or receive None.
        matched: of a send or receive: the other side has come, whether it is known or not.
        other: of a send or receive: the other side.
        order: how many calls its rank has made before it.
        waited: somebody waits for it, or has done so.
        wrong: what is wrong with it, or with it and the other side.
        failed: it raised after it was made.
    """

    rank: int
    group: Group
    call: Call
    position: int = 0
    beside: Calls | None = None
    matched: bool = False
    other: Entry | None = None
    order: int = 0
    waited: bool = False
    wrong: Finding | None = None
    failed: bool = False

    @property
    def from_any(self) -> bool:
        """Whether one of those that it waits for is enough."""
        return self.call.peer == -1


class Calls(dict[int, Made]):
    """By rank: its call at one position of a group.

    Attributes:
        unsure: how many of these torch may yet refuse.
    """

    __slots__ = ("unsure",)

    def __init__(self) -> None:
        super().__init__()
        self.unsure = 0


@dataclass(eq=False, slots=True)
class Group:
    """The sequence of calls of some ranks.

    Attributes:
        members: their numbers in the world, in the order of the group.
        backend: ``gloo``; ``gloo/cpu`` where another device has another.
        nth: how many groups of the same came before it.
        numbers: by rank of the world: its number in the group; empty if the world lacks a member.
        reached: by rank: how many calls it has made.
        uneven: positions at which parts are of several sizes.
        open: the calls that not all have made yet, the oldest first.
        agreed: how many calls all have made alike.
        last: the last of them.
        places: how often a line, called from one other, has made a call that all agreed on.
        callers: the ranks that have made a call from a line.
        mixed: by lines: how often one call was made from these by different ranks, and the first.
        left: by rank that has destroyed it: the line.
    """

    members: tuple[int, ...]
    backend: str
    nth: int
    numbers: dict[int, int]
    reached: dict[int, int]
    uneven: set[int] = field(default_factory=set)
    open: deque[Calls] = field(default_factory=deque)
    agreed: int = 0
    last: Call | None = None
    places: Counter[tuple[Place, str]] = field(default_factory=Counter)
    callers: defaultdict[Place, set[int]] = field(default_factory=lambda: defaultdict(set))
    mixed: dict[frozenset[Place], Mixed] = field(default_factory=dict)
    left: dict[int, Place] = field(default_factory=dict)

    def name(self, world_size: int) -> str:
        """``the default group``, or its members."""
        if self.members == tuple(range(world_size)) and self.nth == 0:
            return "the default group"
        more = f" (number {self.nth + 1} with these ranks)" if self.nth else ""
        return f"group {list(self.members)}{more}"


At = tuple[Group, int]
"""A position in the sequence of a group's calls."""


class Channel(NamedTuple):
    """What can be paired: sends and receives of one group with the same ends and the same tag.

    Attributes:
        sender: its number in the group; −1: any.
        receiver: its number in the group.
        tag: 0 with NCCL, which knows none.
    """

    group: Group
    sender: int
    receiver: int
    tag: int


@dataclass(slots=True)
class Waiting:
    """The sends and the receives of a channel that have no other side yet, the oldest first."""

    sends: deque[Entry] = field(default_factory=deque)
    receives: deque[Entry] = field(default_factory=deque)

    def of(self, entry: Entry) -> deque[Entry]:
        """Those like this one."""
        return self.sends if entry.call.op == "send" else self.receives


@dataclass(slots=True)
class Mixed:
    """One call of a group that ranks made from several lines.

    Attributes:
        calls: by rank, the first time.
        position: in the sequence of the group, likewise.
        times: that these lines came together.
    """

    calls: dict[int, Call]
    position: int
    times: int = 0


@dataclass(eq=False, slots=True)
class RankState:
    """What one rank has said.

    Attributes:
        made: how many calls.
        pending: by number: calls that were not waited for yet.
        threads: that have made calls, and the main one, 0.
        waits: by thread: the call that it is in.
        last: the last that it made.
        fresh: by thread: the same, while torch may yet refuse it.
        failed: positions at which its call failed, and it went on.
        lost: it failed because another did.
        ended: how its program ended; None: it runs, or it failed because another did.
        refused: what was wrong with its last call, which raised at once; it may know, and go on.
        failing: the error that was on its way when it destroyed a group; empty: there was none.
    """

    made: int = 0
    pending: dict[int, Entry] = field(default_factory=dict)
    threads: set[int] = field(default_factory=lambda: {0})
    waits: dict[int, Entry] = field(default_factory=dict)
    last: Call | None = None
    fresh: dict[int, Entry] = field(default_factory=dict)
    failed: set[tuple[Group, int]] = field(default_factory=set)
    lost: bool = False
    ended: Ended | None = None
    refused: Finding | None = None
    failing: str = ""

    @property
    def blocked(self) -> list[Entry]:
        """What it can't go on without; empty while one of its threads does something else."""
        return list(self.waits.values()) if self.threads <= self.waits.keys() else []


class Matcher:
    """All ranks' notes.

    Attributes:
        ranks: by number.
        stopped: why nothing more is compared; empty: it is.
        found: what is wrong, the first first; a position at which calls differ stands for what the
            ranks still to come make of it.
        callers: by file and line: what has called the function that the line is in.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.ranks = [RankState() for _ in range(world_size)]
        self.stopped = ""
        self.found: list[Finding | At] = []
        self.callers: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        self._groups: dict[GroupKey, Group] = {}
        self._channels: dict[Channel, Waiting] = {}
        self._paired: set[Place] = set()

    def group(self, members: tuple[int, ...], backend: str, nth: int) -> Group:
        """The group that these tell from all others."""
        group = self._groups.get((members, backend, nth))
        if group is None:
            here = all(0 <= member < self.world_size for member in members)
            numbers = {rank: number for number, rank in enumerate(members)} if here else {}
            group = Group(members, backend, nth, numbers, dict.fromkeys(members, 0))
            self._groups[members, backend, nth] = group
        return group

    @property
    def open_calls(self) -> int:
        """Number of calls that other ranks have yet to make, too."""
        collectives = sum(len(group.open) for group in self._groups.values())
        pairs = self._channels.values()
        return collectives + sum(len(each.sends) + len(each.receives) for each in pairs)

    def stop(self, why: str) -> None:
        """Compare nothing from here on, for this reason if there was none before."""
        self.stopped = self.stopped or why

    def line(self, place: Place) -> str:
        """A line as people read it, with its function's caller unless that goes without saying."""
        callers = self.callers.get((place.file, place.line), ())
        if not place.caller or (len(callers) < 2 and place.caller.startswith(f"{place.name}:")):
            return str(place)
        return f"{place}{FROM}{place.caller}"

    def rows(self, calls: dict[int, Call]) -> list[Row]:
        """A row for all that did the same on the same line."""
        ranks = sorted(calls)
        return merged([Row((r,), str(calls[r]), self.line(calls[r].place)) for r in ranks])

    def take(self, rank: int, note: Note) -> None:
        """One note of a rank; those of one rank in their order."""
        if self.stopped:
            return
        state = self.ranks[rank]
        if isinstance(note, Made):
            self._accept(state, note.thread)
            state.threads.add(note.thread)
            state.waits.pop(note.thread, None)
            state.last, state.refused = note.call, None
            entry = self._made(rank, note)
            if entry is not None:
                state.fresh[note.thread] = entry
            if entry is not None and note.call.sync:
                entry.waited = True
                state.waits[note.thread] = entry
            elif entry is not None and not note.call.place.via:  # C++ waits unseen
                state.pending[state.made] = entry
                if len(state.pending) > MOST_PENDING:
                    del state.pending[next(iter(state.pending))]
            state.made += 1
        elif isinstance(note, Waits):
            entry = state.pending.pop(note.number, None)
            self._accept(state, note.thread)
            if entry is not None:
                entry.waited = True
                state.waits[note.thread] = entry
        elif isinstance(note, Came):
            self._came(state, note)
        elif isinstance(note, Touched):
            self._touched(rank, note)
        elif isinstance(note, Left):
            state.failing = note.failing
            for key in note.groups:
                self.group(*key).left.setdefault(rank, note.place)
            for thread, entry in list(state.fresh.items()):
                if rank in entry.group.left:
                    self._accept(state, thread)
        elif isinstance(note, Stopped):
            self.stop(f"rank {rank}: {note.why}")
        else:
            self._ended(state, note)

    def _ended(self, state: RankState, note: Ended) -> None:
        for thread in list(state.fresh):
            self._accept(state, thread)
        if lost_peer(note.how):  # it waited in vain
            state.lost = True
        else:
            state.ended = note
            state.waits.clear()
            last = state.last.place if state.last is not None else Place()
            raised_there = (note.place.file, note.place.line) == (last.file, last.line)
            if state.refused is not None and (note.how.startswith("exited") or raised_there):
                self.found.append(state.refused)

    def _accept(self, state: RankState, thread: int) -> None:
        """Torch has not refused the last call of a thread, as that goes on, or is waited for."""
        entry = state.fresh.pop(thread, None)
        if entry is not None and entry.beside is not None:
            entry.beside.unsure -= 1
            if not entry.beside.unsure:
                self._agree(entry.group)

    def _came(self, state: RankState, note: Came) -> None:
        entry = state.waits.pop(note.thread, None)
        if note.undone:
            entry = state.fresh.pop(note.thread, None)
            if entry is not None:
                self._undo(entry)
            return
        self._accept(state, note.thread)
        if entry is not None and note.failed:
            entry.failed = True
            if entry.call.op not in P2P:
                state.failed.add((entry.group, entry.position))
        elif entry is not None and entry.from_any and not entry.matched:
            self._came_from(entry, note.source)

    def _undo(self, entry: Entry) -> None:
        """Forget a call that was refused before it was made."""
        group, rank, position = entry.group, entry.rank, entry.position
        if entry.wrong is not None and entry.wrong in self.found:
            self.found.remove(entry.wrong)
            self.ranks[rank].refused = entry.wrong
        if entry.call.op in P2P:
            channel, other = self._channel(entry), entry.other
            if other is None or channel is None:
                self._take_out(entry)
                return
            other.matched, other.other, other.wrong = False, None, None
            self._put_in(channel, other)
            self._settle(channel)
            return
        group.reached[rank] -= 1
        beside = group.open[position - group.agreed]
        beside.pop(rank, None)
        beside.unsure -= 1
        if (group, position) in self.found and self.mismatch((group, position)) is None:
            self.found.remove((group, position))

    # ---------------------------------------------------------------------------- collectives

    def _made(self, rank: int, note: Made) -> Entry | None:
        members, backend, nth = note.group
        call = note.call
        group = self.group(members, backend, nth)
        if rank not in group.numbers:
            return None  # not a note of this world
        if call.op.startswith("outside "):
            self._outside(rank, call)
            return None
        wrong = alone(call, group.numbers[rank], len(members), backend)
        entry = Entry(rank, group, call, order=self.ranks[rank].made)
        if wrong is not None:
            entry.wrong = self._alone(rank, group, call, *wrong)
            self.found.append(entry.wrong)
        if call.op in P2P:
            self._match(entry)
            return entry
        for thread, other in list(self.ranks[rank].fresh.items()):  # of its other threads
            if other.group is group:
                self._accept(self.ranks[rank], thread)
        entry.position = group.reached[rank]
        group.reached[rank] += 1
        index = entry.position - group.agreed
        while len(group.open) <= index:
            group.open.append(Calls())
        calls = group.open[index]
        at = (group, entry.position)
        if at not in self.found and self._clashes(rank, note, calls, entry):
            self.found.append(at)
        calls[rank] = note
        calls.unsure += 1
        entry.beside = calls
        return entry

    def _agree(self, group: Group) -> None:
        """Forget what all members have made alike."""
        while group.open and len(group.open[0]) == len(group.members):
            if group.open[0].unsure or (group, group.agreed) in self.found:
                return
            self._forget(group)

    def _clashes(self, rank: int, note: Made, others: dict[int, Made], entry: Entry) -> bool:
        """Whether a call does not go with those that are at its position already."""
        first = next(iter(others.values()), note)
        if first.agreement != note.agreement:
            return True
        if not note.call.has_parts:
            return False
        uneven, members = entry.group.uneven, entry.group.members
        if note.call.part is None or note.call.part != first.call.part:
            uneven.add(entry.position)  # from here on each is compared with every other
        if entry.position not in uneven:
            return False
        return any(
            _parts({each: other.call, rank: note.call}, members) is not None
            for each, other in others.items()
        )

    def _forget(self, group: Group) -> None:
        """All members have made the oldest open call alike."""
        calls = {rank: made.call for rank, made in group.open.popleft().items()}
        group.uneven.discard(group.agreed)
        lines: dict[Place, set[int]] = {}
        for rank, call in calls.items():
            lines.setdefault(call.place, set()).add(rank)
        for line, ranks in lines.items():
            if line in group.callers or len(group.callers) < MOST_PLACES:
                group.callers[line] |= ranks
        for key in {(call.place, call.place.caller) for call in calls.values()}:
            if key in group.places or len(group.places) < MOST_PLACES:
                group.places[key] += 1
        if len(lines) > 1:
            together = frozenset(lines)
            mixed = group.mixed.get(together)
            if mixed is None and len(group.mixed) < MOST_PLACES:
                mixed = group.mixed[together] = Mixed(calls, group.agreed)
            if mixed is not None:
                mixed.times += 1
        group.last = calls[min(calls)]
        group.agreed += 1

    def shifts(self) -> list[Finding]:
        """Calls that may have met others than they were meant for: warnings.

        Ranks made one call from several lines, once; and one of them has been on another of these
        lines, too, so that the two are not branches of which each has its own ranks.
        """
        found = []
        for group in self._groups.values():
            for mixed in group.mixed.values():
                lines = {r: c.place for r, c in mixed.calls.items()}
                strayed = any(
                    rank in (group.callers[line] | self._open_callers(group, line)) and own != line
                    for rank, own in lines.items()
                    for line in set(lines.values())
                )
                if mixed.times == 1 and strayed:
                    name = group.name(self.world_size)
                    op = next(iter(mixed.calls.values())).op
                    what = f"Call {mixed.position + 1} of {name}, {op}, came from different lines."
                    usual = _most(dict(lines))
                    guilty = tuple(sorted(rank for rank, each in lines.items() if each != usual))
                    rows = tuple(self.rows(mixed.calls))
                    found.append(Finding("shift", what, rows, "", RULES["shift"], guilty))
        return found

    def _open_callers(self, group: Group, line: Place) -> set[int]:
        """Ranks that have made a call from a line that the others have not made yet."""
        return {
            rank for calls in group.open for rank, made in calls.items() if made.call.place == line
        }

    def settled(self, named: Collection[int]) -> bool:
        """Whether every rank but these has ended, or is held up in a call.

        One of these that an error is ending has to have ended, too.
        """
        others = (
            state for rank, state in enumerate(self.ranks) if rank not in named or state.failing
        )
        return all(
            state.ended is not None
            or (state.blocked and all(self.awaited(entry) for entry in state.blocked))
            for state in others
        )

    def mismatch(self, at: At) -> Finding | None:
        """What differs at a position, by what is known of it."""
        group, position = at
        calls = self.calls_at(at)
        found = differs(calls, group.members)
        if found is None:
            return None
        kind, guilty = found
        name = group.name(self.world_size)
        ops = {each.op for each in calls.values()}
        if "new_group" in ops:
            kind = "group"
        if kind == "shape" and self._by_another(calls, guilty):
            kind = "call"
        waiting = tuple(rank for rank in sorted(calls) if rank not in guilty)
        what = f"Mismatch in call {position + 1} of {name}: {DIFFER.get(kind, 'the calls differ')}."
        absent = [m for m in group.members if m not in calls]
        rows = [*self.rows({rank: calls[rank] for rank in waiting})]
        rows += self.rows({rank: calls[rank] for rank in guilty})
        if kind == "device":
            by_device = {rank: calls[rank].device for rank in (*waiting, *guilty)}
            rows = [replace(row, did=f"{row.did} on {by_device[row.ranks[0]]}") for row in rows]
        rows += [Row(tuple(absent), "had not reached this call")] if absent else []
        rule = RULES[kind]
        for one, other, gives, takes in islice(_misfits(calls, group.members), 1):
            rule = f"Rank {one} gives {gives} elements to rank {other}, which takes {takes}. {rule}"
        return Finding(kind, what, tuple(rows), self.before(group), rule, guilty, waiting)

    def _by_another(self, calls: dict[int, Call], guilty: Sequence[int]) -> bool:
        """Whether torch makes the call of some by itself, and the program makes that of others."""
        own = {bool(call.place.via) for rank, call in calls.items() if rank in guilty}
        rest = {bool(call.place.via) for rank, call in calls.items() if rank not in guilty}
        return bool(rest) and own.isdisjoint(rest)

    def first(self) -> Finding | None:
        """What was found first, with all ranks that did it on the same line."""
        first = next(iter(self.found), None)
        if isinstance(first, tuple):
            return self.mismatch(first)
        if first is None:
            return None
        line = first.rows[0].place.partition(FROM)[0]
        alike = [
            each
            for each in self.found
            if isinstance(each, Finding)
            and (each.kind, len(each.rows)) == (first.kind, 1)
            and each.rows[0].place.partition(FROM)[0] == line
        ]
        if len(first.rows) != 1 or len(alike) < 2:
            return first
        ranks = tuple(sorted({rank for each in alike for rank in each.ranks}))
        row = replace(first.rows[0], ranks=ranks, place=line)
        what = first.what.replace(ranks_of(first.ranks), ranks_of(ranks), 1)
        return replace(first, what=what, rows=(row,), ranks=ranks)

    def before(self, group: Group) -> str:
        """How far all agreed."""
        agreed, last = group.agreed, group.last
        for calls in group.open:
            if len(calls) < len(group.members) or (group, agreed) in self.found:
                break
            agreed, last = agreed + 1, calls[min(calls)].call
        if last is None:
            return ""
        count = f"on {agreed} calls; the last was" if agreed > 1 else "on one call,"
        return f"Before that, all ranks agreed {count} {last.op} at {self.line(last.place)}."

    def _outside(self, rank: int, call: Call) -> None:
        op = call.op.removeprefix("outside ")
        what = f"{ranks_of((rank,))}: {op} on a group without this rank."
        row = Row((rank,), op, self.line(call.place))
        self.found.append(Finding("group", what, (row,), "", RULES["group"], (rank,)))

    def _touched(self, rank: int, note: Touched) -> None:
        what, rule = TOUCHED.get(note.what, (note.what, ""))
        rows = [Row((rank,), note.did, str(note.place))]
        did = "reads it" if note.what == "read" else "writes to it"
        rows += [Row((rank,), did, str(note.then))] if note.then.line else []
        what = f"{ranks_of((rank,))}: {what}"
        self.found.append(Finding("buffers", what, tuple(rows), "", rule, (rank,)))

    def _alone(self, rank: int, group: Group, call: Call, kind: Kind, why: str) -> Finding:
        name = group.name(self.world_size)
        row = Row((rank,), str(call), self.line(call.place))
        where = "" if name.startswith("the default") else f" in {name}"
        what = f"{ranks_of((rank,))}: {why[:-1]}{where}."
        before = self.before(group)
        return Finding(kind, what, (row,), before, RULES[kind], (rank,))

    # --------------------------------------------------------------------- sends and receives

    def _match(self, entry: Entry) -> None:
        """Find the other side, or wait for it."""
        channel = self._channel(entry)
        if channel is not None:
            self._put_in(channel, entry)
            self._settle(channel)

    def _channel(self, entry: Entry) -> Channel | None:
        """Where a send or receive finds its other side; None: it names no rank of its group."""
        call, group = entry.call, entry.group
        if call.peer is None or not -1 <= call.peer < len(group.members):
            return None
        own = group.numbers[entry.rank]
        tag = 0 if group.backend.startswith("nccl") else call.tag
        ends = (own, call.peer) if call.op == "send" else (call.peer, own)
        return Channel(group, *ends, tag)

    def _put_in(self, channel: Channel, entry: Entry) -> None:
        """Let it wait, in the order in which its rank made its calls."""
        insort(
            self._channels.setdefault(channel, Waiting()).of(entry),
            entry,
            key=lambda each: each.order,
        )

    def _take_out(self, entry: Entry) -> None:
        channel = self._channel(entry)
        waiting = None if channel is None else self._channels.get(channel)
        if channel is None or waiting is None or entry not in waiting.of(entry):
            return
        waiting.of(entry).remove(entry)
        if not (waiting.sends or waiting.receives):
            del self._channels[channel]
        if channel.sender == -1:  # what was sent may now go to the rank's other receives
            for sender in range(len(channel.group.members)):
                self._settle(channel._replace(sender=sender))

    def _came_from(self, entry: Entry, source: int) -> None:
        """A receive from any rank has got its data: from this one."""
        self._take_out(entry)
        if source < 0:
            entry.matched = True
            return
        entry.call = replace(entry.call, peer=source)
        self._match(entry)

    def _settle(self, channel: Channel) -> None:
        """Pair sends with receives, each in its order.

        While an older receive from any rank is open, it may be the one that gets a message.
        """
        waiting = self._channels.get(channel)
        if waiting is None or channel.sender == -1:
            return
        anybodys = self._channels.get(channel._replace(sender=-1))
        while waiting.sends and waiting.receives:
            if anybodys is not None and anybodys.receives[0].order < waiting.receives[0].order:
                return
            self._pair(waiting.sends.popleft(), waiting.receives.popleft())
        if not (waiting.sends or waiting.receives):
            del self._channels[channel]

    def awaited(self, entry: Entry) -> tuple[int, ...]:
        """The ranks of the world without which it can't be completed, and that have not come."""
        members, call = entry.group.members, entry.call
        if call.op not in P2P:
            reached = entry.group.reached
            needed = members
            if call.root is not None and 0 <= call.root < len(members):
                root = members[call.root]  # others need the root alone, if they need anybody
                needed = members if root == entry.rank else (root,)
            return tuple(m for m in needed if m != entry.rank and reached[m] <= entry.position)
        if entry.matched or call.peer is None or not -1 <= call.peer < len(members):
            return ()
        channel = self._channel(entry)
        if channel is None:
            return ()
        if call.peer == -1:  # any of these may be the one that it takes
            senders = (channel._replace(sender=number) for number in range(len(members)))
            others = tuple(m for m in members if m != entry.rank)
            sent = (waiting.sends for each in senders if (waiting := self._channels.get(each)))
            return () if any(sent) else others
        taken = call.op == "send" and channel._replace(sender=-1) in self._channels
        return () if taken else (members[call.peer],)

    def _pair(self, give: Entry, take: Entry) -> None:
        give.matched = take.matched = True
        if len(self._paired) < MOST_PLACES:
            self._paired |= {give.call.place, take.call.place}
        give.other, take.other = take, give
        sent, got = give.call, take.call
        if sent.dtype != got.dtype:
            what = (
                f"Rank {give.rank} sends {sent.dtype}, and rank {take.rank} receives {got.dtype}."
            )
        elif sent.count > got.count or (sent.count < got.count and give.group.backend != "mpi"):
            fate = "too small" if got.count < sent.count else "too large: a part of it is filled"
            what = (
                f"Rank {give.rank} sends {sent.count} elements, and rank {take.rank} receives "
                f"{got.count}: the receiver's tensor is {fate}."
            )
        else:
            return
        rows = tuple(Row((e.rank,), str(e.call), self.line(e.call.place)) for e in (give, take))
        both = (give.rank, take.rank)
        give.wrong = take.wrong = Finding("p2p", what, rows, "", RULES["p2p"], both)
        self.found.append(give.wrong)

    def unmatched(self) -> Iterator[Entry]:
        """Sends and receives whose other side was never seen.

        While a receive from any rank is open, it may be the one that takes a send.
        """
        for channel, waiting in self._channels.items():
            if channel.sender == -1:
                yield from (e for e in waiting.receives if e.waited and self.awaited(e))
            elif channel._replace(sender=-1) not in self._channels:
                yield from (*waiting.sends, *waiting.receives)

    def has_paired(self, entry: Entry) -> bool:
        """Whether a send or receive of the same line has found its other side."""
        return entry.call.place in self._paired

    def is_gone(self, rank: int, group: Group) -> bool:
        """Whether a rank makes no more calls on a group."""
        return rank in group.left or self.ranks[rank].ended is not None

    def lacking(self) -> Iterator[tuple[At, tuple[int, ...]]]:
        """Positions that some members have reached, and others never will: these."""
        for group in self._groups.values():
            if not (group.open and group.numbers):
                continue
            gone = [rank for rank in group.members if self.is_gone(rank, group)]
            first = min((group.reached[rank] for rank in gone), default=0)
            for position in range(first, group.agreed + len(group.open)) if gone else ():
                lack = tuple(rank for rank in gone if group.reached[rank] <= position)
                yield (group, position), lack

    def calls_at(self, at: At) -> dict[int, Call]:
        """Who called what at this position."""
        group, position = at
        return {rank: note.call for rank, note in group.open[position - group.agreed].items()}


# ------------------------------------------------------------------------------------- agreement


def alone(call: Call, rank: int, n: int, backend: str) -> tuple[Kind, str] | None:
    """What is wrong with a call whatever the others do; None if nothing is.

    Args:
        call: of this rank.
        rank: its number in the group.
        n: how many ranks there are in the group.
        backend: of the group.
    """
    if call.root is not None and not 0 <= call.root < n:
        return "argument", f"the root of {call.op} is rank {call.root}, and there are {n} ranks."
    if call.peer is not None and not -1 <= call.peer < n:
        return "argument", f"{call.op} names rank {call.peer}, and there are {n} ranks."
    lists = []
    if call.op == "all_gather" or (call.op == "gather" and call.root == rank):
        lists = [call.takes]
    elif call.op == "reduce_scatter" or (call.op == "scatter" and call.root == rank):
        lists = [call.gives]
    elif call.op == "all_to_all":
        lists = [call.gives, call.takes]
    for each in lists:
        if len(each) != n:
            return "argument", f"{call.op} got a list of {len(each)} tensors for {n} ranks."
        if backend.startswith("gloo") and call.op != "all_to_all" and len(set(each)) > 1:
            return "shape", f"{call.op} got a list of tensors of unequal size, which gloo refuses."
    if call.aliased:
        return "buffers", f"a list of {call.op} has the same tensor several times."
    return None


def merged(rows: Sequence[Row]) -> list[Row]:
    """One row for all ranks of which the same is said."""
    together: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        together.setdefault((row.did, row.place), []).extend(row.ranks)
    return [Row(tuple(ranks), *said) for said, ranks in together.items()]


def differs(calls: dict[int, Call], members: Sequence[int]) -> tuple[Kind, tuple[int, ...]] | None:
    """In what these calls of one position disagree, and the ranks that differ from the most.

    Args:
        calls: by rank of the world.
        members: of the group, in its order.
    """
    if len(calls) < 2:
        return None
    for number, kind in enumerate(AGREEMENT):
        told = {rank: call.agreement[number] for rank, call in calls.items()}
        if len(set(told.values())) > 1:
            usual = _most(told)
            return kind, tuple(sorted(rank for rank, each in told.items() if each != usual))
    return _parts(calls, members)


def _most(told: dict[int, object]) -> object:
    """What most say; of as many, what the lowest rank says."""
    counts = Counter(told[rank] for rank in sorted(told))
    return counts.most_common(1)[0][0]


def _parts(calls: dict[int, Call], members: Sequence[int]) -> tuple[Kind, tuple[int, ...]] | None:
    """Whether what each gives another is what that one takes."""
    clashes = [(one, other) for one, other, _, _ in _misfits(calls, members)]
    if not clashes:
        return None
    first = next(iter(calls.values()))
    often = Counter(rank for pair in clashes for rank in pair)
    most = max(often.values())
    guilty = tuple(sorted(rank for rank, count in often.items() if count == most))
    if len(guilty) == len(calls) or len(clashes) == 1:
        guilty = tuple(sorted({rank for pair in clashes for rank in pair}))
        if first.root is not None and len(guilty) > 1:  # the root fits all the others
            guilty = tuple(rank for rank in guilty if rank != members[first.root])
    return ("splits" if first.op.startswith("all_to_all") else "shape"), guilty


def _misfits(calls: dict[int, Call], members: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Who gives whom how much, where that one takes another amount, and how much it takes."""
    places = {rank: members.index(rank) for rank in calls}
    for (one, i), (other, j) in permutations(places.items(), 2):
        gives = _part(calls[one], i, j, len(members))
        takes = _taken(calls[other], j, i, len(members))
        if gives is not None and takes is not None and gives != takes:
            yield one, other, gives, takes


def _part(call: Call, own: int, other: int, n: int) -> int | None:
    """Elements that this rank gives another; None: none, or it is not known."""
    if call.op in ("all_gather", "gather"):
        return call.count if call.op == "all_gather" or call.root == other else None
    if call.op == "scatter":
        return call.gives[other] if call.root == own and len(call.gives) == n else None
    if call.op == "all_to_all":
        return call.gives[other] if len(call.gives) == n else None
    if call.op == "all_to_all_single":
        return _evenly(call.gives, other, n)
    return None


def _taken(call: Call, own: int, other: int, n: int) -> int | None:
    """Elements that this rank takes from another."""
    if call.op in ("all_gather", "all_to_all"):
        return call.takes[other] if len(call.takes) == n else None
    if call.op == "gather":
        return call.takes[other] if call.root == own and len(call.takes) == n else None
    if call.op == "scatter":
        return call.count if call.root == other else None
    if call.op == "all_to_all_single":
        return _evenly(call.takes, other, n)
    return None


def _evenly(parts: tuple[int, ...], other: int, n: int) -> int | None:
    if len(parts) == 2 and parts[0] == -1:
        return parts[1] // n
    return parts[other] if len(parts) == n else None
