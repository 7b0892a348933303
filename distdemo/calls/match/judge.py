"""Read the notes of all ranks, and decide when the first error in them is certain."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from distdemo.calls.match import findings
from distdemo.calls.match.findings import (
    absent,
    alike,
    mismatch,
    near_match,
    together,
    unmatched,
)
from distdemo.calls.match.lateness import Lateness
from distdemo.calls.match.matching import Entry, Group, Matcher, Position, Problem
from distdemo.calls.match.order import Order
from distdemo.calls.match.rules import KINDS
from distdemo.calls.notes import MAX_KNOWN, CallNote, Reader
from distdemo.calls.records import END_OF_TRAFFIC, CallCount, Finding, Kind, Row
from distdemo.calls.timeline import Timeline
from distdemo.launcher.verdict import ranks_of

WORLD_RANKS = "src, dst and root are global ranks; group_src and group_dst are ranks in the group."
ORDER = "All ranks must make their calls in the same order, including calls on different groups."
SETTLE_TIMEOUT_S = 5.0  # until a finding that is true so far is reported
DEADLOCK_S = 1.2  # likewise for a deadlock, during which no rank may call
INTERRUPT_S = 1.0  # for which it must have been true if a signal ends the run earlier
BUSY_POLLS = 8  # polls per search for errors while notes arrive


class Judge:
    """Reads the notes of one world and decides when a finding is certain.

    Args:
        world_size: Number of ranks.
        timeline: Timeline that gets every note with a time, or None.

    Attributes:
        matcher: Comparison of the calls.
        finding: Finding, or None so far.
        lateness: Ranks that other ranks waited for.
        order: Calls that ranks make in a different order.
    """

    def __init__(self, world_size: int, timeline: Timeline | None = None) -> None:
        self.matcher = Matcher(world_size)
        self.finding: Finding | None = None
        self.lateness = Lateness()
        self.order = Order(self.matcher)
        self._readers = [Reader() for _ in range(world_size)]
        self._new = [bytearray() for _ in range(world_size)]
        self._received = False
        self._polls = 0
        self._candidate: object = None  # finding that is true so far
        self._candidate_since = 0.0  # time at which it was first seen
        self._candidate_s = 0.0  # seconds from then to the latest poll
        self._timeline = timeline
        self._counts: dict[int, tuple[CallNote, Counter[int]]] = {}
        self._uncounted: Counter[int] = Counter()  # calls beyond MAX_KNOWN, by rank
        self._latest: dict[int, tuple[int, CallNote]] = {}  # each rank's last call, numbered from 1

    def feed(self, rank: int, piece: bytes) -> None:
        """Add new notes of a rank; ``poll`` reads them."""
        self._received = True
        self._new[rank] += piece

    def poll(self) -> Finding | None:
        """Return a finding once it is certain, or has been true so far for a while."""
        received, self._received = self._received, False
        self._polls += 1
        self.read()
        matcher = self.matcher
        if self.finding is not None or matcher.stopped:
            return self.finding
        if received and not matcher.found and self._polls % BUSY_POLLS:
            return None
        found = first_error(matcher)
        if found is None or not found.so_far:
            self._candidate, self.finding = None, found
            return found
        counts = [state.call_count for state in matcher.ranks] if found.kind == "deadlock" else []
        about, now = (found.kind, found.rows[0], counts), time.monotonic()
        if about != self._candidate:
            self._candidate, self._candidate_since = about, now
        self._candidate_s = now - self._candidate_since
        settle = DEADLOCK_S if _only_unknown_threads(matcher, found) else SETTLE_TIMEOUT_S
        if self._candidate_s >= settle:
            self.finding = found
        return self.finding

    def check(self) -> Finding | None:
        """Return the finding if there is a certain one now that no rank is making calls."""
        self.read()
        if self.finding is None and not self.matcher.stopped:
            found = first_error(self.matcher)
            if found is not None and (self.matcher.found or not found.so_far):
                self.finding = found
        return self.finding

    def conclude(self, running: Mapping[int, str] | None = None) -> Finding | None:
        """Return the finding once the ranks' notes are complete.

        Args:
            running: Ranks that were stopped, and where they were; None if they all ended.
        """
        self.read()
        if self.matcher.stopped or (self.finding is not None and not self.finding.so_far):
            return self.finding
        running = running or {}
        found = first_error(self.matcher, running) or self.finding
        return found or findings.stuck(self.matcher, running)

    def interrupt(self, running: Mapping[int, str]) -> Finding | None:
        """Return the finding at the latest poll, before a signal ended the run.

        Later notes aren't read: the signal is the reason why the ranks ended.

        Args:
            running: Ranks that were stopped, and where they were.
        """
        if self.finding is not None or self.matcher.stopped:
            return self.finding
        found = first_error(self.matcher)
        unsettled = found is not None and found.so_far and self._candidate_s < INTERRUPT_S
        found = None if unsettled else found
        return found or findings.stuck(self.matcher, running)

    def warnings(self) -> list[Finding]:
        """Return the possible errors so far."""
        matcher = self.matcher
        return [*matcher.shifts(), *self.order.warnings(), *findings.unwaited_warning(matcher)]

    def give_up(self, why: str) -> None:
        """Stop comparing after an internal error; later notes are only read."""
        self.matcher.stop(why)
        self._timeline = None

    def last_call(self, rank: int) -> str:
        """Return a rank's last call, ``all_reduce at train.py:12 (call 2)``; empty if none."""
        if rank not in self._latest:
            return ""
        number, note = self._latest[rank]
        return f"{note.call.op} at {self.matcher.line(note.call.source_line)} (call {number:,})"

    def calls(self) -> tuple[CallCount, ...]:
        """Return the calls in the order in which they first occurred, with their counts."""
        together: dict[tuple[str, str, str], Counter[int]] = {}
        for note, counts in self._counts.values():
            members, backend, nth = note.group
            if note.call.rules.internal:
                continue
            group = self.matcher.group(members, backend, nth).name(self.matcher.world_size)
            key = (str(note.call), group, self.matcher.line(note.call.source_line))
            together.setdefault(key, Counter()).update(counts)
        found = []
        for (did, group, source_line), counts in together.items():
            for count in sorted(set(counts.values()), reverse=True):
                ranks = tuple(sorted(rank for rank, each in counts.items() if each == count))
                found.append(CallCount(did, group, source_line, ranks, count))
        for count in sorted(set(self._uncounted.values()), reverse=True):
            ranks = tuple(sorted(rank for rank, each in self._uncounted.items() if each == count))
            found.append(CallCount("other calls", "", "", ranks, count))
        return tuple(found)

    # ---------------------------------------------------------------------------------- reading

    def read(self) -> None:
        """Read every note that has arrived."""
        for rank, (reader, piece) in enumerate(zip(self._readers, self._new, strict=True)):
            if not piece:
                continue
            text = bytes(piece)
            piece.clear()  # first, so that nothing is read twice
            for at, note in reader.read(text):
                if isinstance(note, CallNote):
                    self.count(rank, note)
                entry = self.matcher.add(rank, note)
                self.lateness.add(at, note, entry)
                self.order.add(note, entry)
                if self._timeline is not None:
                    self._timeline.add(rank, at, note)

    def count(self, rank: int, note: CallNote) -> None:
        """Count a call, for `calls` and `last_call`."""
        if not note.call.op:
            return
        if not note.call.rules.internal:
            self._latest[rank] = self._latest.get(rank, (0, note))[0] + 1, note
        found = self._counts.get(id(note.call))
        if found is None:
            if len(self._counts) >= MAX_KNOWN:
                self._uncounted[rank] += 1
                return
            line = note.call.source_line
            self.matcher.stacks[line.file, line.line].add(line.stack)
            found = self._counts[id(note.call)] = (note, Counter())
        found[1][rank] += 1


