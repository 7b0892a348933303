"""Read the notes of all ranks, and decide when the first error in them is certain."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

from distdemo.calls.match import findings
from distdemo.calls.match.alike import Streams
from distdemo.calls.match.counts import CallCounter
from distdemo.calls.match.findings import Where
from distdemo.calls.match.lateness import Lateness
from distdemo.calls.match.matcher import Matcher
from distdemo.calls.match.order import OrderRule
from distdemo.calls.match.shifts import MAX_LINES
from distdemo.calls.match.state import CallSet, Entry, Group, Problem
from distdemo.calls.match.training_rule import TrainingRule
from distdemo.calls.match.waits import cycle_of, deadlocked_ranks, dropped_handles, near_match
from distdemo.calls.match.warning_rules import (
    MisuseRule,
    RemarkRule,
    ShapeRule,
    ShiftRule,
    UnseenRule,
    UnwaitedRule,
)
from distdemo.calls.notes import CallNote, Note
from distdemo.calls.records import (
    CallCount,
    Finding,
    Gap,
    Kind,
    Level,
    Levels,
    Unseen,
)
from distdemo.calls.timeline import Timeline

SETTLE_TIMEOUT_S = 5.0  # until a finding that is true so far is reported
LINES_TIMEOUT_S = 10.0  # until one is reported without lines that its ranks were asked for
BUSY_POLLS = 8  # polls per search for errors while notes arrive
FOR_FINDINGS: dict[Unseen, Kind] = {
    "buffers": "buffers",
    "gradients": "severed",
    "replicas": "replicas",
    "tensors": "replicas",
}
"""Kind of the findings that need what a rank looks at."""


RULES = (MisuseRule, ShiftRule, ShapeRule, OrderRule, UnwaitedRule, RemarkRule)
"""Rules other than those on training, in the order of their findings."""


class Judge:
    """Reads the notes of one world and decides when a finding is certain.

    Args:
        world_size: Number of ranks.
        timeline: Timeline that gets every note with a time, or None.

    Attributes:
        matcher: Comparison of the calls.
        finding: Finding, or None so far.
        lateness: Ranks that other ranks waited for.
        training: What the ranks train.
        levels: Levels that the user has chosen.
        wants_lines: True if ranks should tell the lines of calls that only torch's recorder has.
        asked: Ranks that can be asked for these.
    """

    def __init__(self, world_size: int, timeline: Timeline | None = None) -> None:
        self.matcher = Matcher(world_size)
        self.finding: Finding | None = None
        self.lateness = Lateness()
        self.training = TrainingRule(self.matcher)
        self._unseen = UnseenRule(self.matcher)
        self.matcher.rules = [self.training, *(rule(self.matcher) for rule in RULES), self._unseen]
        self.levels: Levels = {}
        self.wants_lines = False
        self.asked: Collection[int] = ()
        self._wanted_since = 0.0  # time at which it became True
        self._lowered: dict[object, Finding] = {}
        """Findings that would be errors by default, by their kind and lines."""
        self._received = False
        self._polls = 0
        self._candidate: object = None  # finding that is true so far
        self._candidate_since = 0.0  # time at which it was first seen
        self._timeline = timeline
        self._counts = CallCounter()
        self._streams = Streams(self.matcher, self.add, self._counts.add)

    def feed(self, rank: int, piece: bytes) -> None:
        """Add new notes of a rank; ``poll`` reads them."""
        self._received = True
        self._streams.feed(rank, piece)

    def poll(self) -> Finding | None:
        """Return a finding once it is certain, or has been true so far for a while."""
        received = self._received
        self._received = False
        self._polls += 1
        received |= not self._streams.poll(is_quiet=not received)
        matcher = self.matcher
        if self.finding is not None or matcher.stopped:
            return self.finding
        if received and not matcher.problems and self._polls % BUSY_POLLS:
            return None
        error = self._first_error()
        if error is None:
            self.wants_lines = False
        if error is None or not error.so_far:
            self._candidate = None
            self.finding = None if error and self._lacks_lines(error) else error
            return self.finding
        waiting = {"deadlock": range(matcher.world_size), "p2p": error.rows[-1].ranks}
        counts = [matcher.ranks[rank].call_count for rank in waiting.get(error.kind, ())]
        candidate = error.kind, error.rows[0], counts
        now = time.monotonic()
        if candidate != self._candidate:
            self._candidate = candidate
            self._candidate_since = now
        if now - self._candidate_since >= SETTLE_TIMEOUT_S and not self._lacks_lines(error):
            self.finding = error
        return self.finding

    def _lacks_lines(self, finding: Finding) -> bool:
        """Return True if ranks may still tell lines of this finding."""
        groups = self.matcher.groups.values()
        unknown = {
            rank
            for row in finding.rows
            for rank in row.ranks
            if (line := row.source_line) is not None and line.cpp and not line.line
        }
        asked = unknown.intersection(self.asked)
        if not any(group.recorded for group in groups) or all(
            self.matcher.ranks[rank].over for rank in asked
        ):
            return False
        now = time.monotonic()
        if not self.wants_lines:
            self.wants_lines = True
            self._wanted_since = now
        return now - self._wanted_since < LINES_TIMEOUT_S

    def check(self) -> Finding | None:
        """Return the finding if there is a certain one now that no rank is making calls."""
        self.read()
        if self.finding is None and not self.matcher.stopped:
            error = self._first_error()
            if error is not None and (self.matcher.problems or not error.so_far):
                self.finding = error
        return self.finding

    def conclude(self, running: Where | None = None) -> Finding | None:
        """Return the finding once the ranks' notes are complete.

        Args:
            running: Ranks that were stopped, and where they were; None if they all ended.
        """
        self.read()
        if self.matcher.stopped or (self.finding is not None and not self.finding.so_far):
            return self.finding
        running = running or {}
        error = self._first_error(running) or self.finding
        if error is None and (stuck := findings.stuck(self.matcher, running)):
            error = self._if_error(stuck)
        self.finding = error or next((f for f in self._others() if f.level == "error"), None)
        return self.finding

    def interrupt(self, running: Where) -> Finding | None:
        """Return the finding at the latest poll, before a signal ended the run.

        Later notes aren't read: the signal is the reason why the ranks ended.

        Args:
            running: Ranks that were stopped, and where they were.
        """
        self._streams.read_held(SETTLE_TIMEOUT_S)
        if self.finding is not None or self.matcher.stopped:
            return self.finding
        error = self._first_error()
        if error is None or error.so_far:
            stuck = findings.stuck(self.matcher, running)
            return None if stuck is None else self._if_error(stuck)
        return error

    def warnings(self) -> list[Finding]:
        """Return the possible errors so far."""
        return [finding for finding in self._others() if finding.level == "warn"]

    def notes(self) -> list[Finding]:
        """Return the remarks so far."""
        return [finding for finding in self._others() if finding.level == "note"]

    def gaps(self) -> tuple[Gap, ...]:
        """Return what ranks couldn't look at. Nobody asked about findings that are off."""
        off = {what for what, kind in FOR_FINDINGS.items() if self.levels.get(kind) == "off"}
        asked = {"calls", "lost", "buffers", "gradients"}
        if self.training.ledger.is_strict:
            asked |= {"tensors", "replicas"}
        return self._unseen.gaps(asked - off)

    def _first_error(self, running: Where | None = None) -> Finding | None:
        """Return the first finding whose level is error, and lower those before it.

        Args:
            running: As in `conclude`; None during the run, when only certain ones are lowered.
        """
        for error, problems in _Search(self.matcher, running).errors():
            if self._level(error) == "error":
                return error
            if running is not None or (problems and not error.so_far):
                self._if_error(error)
                self.matcher.waive(problems)
        return None

    def _if_error(self, finding: Finding) -> Finding | None:
        """Return a finding if its level is error; otherwise remember it with its level."""
        level = self._level(finding)
        if level == "error":
            return finding
        lines = tuple(row.source_line for row in finding.rows)
        if len(self._lowered) < MAX_LINES:
            self._lowered.setdefault((finding.kind, lines), replace(finding, level=level))
        return None

    def _level(self, finding: Finding) -> Level:
        return self.levels.get(finding.kind, finding.level)

    def _others(self) -> list[Finding]:
        """Return the findings that don't end the run, with their levels."""
        error = self.finding
        rules = (rule for rule in self.matcher.rules if not (error and rule.follows_errors))
        others = [finding for rule in rules for finding in rule.findings()]
        if error is not None and error.kind == "shift":  # it is the first of them
            others = [finding for finding in others if finding.kind != "shift"]
        leveled = (replace(finding, level=self._level(finding)) for finding in others)
        return [*self._lowered.values(), *leveled]

    def give_up(self, why: str) -> None:
        """Stop comparing after an internal error; later notes are only read."""
        self.matcher.stop(why)
        self._timeline = None

    def last_call(self, rank: int) -> str:
        """Return a rank's last call, ``all_reduce at train.py:12 (call 2)``; empty if none."""
        last = self.matcher.ranks[rank].last
        if last is None or self.matcher.stopped:
            return ""
        number = self._counts.total(rank)
        return f"{last.op} at {self.matcher.shown.line(last.source_line)} (call {number:,})"

    def leave_out_calls(self) -> None:
        """Have `calls` leave out the calls so far."""
        self._counts.leave_out()

    def calls(self) -> tuple[CallCount, ...]:
        """Return the calls in the order in which they first occurred, with their counts."""
        return self._counts.calls(self.matcher)

    # ---------------------------------------------------------------------------------- reading

    def read(self) -> None:
        """Read every note that has arrived."""
        self._streams.read()

    def add(self, rank: int, note: Note, at: int = 0) -> None:
        """Add a note of a rank, and its time in µs since 1970 or 0."""
        if isinstance(note, CallNote) and note.call.op and self._counts.add(rank, note):
            self.matcher.shown.remember(note.call.source_line)
        self.lateness.add(at, note, self.matcher.add(rank, note))
        if self._timeline is not None:
            self._timeline.add(rank, at, note)


