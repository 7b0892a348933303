"""Compare the ranks' calls: pure logic over their notes, in any order of arrival.

The calls of a group form one sequence, and each member has its own position in it. Calls at the
same position must agree; calls that all members agreed on are only counted from then on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from distdemo.calls.match.pairing import Pairing
from distdemo.calls.match.rules import (
    CONTIGUOUS,
    KINDS,
    MEMBERS_ONLY,
    TAGS,
    check_arguments,
    compare_parts,
    differs,
    lacking_in_nccl,
    ranks_by_value,
)
from distdemo.calls.match.shifts import MAX_LINES
from distdemo.calls.match.shown import Shown
from distdemo.calls.match.state import (
    CallSet,
    Entry,
    Group,
    Problem,
    RankState,
)
from distdemo.calls.notes import (
    RECORDER,
    AcceptNote,
    CallNote,
    Destruction,
    EndNote,
    GroupKey,
    GroupNote,
    HandleNote,
    LineNote,
    Loss,
    Note,
    OrderNote,
    ReturnNote,
    StopNote,
    ThreadEndNote,
    WaitNote,
)
from distdemo.calls.records import (
    Finding,
    Kind,
    SourceLine,
)
from distdemo.launcher.verdict import ranks_of

MAX_PENDING = 10_000  # remembered calls per rank that were never waited for


class Rule:
    """Something else that is judged from the notes, other than which calls match.

    Args:
        matcher: Comparison of the calls, which gets every note first.

    Attributes:
        follows_errors: True if an error in the calls explains the findings.
        takes: Types of the notes that `add` gets.
    """

    follows_errors: ClassVar[bool] = False
    takes: ClassVar[tuple[type, ...]] = ()

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher

    def add(self, rank: int, note: Note, entry: Entry | None) -> None:
        """Add a note of a rank of these types, and the call that it is about, if any."""

    def agreed(self, entries: CallSet) -> None:
        """Add a call that all members of its group agreed on."""

    def repeats(self, group: Group, *, has_step: bool) -> bool:
        """Return True if it can do without a call that all members make as they did before.

        Args:
            group: Group of the call.
            has_step: True if the call belongs to a training step, the same on all members.
        """
        return True

    def findings(self) -> Iterable[Finding]:
        """Return the findings so far that haven't ended the run."""
        return ()