# -------------------------------------------------------------------------------- what is certain


def first_error(matcher: Matcher, running: Collection[int] | None = None) -> Finding | None:
    """Return the first error, marked as so far if calls that may still come could change it.

    Args:
        matcher: Calls of all ranks.
        running: After the end of the run, the ranks that were stopped; None during the run.
    """
    stuck = deadlocked_ranks(matcher)
    first = matcher.first()
    if isinstance(first, Problem):
        same, entry = alike(matcher, first), first.entry
        if entry is not None and entry.other is not None:
            same = [first]
            late = {each.rank for each in (entry, entry.other) if not each.accepted}
        else:
            late = _others(matcher, stuck) - {*first.settled}
            late -= {each.rank for each in same if each.entry is None or each.entry.accepted}
            if entry is not None and entry.calls_there is not None:
                late -= {each.rank for each in entry.calls_there.values() if each.accepted}
        return _so_far(together(same), late, running, names=True)
    if first is not None:
        found = mismatch(matcher, first)
        assert found is not None  # noqa: S101 - or it would not be in `found`
        return _so_far(found, _late_members(matcher, first, stuck), running)
    return (
        _missing_call(matcher, stuck, running)
        or find_cycle(matcher, stuck, running)
        or find_cycle(matcher, deadlocked_ranks(matcher, certain=False), running, certain=False)
    )