# -------------------------------------------------------------------------------- what is certain


def first_error(matcher: Matcher, running: Collection[int] | None = None) -> Finding | None:
    """Return the first error, marked as so far if calls that may still come could change it.

    Args:
        matcher: Calls of all ranks.
        running: After the end of the run, the ranks that were stopped; None during the run.
    """
    return next((error for error, _ in _Search(matcher, running).errors()), None)


class _Search:
    """Search for the first error, and for the ranks that could still change it."""

    def __init__(self, matcher: Matcher, running: Collection[int] | None) -> None:
        self._matcher = matcher
        self._running = running
        self._stuck = deadlocked_ranks(matcher)
        states = enumerate(matcher.ranks)
        self._active = {
            rank for rank, state in states if not state.over and rank not in self._stuck
        }

    def errors(self) -> Iterator[tuple[Finding, Sequence[Problem | CallSet]]]:
        """Yield the errors, and the problems that each one describes, in the order to report them.

        Problems of a call come first: other errors may follow from them.
        """
        matcher = self._matcher
        for first in sorted(matcher.problems, key=attrgetter("place")):
            if first not in matcher.problems:  # an earlier one describes it
                continue
            if isinstance(first, Problem):
                alike = findings.alike(matcher, first)
                yield self._problem(first, alike), alike
            else:
                mismatch = findings.mismatch(matcher, first)
                yield self._so_far(mismatch, self._late_members(first)), [first]
        yield from ((error, ()) for error in self._others() if error is not None)

    def _others(self) -> Iterator[Finding | None]:
        """Yield the errors that aren't problems of one call, if there are any."""
        raised = findings.raised(self._matcher)
        yield raised and self._so_far(raised, self._active, names=True)
        yield self._missing_call()
        yield self._missing_peer()
        yield self._cycle(self._stuck)
        yield self._dropped_handle()
        yield self._cycle(deadlocked_ranks(self._matcher, certain=False), certain=False)

    def _so_far(self, finding: Finding, late: set[int], *, names: bool = False) -> Finding:
        """Mark a finding if calls of these late ranks could change it.

        Args:
            finding: Finding.
            late: Ranks that may still call or raise.
            names: True if the ranks at fault are so whatever the late ranks do.
        """
        if self._running is not None:
            late = late.intersection(self._running)
        if not late:
            return finding
        ranks = finding.ranks if names else ()
        return replace(finding, ranks=ranks, so_far=True, undecided=tuple(sorted(late)))

    def _problem(self, first: Problem, problems: Sequence[Problem]) -> Finding:
        entry = first.entry
        if entry is not None and entry.other is not None:
            late = {side.rank for side in (entry, entry.other) if not side.accepted}
            return self._so_far(first.finding, late, names=True)
        late = self._active - {*first.settled}
        for problem in problems:
            if problem.entry is None or problem.entry.accepted:
                late -= {*problem.finding.ranks}
        if entry is not None and entry.calls_there is not None:
            late -= {other.rank for other in entry.calls_there.values() if other.accepted}
        return self._so_far(findings.together(problems), late, names=True)

    def _late_members(self, calls: CallSet) -> set[int]:
        """Return the members whose call at a position isn't known yet, but may be later."""
        late = {rank for rank, entry in calls.items() if not entry.accepted}
        return late | (self._unsettled(calls.group) - {*calls})

    def _unsettled(self, group: Group) -> set[int]:
        """Return the members that may still make a call on the group, or fail."""
        left = {rank for rank, note in group.destroyed.items() if not note.failing}
        return (self._active & {*group.members}) - left

    def _missing_call(self) -> Finding | None:
        """Return the first call that a rank will never match."""
        matcher = self._matcher
        for calls, gone in matcher.missing_members():
            if not all(map(self._may_skip, calls.values())):
                late = self._late_members(calls)
                if not any(matcher.ranks[rank].lost for rank in calls):
                    late |= {rank for rank, entry in calls.items() if self._may_recover(entry)}
                return self._so_far(findings.absent(matcher, calls, gone), late)
        return None

    def _missing_peer(self) -> Finding | None:
        """Return the first send or receive that its peer will never match."""
        matcher = self._matcher
        for entry in matcher.pairing.unmatched():
            group = entry.group
            peer = entry.call.peer
            is_needed = entry.waited or entry.sends
            if peer is None or not is_needed or self._may_skip(entry):
                continue
            others = {*group.members} - {entry.rank} if peer == -1 else {group.members[peer]}
            if all(matcher.has_left_group(rank, group) for rank in others):
                late = self._unsettled(group) - {entry.rank}
                if not entry.accepted or self._may_recover(entry):
                    late.add(entry.rank)
                return self._so_far(findings.unmatched(matcher, entry), late)
        return None

    def _dropped_handle(self) -> Finding | None:
        """Return the dropped handle of a message that ranks wait for; it may still arrive."""
        matcher = self._matcher
        causes = dropped_handles(matcher, range(matcher.world_size), certain=True)
        if not causes:
            return None
        waiting = {entry.rank for entry in causes.values() if not matcher.ranks[entry.rank].over}
        return self._so_far(findings.dropped(matcher, causes), waiting, names=True)

    def _may_recover(self, entry: Entry) -> bool:
        """Return True if the backend may raise in this call, and the program may handle that."""
        matcher = self._matcher
        is_running = self._running is None and not matcher.ranks[entry.rank].over
        group = entry.group
        return is_running and any(matcher.is_cut_off(rank, group) for rank in group.members)

    def _may_skip(self, entry: Entry) -> bool:
        """Return True if a call failed, or may time out, without ending the rank's program."""
        state = self._matcher.ranks[entry.rank]
        if entry.call.limited and entry in state.blocked:
            return True
        return entry.failed and not state.lost and (state.ended is None or state.returned)

    def _cycle(self, waiting: dict[int, Entry], *, certain: bool = True) -> Finding | None:
        """Return the deadlock: a cycle of ranks, each waiting for the next.

        Args:
            waiting: Result of `deadlocked_ranks`.
            certain: Argument of `deadlocked_ranks`.
        """
        matcher = self._matcher
        path = cycle_of(matcher, waiting)
        awaited = {other for rank in path for other in matcher.awaited(waiting[rank])}
        late = {rank for rank in awaited - {*waiting} if not matcher.ranks[rank].over}
        if not certain:
            late.update(path)
        for rank in path:
            if near_match(matcher, waiting[rank]) is not None:
                return self._so_far(findings.unmatched(matcher, waiting[rank]), late)
        return self._so_far(findings.deadlock(matcher, path, waiting), late) if path else None
