"""Put together what the files of a job have, and compare the calls of its ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from distdemo.calls.flight.entries import CallState
from distdemo.calls.match.judge import Judge
from distdemo.calls.match.rules import agreement
from distdemo.calls.match.state import Group
from distdemo.calls.notes import CallNote, GroupKey, Note, ReturnNote, WaitNote
from distdemo.calls.records import RankCall
from distdemo.postmortem.logs import Log
from distdemo.postmortem.records import GroupId, RankCalls, RankEnd
from distdemo.view.format import ranks_text

TURN = 200  # notes of a rank that are read before those of the next one
KINDS = ("raised", "thrown", "timed out", "silent", "exited")
"""Kinds of ends, those that say most first: of a rank, the first counts."""


@dataclass(eq=False, slots=True)
class JobGroup:
    """Process group.

    Attributes:
        members: Global ranks in group order; if no file has them, the ranks that called it.
        is_inferred: True if no file has the members.
        first: Number of the first known call, by rank.
        reached: Number of the last call, by rank; 0 for a member whose dump has no call.
        agreed: Number of calls that all ranks with calls have made.
        begin: Number of calls before the first that is compared.
        completed: Number of the last call that some gloo rank can only have completed after all
            members had made it.
    """

    id: GroupId
    members: tuple[int, ...]
    first: dict[int, int] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    agreed: int = 0
    begin: int = 0
    completed: int = 0
    is_inferred: bool = False

    def __str__(self) -> str:
        """Return ``the default group``, or ``group "tp" [0-3]``."""
        if self.id.is_default:
            return "the default group"
        desc = "" if self.id.desc in ("", "undefined") else f'"{self.id.desc}" '
        if self.is_inferred:
            return f"group {desc or self.id.name}".rstrip()
        return f"group {desc}[{ranks_text(self.members)}]"


class Job:
    """Everything that was read about one job.

    Args:
        dumps: Dump of each rank that left one.
        logs: Logs, each with its rank or None.
        has_unknown_ranks: True if there are logs of ranks that nothing tells.
        world_size: Number of ranks; 0 if unknown.

    Attributes:
        calls: Calls of each rank: those of its dump, or else of its log.
        ends: End of each rank, by its own messages or else by torchrun's.
        unplaced: Causes that no line gives a rank.
        has_unknown_ranks: True if a rank without an error may have one.
        first: Ranks that torchrun saw fail first.
        stopped: Ranks that had not failed before torchrun stopped them.
        world_size: Number of ranks.
        older: Ranks whose dump is from before the end of calls that other ranks' dumps have.
        notes: Facts for the report.
        judge: Comparison of the ranks' calls.
        groups: Groups of the job, by the group in the comparison.
    """

    def __init__(
        self,
        dumps: dict[int, RankCalls],
        logs: list[tuple[int | None, Log]],
        *,
        has_unknown_ranks: bool = False,
        world_size: int = 0,
    ) -> None:
        self.calls = dict(dumps)
        self.ends: dict[int, RankEnd] = {}
        self.unplaced: list[RankEnd] = []
        self.first: set[int] = set()
        self.stopped: set[int] = set()
        self.notes: list[str] = []
        ends = [end for _, log in logs for end in log.ends]
        for rank, end in sorted(ends, key=lambda pair: KINDS.index(pair[1].kind)):
            if rank is not None:
                self.ends.setdefault(rank, end)
            elif not end.is_consequence:
                self.unplaced.append(end)
        self.has_unknown_ranks = has_unknown_ranks or any(rank is None for rank, _ in ends)
        for _, log in logs:
            self.first |= log.first
            self.stopped |= log.stopped
            self.calls = log.calls | self.calls
        with_log = {rank for rank, _ in logs if rank is not None}
        self.world_size = world_size or self._find_world_size(with_log)
        self._groups: dict[tuple[str, tuple[int, ...]], JobGroup] = {}
        for rank, calls in sorted(self.calls.items()):
            for name in {*calls.groups, *(call.group for call in calls.calls)}:
                if name.members:  # these first: groups without members are found by name
                    self._group(rank, name)
        for rank, calls in sorted(self.calls.items()):
            self._add_calls(rank, calls)
        for group in self._groups.values():
            if not group.members:
                everyone = range(self.world_size) if group.id.is_default else sorted(group.reached)
                group.members = tuple(everyone)
                group.is_inferred = not group.id.is_default
            for rank, calls in self.calls.items():
                if calls.is_dump and rank in group.members:
                    group.reached.setdefault(rank, 0)
            group.agreed = min(group.reached.values(), default=0)
            group.begin = max(group.first.values(), default=1) - 1
        self.older = sorted(
            {
                rank
                for group in self._groups.values()
                for rank, reached in group.reached.items()
                if reached < group.completed
            }
        )
        self.groups: dict[Group, JobGroup] = {}
        self.judge = self._compare()

    def _find_world_size(self, with_log: set[int]) -> int:
        groups = [group for calls in self.calls.values() for group in calls.groups]
        known = {*self.calls, *self.ends, *self.stopped, *with_log}
        known.update(member for group in groups for member in group.members)
        last = max(known, default=-1)
        if known and not any(group.is_default and group.members for group in groups):
            self.notes.append(f"The world size, {last + 1}, is inferred from the highest rank.")
        return last + 1

    def _group(self, rank: int, name: GroupId) -> JobGroup:
        """Return a group; one without members is that of its name which has this rank."""
        group = self._groups.get((name.name, name.members))
        if group is None and not name.members:
            named = (g for g in self._groups.values() if g.id.name == name.name)
            group = next((g for g in named if rank in g.members), None)
        if group is None:
            group = JobGroup(name, name.members)
            self._groups[name.name, name.members] = group
        return group

    def _add_calls(self, rank: int, calls: RankCalls) -> None:
        ended: dict[JobGroup, int] = {}  # last call that can't have failed if another follows
        for name, number, call, state in calls.calls:
            group = self._group(rank, name)
            if not number:
                continue
            group.completed = max(group.completed, ended.pop(group, 0))
            if number != group.reached.get(rank, 0) + 1:  # earlier ones were lost
                group.first[rank] = number
            group.reached[rank] = number
            if state == CallState.ENDED and call.rules.data == "all to all":
                ended[group] = number

    # -------------------------------------------------------------------------------- compare

    def _compare(self) -> Judge:
        """Compare the calls of all ranks."""
        judge = Judge(max(self.calls, default=-1) + 1)
        nth: Counter[tuple[int, ...]] = Counter()
        backend = next((calls.backend for calls in self.calls.values()), "")
        notes_of_call: dict[tuple[object, ...], CallNote] = {}
        matched: dict[JobGroup, Group] = {}
        for group in self._groups.values():
            key = GroupKey(group.members, backend, nth[group.members])
            matched[group] = judge.matcher.group(key)
            matched[group].label = "" if group.id.is_default else str(group)
            nth[group.members] += 1
            silent = set(group.members) - group.reached.keys()
            matched[group].begin(group.begin, silent)
        self.groups = {there: group for group, there in matched.items()}

        def note_of(group: JobGroup, call: RankCall, *, is_done: bool) -> CallNote:
            """Return the note of a call; equal calls of all ranks share one."""
            key = group, call, call.source_line.stack, is_done
            if key not in notes_of_call:
                made = replace(call, sync=is_done, group=group.members)
                notes_of_call[key] = CallNote(matched[group].key, made, agreement(made))
            return notes_of_call[key]

        def notes_of(rank: int) -> Iterator[Note]:
            """Yield the notes of a rank, which waits for its first call that is not done.

            The last gloo call of a rank may have failed, unless all other ranks have made it.
            """
            known: dict[tuple[int, int, bool], CallNote] = {}  # by identity, which is faster
            made = 0
            waited: int | None = None
            for name, number, call, state in self.calls[rank].calls:
                group = self._group(rank, name)
                if 0 < number <= group.begin:
                    continue
                is_last = number == group.reached.get(rank)
                is_done = state == CallState.COMPLETED or (
                    state == CallState.ENDED and not (is_last and number > group.agreed)
                )
                key = id(group), id(call), is_done
                if key not in known:
                    known[key] = note_of(group, call, is_done=is_done)
                yield known[key]
                if is_done:
                    yield ReturnNote()
                elif waited is None:
                    waited = made
                made += 1
            if waited is not None:
                yield WaitNote(waited)

        streams = {rank: notes_of(rank) for rank in sorted(self.calls)}
        while streams:
            for rank, stream in list(streams.items()):
                notes = list(islice(stream, TURN))
                for note in notes:
                    judge.add(rank, note)
                if not notes:
                    del streams[rank]
        return judge