def _only_unknown_threads(matcher: Matcher, found: Finding) -> bool:
    """Return True for a deadlock that only threads without any call yet could resolve."""
    return (
        found.kind == "deadlock"
        and all(matcher.ranks[rank].blocked for rank in found.ranks or _named(found))
        and any(state.others for state in matcher.ranks)
    )


def _named(found: Finding) -> set[int]:
    return {rank for row in found.rows for rank in row.ranks}


def _so_far(
    finding: Finding, late: set[int], running: Collection[int] | None, *, names: bool = False
) -> Finding:
    """Mark a finding if calls of these late ranks could change it.

    Args:
        finding: Finding.
        late: Ranks that may still call or raise.
        running: After the end of the run, the ranks that were stopped; None during the run.
        names: True if the ranks at fault are so whatever the late ranks do.
    """
    late = late if running is None else late.intersection(running)
    if not late:
        return finding
    what = f"So far: {finding.what[0].lower()}{finding.what[1:]}"
    rule = f"{finding.rule} {ranks_of(tuple(late))} could still have changed this."
    return replace(finding, what=what, rule=rule, ranks=finding.ranks if names else (), so_far=True)


def _others(matcher: Matcher, stuck: Collection[int]) -> set[int]:
    """Return the ranks that may still make a call."""
    states = enumerate(matcher.ranks)
    return {rank for rank, state in states if not state.over and rank not in stuck}


def _late_members(matcher: Matcher, at: Position, stuck: Collection[int]) -> set[int]:
    """Return the members whose call at a position isn't known yet, but may be later."""
    group, entries = at[0], matcher.entries_at(at)
    late = {rank for rank, entry in entries.items() if not entry.accepted}
    return late | (_unsettled(matcher, group, stuck) - {*entries})


def _unsettled(matcher: Matcher, group: Group, stuck: Collection[int]) -> set[int]:
    """Return the members that may still make a call on the group, or fail."""
    left = {rank for rank, note in group.destroyed.items() if not note.failing}
    return (_others(matcher, stuck) & {*group.members}) - left


def _may_recover(matcher: Matcher, entry: Entry) -> bool:
    """Return True if the backend may raise in this call, and the program may handle that."""
    return not matcher.ranks[entry.rank].over and any(
        matcher.is_cut_off(rank, entry.group) for rank in entry.group.members
    )


def _missing_call(
    matcher: Matcher, stuck: Collection[int], running: Collection[int] | None
) -> Finding | None:
    """Return the first call that a rank, or send that a receiver, will never match."""
    for end in (state.ended for state in matcher.ranks):
        if end is not None and end.inside and end.how.startswith("raised"):
            alike = tuple(r for r, s in enumerate(matcher.ranks) if s.ended == end)
            row = Row(alike, f"in {end.inside}", str(end.source_line))
            what = f"{ranks_of(alike)} {end.how}"
            kind: Kind = "group" if "not part of group" in end.how else "argument"
            rule = WORLD_RANKS if kind == "group" else KINDS["argument"].rule
            found = Finding(kind, what, (row,), "", rule, alike)
            return _so_far(found, _others(matcher, stuck), running, names=True)
    for at, gone in matcher.missing_members():
        entries = matcher.entries_at(at)
        if not all(_may_skip(matcher, rank, at) for rank in entries):
            late = _late_members(matcher, at, stuck)
            if running is None and not any(matcher.ranks[rank].lost for rank in entries):
                late |= {rank for rank, each in entries.items() if _may_recover(matcher, each)}
            return _so_far(absent(matcher, *at, gone), late, running)
    for entry in matcher.unmatched():
        peer = entry.call.peer
        members = entry.group.members
        if peer is None or not -1 <= peer < len(members):
            continue
        others = {*members} - {entry.rank} if peer == -1 else {members[peer]}
        if not (entry.waited or entry.sends):
            continue
        if entry.failed and _recovered(matcher, entry.rank):
            continue
        if all(matcher.has_left_group(each, entry.group) for each in others):
            late = _unsettled(matcher, entry.group, stuck) - {entry.rank}
            if not entry.accepted or (running is None and _may_recover(matcher, entry)):
                late.add(entry.rank)
            return _so_far(unmatched(matcher, entry), late, running)
    return None


