"""Put together what all files of a job have, and turn the ranks' calls into notes."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from distdemo.calls.match.judge import Judge
from distdemo.calls.match.rules import agreement
from distdemo.calls.notes import CallNote, GroupKey, Note, ReturnNote, WaitNote
from distdemo.calls.records import UNKNOWN_CALL, PartialCall, RankCall, SourceLine
from distdemo.calls.timeline import Timeline
from distdemo.errors import UsageError
from distdemo.postmortem.content import (
    MAX_GAP,
    CallState,
    Content,
    Dump,
    End,
    GroupName,
    Span,
    Writer,
)
from distdemo.view.format import ranks_text

MAX_RANKS = 1 << 16
TURN = 200  # notes of a rank that are read before those of the next one


@dataclass(eq=False, slots=True)
class JobGroup:
    """Process group.

    Attributes:
        name: Name that torch gave it.
        desc: Description by the user, or empty.
        members: Global ranks in group order.
        spans: Calls of each rank whose calls are known.
        is_inferred: True if no file has the members.
        met: Number of the last call that all members must have made; 0 if unknown.
        ended: Likewise, of those that a rank may not have completed when it made another one.
        agreed: Number of calls that all ranks with calls have made.
        newest: Number of calls after which some rank's dump is too old to tell.
        begin: Number of calls before the first that is compared.
        key: Key of the group in notes.
    """

    name: str
    desc: str
    members: tuple[int, ...]
    spans: dict[int, Span] = field(default_factory=dict)
    is_inferred: bool = False
    met: int = 0
    ended: int = 0
    agreed: int = 0
    newest: int = sys.maxsize
    begin: int = 0
    key: GroupKey = ((), "", 0)

    @property
    def is_default(self) -> bool:
        """True for the group of all ranks that init_process_group creates."""
        return self.desc == "default_pg" or (self.name == "0" and not self.desc)

    def __str__(self) -> str:
        """Return ``the default group``, or ``group "tp" [0-3]``."""
        if self.is_default:
            return "the default group"
        desc = "" if self.desc in ("", "undefined") else f'"{self.desc}" '
        return f"group {desc}[{ranks_text(self.members)}]"


class Job:
    """Everything that was read about one job.

    Attributes:
        dumps: Calls of each rank, and their groups.
        groups: Groups of the job.
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
        has_numbers: False if calls are known from stacks only, which have no numbers.
        last: Each rank's last call, with its number, group and state.
    """

    def __init__(self) -> None:
        self.dumps: defaultdict[int, list[tuple[Dump, list[JobGroup]]]] = defaultdict(list)
        self.groups: list[JobGroup] = []
        self.ends: list[tuple[int, End]] = []
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
        self.has_numbers = True
        self.last: dict[int, tuple[RankCall, int, JobGroup, int]] = {}
        self._named: defaultdict[str, list[JobGroup]] = defaultdict(list)
        self._notes: dict[object, CallNote] = {}

    def add(self, rank: int, dump: Dump) -> None:
        """Add the calls of one rank. Calls that an earlier file of the rank has stay."""
        groups = [self._group(name) for name in dump.groups]
        self.dumps[rank].append((dump, groups))
        if backend := f"{dump.backend} {dump.library}".strip():
            self.backends.setdefault(backend)
        self.limit_s = max(self.limit_s, dump.limit_s)
        for group, span in zip(groups, dump.groups.values(), strict=True):
            if span.reached:
                group.spans.setdefault(rank, span)

    def _group(self, key: GroupName) -> JobGroup:
        """Return the group with this key; names are unique among groups with unknown members."""
        name, desc, members = key
        for group in self._named[name]:
            if (group.desc == desc or not (desc and group.desc)) and (
                group.members == members or not (members and group.members)
            ):
                group.members = group.members or members
                group.desc = group.desc or desc
                return group
        group = JobGroup(name, desc, members)
        self.groups.append(group)
        self._named[name].append(group)
        return group

    def add_log(self, content: Content, rank: int | None, first: int | None) -> None:
        """Add what ranks wrote to a log, or what RAS reports about them.

        Args:
            content: Content of the file.
            rank: Rank of lines without a prefix, or None if unknown.
            first: Global rank of its host's local rank 0, or None if unknown.
        """

        def rank_of(writer: Writer) -> int | None:
            kind, number = writer
            if kind == "local rank":
                return None if first is None else first + number
            return number if kind == "rank" or (kind == "message" and rank is None) else rank

        for writer, dump in content.dumps:
            if (owner := rank_of(writer)) is not None:
                self.add(owner, dump)
        for writer, end in content.ends:
            owner = rank_of(writer)
            if end.is_exit and owner is not None:
                self.exits.setdefault(owner, end)
            elif owner is not None:
                self.ends.append((owner, end))
            elif not end.is_consequence:
                self.unplaced.append(end)
        self.out_of_memory |= content.out_of_memory
        self.stopped |= content.stopped
        if rank is not None and content.kind == "empty":
            self.silent.add(rank)

    # ---------------------------------------------------------------------- what no file says

    def infer(self) -> None:
        """Fill in the world size, members and counts that no file has; note what was inferred."""
        self._place_ends()
        if self.stands and not self.dumps:
            self.has_numbers = False
            for rank, (line, op) in self.stands.items():
                dump = Dump(is_complete=True)
                if op:
                    call = dump.number(PartialCall(op, line, count=-1))
                    dump.add(("0", "", ()), 1, call, CallState.STARTED)
                self.add(rank, dump)
        known = {*self.dumps, *self.silent, *self.stands, *self.exits, *self.stopped}
        known.update(rank for rank, _ in self.ends)
        known.update(member for group in self.groups for member in group.members)
        self.world_size = max(known, default=-1) + 1
        if known and not any(group.is_default and group.members for group in self.groups):
            self.notes.append(
                f"The world size, {self.world_size}, is inferred from the highest rank."
            )
        self._find_met()
        older: set[int] = set()
        complete = {rank for rank, dumps in self.dumps.items() if dumps[0][0].is_complete}
        for group in self.groups:
            group.is_inferred = not group.members
            if group.is_inferred:
                everyone = range(self.world_size)
                group.members = tuple(everyone if group.is_default else sorted(group.spans))
            for rank in complete.intersection(group.members):
                group.spans.setdefault(rank, Span())
            group.agreed = min((span.reached for span in group.spans.values()), default=0)
            older.update(rank for rank, span in group.spans.items() if span.reached < group.ended)
        if any(group.is_inferred and not group.is_default for group in self.groups):
            self.notes.append("The members of groups are inferred from the ranks that called them.")
        self.older = tuple(sorted(older))

    def _find_met(self) -> None:
        """Find the last calls that all members must have made.

        A call that has ended can't have failed if its rank made another one afterwards. NCCL also
        completes calls that it has aborted.
        """
        for rank, dumps in self.dumps.items():
            for dump, groups in dumps:
                spans = list(dump.groups.values())
                is_common = [synchronises(call) for call, _ in dump.table]
                for index, number, call, state, _ in zip(*dump.columns, strict=True):
                    if state < CallState.COMPLETED or not number or not is_common[call]:
                        continue
                    group = groups[index]
                    if number < spans[index].reached and group.spans[rank] is spans[index]:
                        group.met = max(group.met, number)
                        if state == CallState.ENDED:
                            group.ended = max(group.ended, number)

    def _place_ends(self) -> None:
        """Give each end without a rank to the only rank with its exit code, if there is one."""
        named = {rank for rank, _ in self.ends}
        for verb, code in (("died", "died of SIGABRT"), ("raised", "exited with code 1")):
            ends = {end.how: end for end in self.unplaced if end.how.startswith(verb)}
            ranks = [r for r, end in self.exits.items() if end.how == code and r not in named]
            if len(ends) == len(ranks) == 1:
                (end,) = ends.values()
                self.unplaced = [other for other in self.unplaced if other.how != end.how]
                self.ends.append((ranks[0], end))

    # -------------------------------------------------------------------------------- compare

    def compare(self, timeline: Timeline | None = None) -> Judge:
        """Compare the calls of all ranks, and write them to the timeline.

        Raises:
            UsageError: There are too many ranks.
        """
        last = max(self.dumps, default=-1)
        if last >= MAX_RANKS:
            raise UsageError(
                f"A file is of rank {last:,}.",
                f"postmortem compares up to {MAX_RANKS:,} ranks.",
                "The rank is the number in the file's name, unless its lines have one.",
            )
        judge = Judge(last + 1)
        backend = next(iter(self.backends), "")
        nth: Counter[tuple[int, ...]] = Counter()
        for group in self.groups:
            group.key = (group.members, backend, nth[group.members])
            nth[group.members] += 1
            firsts = [span.first - 1 for span in group.spans.values() if span.reached] or [0]
            group.begin = max(min(firsts), max(firsts) - MAX_GAP)
            silent = set(group.members) - group.spans.keys()
            judge.matcher.group(*group.key).begin(group.begin, silent, str(group))
            old = [group.spans[rank].reached for rank in self.older if rank in group.spans]
            group.newest = min(old, default=sys.maxsize)
        notes = {rank: self._notes_of(rank) for rank in sorted(self.dumps)}
        while notes:
            for rank in list(notes):
                turn = list(islice(notes[rank], TURN))
                for at, note, is_started in turn:
                    if isinstance(note, CallNote):
                        judge.count(rank, note)
                    entry = judge.matcher.add(rank, note)
                    if entry is not None and entry.calls_there is not None and not is_started:
                        entry.calls_there.enqueued |= {rank}
                    if timeline is not None:
                        timeline.add(rank, at, note)
                if not turn:
                    del notes[rank]
        for group in self.groups:
            for rank in group.spans.keys() & set(self.older):  # it may have made more
                judge.matcher.group(*group.key).reached[rank] = sys.maxsize
        return judge

    def _notes_of(self, rank: int) -> Iterator[tuple[int, Note, bool]]:
        """Yield the notes of a rank with their times in µs; the flag is False if only enqueued.

        The rank waits for the first call that hasn't completed. If it isn't known which calls have
        completed, that is its last call, or the first after which some rank made none. Only a
        call that needs other ranks can have failed then.
        """
        reached: dict[JobGroup, int] = {}
        made = 0
        waited: int | None = None
        at = 0
        is_done = False
        for dump, groups in self.dumps[rank]:
            notes: dict[tuple[int, int, bool], CallNote] = {}
            spans = list(dump.groups.values())
            calls = [call for call, _ in dump.table]
            for index, number, call_index, state, created in zip(*dump.columns, strict=True):
                group = groups[index]
                call = calls[call_index]
                if number:
                    if group.spans[rank] is not spans[index] or number <= group.begin:
                        continue
                    for _ in range(reached.get(group, group.begin) + 1, number):
                        yield 0, self._note(group, UNKNOWN_CALL, is_done=True), True
                        yield 0, ReturnNote(), True
                        made += 1
                    reached[group] = number
                at = created // 1000
                if is_done:
                    yield at, ReturnNote(), True
                is_waiting = state in (CallState.SCHEDULED, CallState.STARTED) or (
                    state == CallState.ENDED
                    and number > group.agreed
                    and (number == spans[index].reached or synchronises(call))
                )
                if waited is not None or number > group.newest or rank in self.older:
                    is_waiting = False
                is_done = state >= CallState.COMPLETED and not is_waiting
                note = notes.get((index, call_index, is_done))
                if note is None:
                    note = self._note(group, call, is_done=is_done)
                    notes[index, call_index, is_done] = note
                yield at, note, state != CallState.SCHEDULED
                if is_waiting:
                    waited = made
                made += 1
                self.last[rank] = call, number, group, state
        if is_done:
            yield at, ReturnNote(), True
        if waited is not None:
            yield at, WaitNote(waited), True

    def _note(self, group: JobGroup, call: RankCall, *, is_done: bool) -> CallNote:
        key = group, call, call.source_line.stack, is_done
        note = self._notes.get(key)
        if note is None:
            made = replace(call, sync=is_done, group=group.members)
            note = self._notes[key] = CallNote(group.key, made, agreement(made))
        return note


def synchronises(call: RankCall) -> bool:
    """Return True if no rank completes the call before all members have made it."""
    return call.op != "" and call.rules.data == "all to all"