class Matcher:
    """Compares the calls of all ranks.

    Attributes:
        rules: What else is judged from the notes.
        ranks: State of each rank.
        pairing: Sends and receives.
        stopped: Reason why the comparison has stopped, or empty.
        problems: Problems, and calls at one position that differ.
        shown: Rows and lines of the findings.
        nccl: True if every group must keep NCCL's rules.
        dropped: Latest sends and receives whose handles were dropped before they were waited for.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.ranks = [RankState() for _ in range(world_size)]
        self.pairing = Pairing(self._check_pair)
        self.stopped = ""
        self.nccl = False
        self.rules: list[Rule] = []
        self.problems: list[Problem | CallSet] = []
        self.shown = Shown()
        self.groups: dict[GroupKey, Group] = {}
        self.dropped: deque[Entry] = deque(maxlen=MAX_LINES)
        self.unknown: frozenset[int] = frozenset()
        """Ranks of which there are no notes: nothing waits for them."""
        self._takers: dict[type, list[Rule]] = {}
        """Rules by the types of the notes that they take, since the first of these."""
        self._messages: Counter[tuple[Group, int, int | None, bool]] = Counter()
        """Number of messages by group, rank, peer, and whether the rank sends them."""

    def group(self, key: GroupKey) -> Group:
        """Return the group with this key; create it the first time."""
        group = self.groups.get(key)
        if group is None:
            members, backend, nth, _ = key
            label = f"group {list(members)}"
            if backend == "rpc":
                label = "the RPC group"
            elif nth:
                label += f" (number {nth + 1} with these ranks)"
            elif members == tuple(range(self.world_size)):
                label = ""
            is_known = all(0 <= member < self.world_size for member in members)
            numbers = {rank: number for number, rank in enumerate(members)} if is_known else {}
            group = Group(key, label, numbers, dict.fromkeys(members, 0))
            if unknown := self.unknown.intersection(members):
                group.begin(0, unknown)
            self.groups[key] = group
        return group

    @property
    def open_calls(self) -> int:
        """Number of calls that some other rank hasn't made yet."""
        return sum(len(group.open) for group in self.groups.values()) + len(self.pairing)

    @property
    def uses_rpc(self) -> bool:
        """True if a rank has called ``init_rpc``: what is called through RPC isn't compared."""
        return any(group.key.backend == "rpc" for group in self.groups.values())

    def stop(self, why: str) -> None:
        """Stop comparing, for this reason unless there is an earlier one."""
        self.stopped = self.stopped or why

    # ------------------------------------------------------------------------------------ notes

    def add(self, rank: int, note: Note) -> Entry | None:
        """Process one note of a rank, and return the call that it is about, if any.

        Notes of one rank must arrive in order.
        """
        if self.stopped:
            return None
        entry = self._record(rank, note)
        for rule in self._rules_for(type(note)):
            rule.add(rank, note, entry)
        return entry

    def _rules_for(self, kind: type) -> list[Rule]:
        """Return the rules that take notes of a type."""
        rules = self._takers.get(kind)
        if rules is None:
            rules = self._takers[kind] = [rule for rule in self.rules if kind in rule.takes]
        return rules

    def _record(self, rank: int, note: Note) -> Entry | None:
        state = self.ranks[rank]
        match note:
            case CallNote():
                return self._record_call(rank, state, note)
            case AcceptNote():
                state.others = note.others
                self._accept(state, note.thread)
            case WaitNote():
                return self._record_wait(state, note)
            case HandleNote():
                self._record_handle(state, note)
            case ReturnNote():
                return self._record_return(state, note)
            case OrderNote():
                return self._record_order(state, note)
            case LineNote():
                self._record_line(rank, note)
            case GroupNote(values=Loss()):
                self._record_loss(self.group(note.group))
            case ThreadEndNote():
                state.others = note.others
                state.threads.discard(note.thread)
                state.waits.pop(note.thread, None)
            case GroupNote(values=Destruction() as destruction):
                group = self.group(note.group)
                if destruction.kept or rank not in group.destroyed:
                    group.destroyed[rank] = destruction
                self._accept_on(group, state)
            case StopNote():
                self.stop(f"rank {rank}: {note.why}")
            case EndNote():
                self._record_end(state, note)
                if not (state.recorder_read or state.lost or note.signal or note.exit_code):
                    self._lose_unread(rank)
        return None

    def _record_call(self, rank: int, state: RankState, note: CallNote) -> Entry | None:
        call = note.call
        self._accept(state, note.thread)
        if not note.recorded:
            state.threads.add(note.thread)
        state.waits.pop(note.thread, None)
        if not (note.recorded and state.refused is not None):  # which is later
            state.last = state.last if call.rules.internal else call
            state.refused = None
        entry = self._enter(rank, state, note)
        if entry is not None:
            state.unconfirmed[note.thread] = entry
            if call.source_line.cpp or note.recorded:  # our kernels record no rejection
                self._accept(state, note.thread)
            entry.no_wait = note.recorded
            if call.sync:
                entry.waited = True
                state.waited = entry.order
                state.waits[note.thread] = entry
            else:
                state.pending[state.call_count] = entry
                if len(state.pending) > MAX_PENDING:
                    del state.pending[next(iter(state.pending))]
        state.call_count += 1
        return entry

    def _enter(self, rank: int, state: RankState, note: CallNote) -> Entry | None:
        """Compare a call with those of other ranks; return None if the rank isn't in the group."""
        call = note.call
        group = self.group(note.group)
        if rank not in group.numbers:
            return None  # a note of another world
        if call.outside:
            what = f"{call.op} on a group that doesn't include this rank."
            row = self.shown.row(rank, call, call.op)
            finding = Finding("group", what, (row,), "", MEMBERS_ONLY, (rank,))
            self.report(rank, finding, by_rank=True)
            return None
        entry = Entry(
            rank,
            group,
            call,
            note.agreement,
            note.serial,
            order=state.call_count,
            step=note.step,
        )
        size = len(group.members)
        wrong = check_arguments(call, group.numbers[rank], size, group.key.backend)
        if self.nccl and wrong is None and (why := lacking_in_nccl(call)):
            wrong = "nccl", why
        if wrong is not None:
            kind, why = wrong
            where = f" in {group.label}" if group.label else ""
            rule = CONTIGUOUS if kind == "buffers" else KINDS[kind].rule
            rows = (self.shown.row(rank, call),)
            finding = Finding(kind, f"{why}{where}.", rows, self.before(group), rule, (rank,))
            entry.wrong = self.report(rank, finding, entry, by_rank=True)
        if call.peer is not None:
            message = group, rank, call.peer, entry.sends
            entry.position = self._messages[message]
            self._messages[message] += 1
            self.pairing.add(entry)
            return entry
        if note.unordered or note.recorded:
            group.recorded = True
        if note.unordered:
            state.unordered[entry.order] = entry
        elif not group.lost:
            self._accept_on(group, state)  # the calls of its other threads
            self._place(entry, state)
        return entry

    def _place(self, entry: Entry, state: RankState) -> None:
        """Compare a call with those at the next position of its group."""
        group = entry.group
        rank = entry.rank
        entry.turn = state.call_count
        entry.position = group.reached[rank]
        group.reached[rank] += 1
        calls = group.at(entry.position)
        known = calls.is_waived or calls in self.problems
        if not known and _clashes(entry, calls):
            self.problems.append(calls)
        calls[rank] = entry
        calls.lacking = None
        calls.unconfirmed += not entry.accepted
        entry.calls_there = calls
        if not calls.unconfirmed:
            self._agree(group)

    def _record_order(self, state: RankState, note: OrderNote) -> Entry | None:
        if note.number < 0:
            state.recorder_read = True
            return None
        entry = state.unordered.pop(note.number, None)
        if entry is None or entry.group.lost:
            return None
        for thread, latest in list(state.unconfirmed.items()):
            if latest is entry:
                self._accept(state, thread)
        self._place(entry, state)
        return entry

    def _record_line(self, rank: int, note: LineNote) -> None:
        """Replace the unknown line of a call that other ranks haven't agreed on yet."""
        for group in self.groups.values():
            for calls in group.open if group.recorded else ():
                entry = calls.get(rank)
                if entry is not None and entry.order == note.number:
                    entry.call = replace(entry.call, source_line=note.source_line)
                    self.shown.remember(note.source_line)

    def _record_loss(self, group: Group) -> None:
        """End the comparison of a group."""
        group.lost = True
        for calls in group.open:
            for entry in calls.values():
                entry.calls_there = None
        self.problems = [
            problem
            for problem in self.problems
            if (problem.group if isinstance(problem, CallSet) else None) is not group
        ]
        group.open.clear()

    def _lose_unread(self, rank: int) -> None:
        """End the comparison of groups on which calls of this rank may not have been read."""
        for group in list(self.groups.values()):
            if group.recorded and rank in group.numbers and not group.lost:
                self.add(rank, GroupNote(group.key, Loss(0)))

    def _record_wait(self, state: RankState, note: WaitNote) -> Entry | None:
        self._accept(state, note.thread)
        entry = state.pending.pop(note.number, None)
        if note.thread != RECORDER:  # it knows of no threads, and numbers calls late
            state.others = note.others
            state.waited = max(state.waited, note.number)
        if entry is not None:
            entry.waited = True
            state.waits[note.thread] = entry
        return entry

    def _record_handle(self, state: RankState, note: HandleNote) -> None:
        entry = state.pending.get(note.number)
        if entry is None:
            return
        if not note.dropped:
            entry.no_wait = True
        elif entry.group.facts.needs_handles and not entry.no_wait:
            entry.dropped = True
            self.dropped.append(entry)

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
        elif entry is not None and entry.from_any and not entry.matched:
            self.pairing.resolve_sender(entry, note.source)
        return entry

    def _undo(self, entry: Entry) -> None:
        """Remove a call that torch rejected before making it."""
        if entry.wrong is not None and entry.wrong in self.problems:
            self.problems.remove(entry.wrong)
            self.ranks[entry.rank].refused = entry.wrong
        if entry.call.peer is None and entry.calls_there is None:
            self.ranks[entry.rank].unordered.pop(entry.order, None)
            return
        if entry.calls_there is None:
            self._messages[entry.group, entry.rank, entry.call.peer, entry.sends] -= 1
            self.pairing.undo(entry)
            return
        calls = entry.calls_there
        entry.group.reached[entry.rank] -= 1
        del calls[entry.rank]
        calls.lacking = None
        calls.unconfirmed -= 1
        if calls in self.problems and differs(calls.by_rank, entry.group.members) is None:
            self.problems.remove(calls)

    def _record_end(self, state: RankState, note: EndNote) -> None:
        self.accept_all(state)
        if note.lost_peer:  # it was waiting for a rank that failed
            state.lost = True
            return
        state.ended = note
        state.waits.clear()
        last = state.last.source_line if state.last is not None else SourceLine()
        line = note.source_line
        if note.how == "killed" and not line.line:
            line = last
        ended_there = (line.file, line.line) == (last.file, last.line)
        if state.refused is not None and (note.how == "exited" or ended_there):
            self.problems.append(state.refused)

    def accept_all(self, state: RankState) -> None:
        """Confirm the latest calls of a rank that has ended: torch hasn't rejected them."""
        for thread in list(state.unconfirmed):
            self._accept(state, thread)

    def _accept_on(self, group: Group, state: RankState) -> None:
        """Confirm the latest calls of a rank on a group."""
        for thread, entry in list(state.unconfirmed.items()):
            if entry.group is group:
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

    # ------------------------------------------------------------------------------- agreement

    def _agree(self, group: Group) -> None:
        """Drop the calls that all members agreed on."""
        while group.open and len(group.open[0]) == group.size:
            entries = group.open[0]
            if entries.unconfirmed or entries in self.problems:
                return
            group.open.popleft()
            calls = entries.by_rank
            serials = frozenset((rank, entry.serial) for rank, entry in entries.items())
            group.lines.add(calls, serials, group.agreed + 1 - group.internal)
            for rule in self.rules:
                rule.agreed(entries)
            if calls[min(calls)].rules.internal:
                group.internal += 1
            else:
                group.last = calls
            group.agreed += 1

    def waive(self, problems: Sequence[Problem | CallSet]) -> None:
        """Continue as if there weren't these problems."""
        for problem in problems:
            self.problems.remove(problem)
            if isinstance(problem, CallSet):
                problem.is_waived = True
                self._agree(problem.group)

    def _check_pair(self, send: Entry, receive: Entry) -> None:
        sent = send.call
        received = receive.call
        if sent.partial:
            return
        kind: Kind = "p2p"
        rule = KINDS[kind].rule
        sends = f"Rank {send.rank} sends"
        receives = f"and rank {receive.rank} receives"
        counts = f"{sends} {sent.count} elements, {receives} {received.count}"
        if sent.dtype != received.dtype:
            what = f"{sends} {sent.dtype}, {receives} {received.dtype}."
        elif sent.count > received.count:
            what = f"{counts}: the receiver's tensor is too small."
        elif sent.count < received.count and not send.group.facts.accepts_shorter:
            what = f"{counts}: the receiver's tensor is too large, and only part of it is filled."
        elif self.nccl and send.position != receive.position:
            kind, rule = "nccl", TAGS
            what = f"NCCL would give rank {receive.rank} another message of rank {send.rank}."
        else:
            return
        rows = (self.shown.row(send.rank, sent), self.shown.row(receive.rank, received))
        both = (send.rank, receive.rank)
        finding = Finding(kind, what, rows, "", rule, both)
        send.wrong = receive.wrong = self.report(send.rank, finding, send)

    # --------------------------------------------------------------------------------- findings

    def with_cause(
        self, finding: Finding, entries: CallSet, sides: Sequence[Collection[int]]
    ) -> Finding:
        """Return the finding, or one on the earlier call that it follows from.

        Args:
            finding: Finding on a call that ranks made differently, or that some haven't made.
            entries: This call.
            sides: Ranks that did the same.
        """
        group = entries.group
        cause = group.lines.cause(entries.by_rank, sides)
        if cause is None:
            return finding
        return cause.finding(group.name, self.shown, finding)

    def report(
        self,
        rank: int,
        finding: Finding,
        entry: Entry | None = None,
        settled: Collection[int] = (),
        *,
        by_rank: bool = False,
    ) -> Problem:
        """Add a problem of a rank, and of this call of it if there is one; see `Problem`."""
        order = self.ranks[rank].call_count if entry is None else entry.order
        problem = Problem(finding, (order, rank), entry, settled, by_rank)
        self.problems.append(problem)
        return problem

    def before(self, group: Group) -> str:
        """Return how many calls of the group all ranks agreed on, as text."""
        agreed = group.agreed - group.internal - group.first
        last = group.last
        for calls in group.open:
            if len(calls) < group.size or calls in self.problems:
                break
            if not calls[min(calls)].call.rules.internal:
                agreed += 1
                last = calls.by_rank
        if not last:
            return ""
        lines = {rank: str(self.shown.line(call.source_line)) for rank, call in last.items()}
        usual, *others = ranks_by_value(lines)
        places = [lines[usual[0]]]
        places += (f"{lines[ranks[0]]} ({ranks_of(ranks).lower()})" for ranks in others)
        count = f"on {agreed} calls; the last was" if agreed > 1 else "on one call,"
        op = next(iter(last.values())).op
        return f"Before that, all ranks agreed {count} {op} at {', '.join(places)}."

    # -------------------------------------------------------------------------- who waits for whom

    def awaited(self, entry: Entry, *, certain: bool = False) -> tuple[int, ...]:
        """Return the global ranks that this call still waits for.

        Args:
            entry: Call of a rank.
            certain: True to leave out ranks that only receive from this one: a backend may finish
                the call without them.
        """
        call = entry.call
        if call.peer is not None:
            return self.pairing.awaited(entry, certain=certain)
        group = entry.group
        number = group.numbers[entry.rank]
        calls = entry.calls_there
        if calls is None:
            return ()
        if calls.lacking is None:
            reached = group.reached
            calls.lacking = tuple(m for m in group.members if reached[m] <= entry.position)
        makers = {*call.members}  # other ranks may return from new_group immediately
        return tuple(
            rank
            for rank in calls.lacking
            if rank != entry.rank
            and (
                (
                    call.receives_from(number, group.numbers[rank])
                    and (not makers or {entry.rank, rank} <= makers)
                )
                or (not certain and call.sends_to(number, group.numbers[rank]))
            )
        )

    def has_left_group(self, rank: int, group: Group) -> bool:
        """Return True if a rank will make no more calls on a group."""
        if rank in group.silent:
            return False
        return rank in group.destroyed or self.ranks[rank].ended is not None

    def is_cut_off(self, rank: int, group: Group) -> bool:
        """Return True if a rank has closed its connections: other ranks' calls may raise."""
        state = self.ranks[rank]
        if state.ended is not None and not state.returned:
            return True
        destruction = group.destroyed.get(rank)
        return destruction is not None and not destruction.kept

    def missing_members(self) -> Iterator[tuple[CallSet, tuple[int, ...]]]:
        """Yield calls that some members never make, and these members."""
        for group in self.groups.values():
            if not (group.open and group.numbers):
                continue
            gone = [rank for rank in group.members if self.has_left_group(rank, group)]
            for calls in group.open:
                lack = tuple(rank for rank in gone if group.reached[rank] <= calls.position)
                if lack:
                    yield calls, lack


def _clashes(entry: Entry, calls: CallSet) -> bool:
    """Return True if a call doesn't match the other calls at its position."""
    call = entry.call
    members = entry.group.members
    first = next(iter(calls.values()), entry)
    if first.agreement != entry.agreement:
        return differs({**calls.by_rank, entry.rank: call}, members) is not None
    if call.partial or not call.rules.parts:
        return False
    if call.part_size is None or call.part_size != first.call.part_size:
        calls.is_uneven = True
    return calls.is_uneven and any(
        compare_parts({rank: other.call, entry.rank: call}, members) is not None
        for rank, other in calls.items()
    )