def _may_skip(matcher: Matcher, rank: int, at: tuple[Group, int]) -> bool:
    """Return True if a rank's call at a position failed, or may time out, without ending it."""
    state = matcher.ranks[rank]
    if any((each.group, each.position) == at and each.call.limited for each in state.blocked):
        return True
    return at in state.failed and _recovered(matcher, rank)


def _recovered(matcher: Matcher, rank: int) -> bool:
    """Return True if a rank apparently caught the exception of a call."""
    state = matcher.ranks[rank]
    return not state.lost and (state.ended is None or state.ended.how == "returned")


def deadlocked_ranks(matcher: Matcher, *, certain: bool = True) -> dict[int, Entry]:
    """Return the call of each rank that can never continue.

    A rank can continue if it isn't in a call, or if every rank that its call needs has arrived or
    can continue. An exited rank never arrives.

    Args:
        matcher: Calls of all ranks.
        certain: False to count calls, too, that a backend may finish before all ranks arrive.
    """
    running = [rank for rank, state in enumerate(matcher.ranks) if not state.over]
    stuck = {
        rank: [] if certain and matcher.ranks[rank].others else matcher.ranks[rank].blocked
        for rank in running
    }
    free = {rank for rank in running if not stuck[rank]}
    while True:
        stuck = {rank: entries for rank, entries in stuck.items() if rank not in free}
        freed = {
            rank
            for rank, entries in stuck.items()
            if any(_can_continue(matcher, e, free, certain=certain) for e in entries)
        }
        if not freed:
            return {rank: entries[0] for rank, entries in stuck.items()}
        free |= freed


def _can_continue(matcher: Matcher, entry: Entry, free: set[int], *, certain: bool) -> bool:
    if entry.sends and entry.call.peer == -1:
        return False  # no rank can receive it
    awaited = matcher.awaited(entry, certain=certain)
    if entry.call.limited or not awaited:
        return True
    if certain and (
        not entry.accepted or any(matcher.is_cut_off(rank, entry.group) for rank in awaited)
    ):
        return True  # the call may raise, and the program may handle that
    return any(each in free for each in awaited) if entry.from_any else free.issuperset(awaited)


def find_cycle(
    matcher: Matcher,
    waiting: dict[int, Entry],
    running: Collection[int] | None,
    *,
    certain: bool = True,
) -> Finding | None:
    """Return the deadlock: a cycle of ranks, each waiting for the next.

    Args:
        matcher: Calls of all ranks.
        waiting: Result of `deadlocked_ranks`.
        running: After the end of the run, the ranks that were stopped; None during the run.
        certain: Argument of `deadlocked_ranks`.
    """
    if not waiting:
        return None
    path: list[int] = [min(waiting)]
    while True:
        following = next((e for e in matcher.awaited(waiting[path[-1]]) if e in waiting), None)
        if following is None:  # it waits for an exited rank: see missing_call
            return None
        if following in path:
            path = path[path.index(following) :]
            break
        path.append(following)
    late = {each for rank in path for each in matcher.awaited(waiting[rank])} - {*waiting}
    late = {each for each in late if not matcher.ranks[each].over}
    if not certain:
        late.update(path)
    for rank in path:
        if near_match(matcher, waiting[rank]) is not None:
            return _so_far(unmatched(matcher, waiting[rank]), late, running)
    rows = tuple(_link(matcher, waiting[rank]) for rank in path)
    others = tuple(rank for rank in waiting if rank not in path)
    ranks = tuple(sorted(path))
    what = f"Deadlock: {ranks_of(ranks).lower()} are waiting for each other."
    calls = [waiting[rank].call for rank in path]
    p2p = {call.peer is not None for call in calls}
    rule = ORDER if p2p == {False} else KINDS["p2p"].rule
    if p2p == {True} and not any(call.batched for call in calls):
        rule = KINDS["deadlock"].rule
    found = Finding("deadlock", what, rows, "", rule, ranks, others)
    return _so_far(found, late, running)


def _link(matcher: Matcher, entry: Entry) -> Row:
    """Return the row of one rank in a cycle."""
    name = entry.group.name(matcher.world_size)
    on = "" if name.startswith("the default") else f" on {name}"
    on += " and" * (entry.call.op == END_OF_TRAFFIC)
    did = f"{entry.call}{on} waits for {ranks_of(matcher.awaited(entry)).lower()}"
    return Row((entry.rank,), did, matcher.line(entry.call.source_line))
