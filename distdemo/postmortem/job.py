"""Put together what all files of a job have, and turn the ranks' calls into notes."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import count, islice, repeat
from operator import itemgetter

from distdemo.calls.match.judge import Judge
from distdemo.calls.match.rules import agreement
from distdemo.calls.notes import CallNote, GroupKey, Note, ReturnNote, WaitNote
from distdemo.calls.records import UNKNOWN_CALL, Call, PartialCall, SourceLine
from distdemo.calls.timeline import Timeline
from distdemo.errors import UsageError
from distdemo.postmortem.content import (
    COMPLETED,
    ENDED,
    SCHEDULED,
    STARTED,
    Content,
    Dump,
    End,
    GroupName,
    Table,
    Track,
    Writer,
    number_of,
)
from distdemo.view.format import ranks_text

MAX_RANKS = 1 << 16
MAX_GAP = 10_000  # calls that other ranks' files begin earlier, and that are compared
TURN = 100  # calls of a rank that are compared before those of the next one


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
        key: Key of the group in notes.
        begin: Number of calls before the first that is compared.
    """

    name: str
    desc: str
    members: tuple[int, ...]
    is_inferred: bool
    tracks: dict[int, Track] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    met: int = 0
    key: GroupKey = ((), "", 0)
    begin: int = 0

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

    def calls(self, number: int) -> Iterator[int]:
        """Yield the ranks' calls with this number."""
        for track in self.tracks.values():
            if track.first <= number <= track.reached:
                yield track.calls[number - track.first]

    def state(self, rank: int, number: int) -> int | None:
        """Return the state of a rank's call, or None if unknown."""
        track = self.tracks.get(rank)
        if track is None or not track.first <= number <= track.reached:
            return None
        return track.states[number - track.first]


Made = tuple[int, Group, int, int, int, int]
"""Order, group, number, index in the table, state and time of a call."""


class Job:
    """Everything that was read about one job.

    Attributes:
        calls: All ranks' calls by number.
        ranks: Ranks with calls.
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
    """

    def __init__(self) -> None:
        self.table: Table = {}
        self.calls: list[Call] = []
        self.ranks: set[int] = set()
        self.groups: list[Group] = []
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
        self._pairs: dict[int, list[tuple[int, Group, int]]] = {}
        self._known_notes: dict[tuple[GroupKey, int, bool], CallNote] = {}
        self._named: dict[str, list[Group]] = {}
        self._complete: set[int] = set()

    # -------------------------------------------------------------------------------- add files

    def add(self, rank: int, dump: Dump) -> None:
        """Add the calls of one rank. Calls that an earlier file of the rank has stay."""
        numbers = [number_of(self.table, call) for call, _ in dump.table]
        self.ranks.add(rank)
        if backend := f"{dump.backend} {dump.library}".strip():
            self.backends.setdefault(backend)
        self.limit_s = max(self.limit_s, dump.limit_s)
        if dump.is_complete:
            self._complete.add(rank)
        for name in (*dump.groups, *dump.tracks):
            self._group(name)
        for name, track in dump.tracks.items():
            group = self._group(name)
            if rank not in group.tracks:
                track.calls = array("I", [numbers[call] for call in track.calls])
                group.tracks[rank] = track
        for order, name, call in dump.pairs:
            pair = order, self._group(name), numbers[call]
            self._pairs.setdefault(rank, []).append(pair)

    def _group(self, key: GroupName) -> Group:
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
        if self.stands and not self.ranks:
            self.has_numbers = False
            for rank, (line, op) in self.stands.items():
                track = Track(1)
                dump = Dump(tracks={("0", "", ()): track} if op else {}, is_complete=True)
                if op:
                    track.add(number_of(dump.table, PartialCall(op, line, count=-1)), STARTED, 0)
                self.add(rank, dump)
        known = {*self.ranks, *self.silent, *self.stands, *self.exits, *self.stopped}
        known.update(rank for rank, _ in self.ends)
        known.update(member for group in self.groups for member in group.members)
        self.world_size = max(known, default=-1) + 1
        if known and not any(g.is_default and not g.is_inferred for g in self.groups):
            self.notes.append(
                f"The world size, {self.world_size}, is inferred from the highest rank."
            )
        self.calls = [call for call, _ in self.table]
        for group in self.groups:
            if group.is_inferred:
                everyone = range(self.world_size)
                group.members = tuple(everyone if group.is_default else sorted(group.tracks))
            group.reached = {rank: track.reached for rank, track in group.tracks.items()}
            for rank in self._complete.intersection(group.members).difference(group.tracks):
                group.reached[rank] = 0
        if any(group.is_inferred and not group.is_default for group in self.groups):
            self.notes.append("The members of groups are inferred from the ranks that called them.")
        older: set[int] = set()
        for group in self.groups:
            group.met = self._met(group, (COMPLETED, ENDED))
            ended = self._met(group, (ENDED,))  # NCCL also completes calls that it has aborted
            older.update(rank for rank, reached in group.reached.items() if reached < ended)
        self.older = tuple(sorted(older))

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

    def _met(self, group: Group, states: Collection[int]) -> int:
        """Return the number of the last call that all members must have made; 0 if unknown.

        A call in one of these states can't have failed if the rank made another one afterwards.
        """
        met = 0
        for track in group.tracks.values():
            for index in range(len(track.calls) - 2, max(-1, met - track.first), -1):
                if track.states[index] in states and self._synchronises(track.calls[index]):
                    met = track.first + index
                    break
        return met

    def _synchronises(self, number: int) -> bool:
        """Return True if no rank completes the call before all members have made it."""
        call = self.calls[number]
        return call.op != "" and call.rules.data == "all to all"

    # -------------------------------------------------------------------------------- compare

    def compare(self, timeline: Timeline | None = None) -> Judge:
        """Compare the calls of all ranks, and write them to the timeline.

        Raises:
            UsageError: There are too many ranks.
        """
        if max(self.ranks, default=0) >= MAX_RANKS:
            raise UsageError(
                f"A file is of rank {max(self.ranks):,}.",
                f"postmortem compares up to {MAX_RANKS:,} ranks.",
                "The rank is the number in the file's name, unless its lines have one.",
            )
        judge = Judge(1 + max(self.ranks, default=-1))
        tracks: dict[int, list[tuple[Group, Track]]] = {rank: [] for rank in sorted(self.ranks)}
        backend = next(iter(self.backends), "")
        keys: Counter[tuple[int, ...]] = Counter()
        for group in self.groups:
            group.key = (group.members, backend, keys[group.members])
            keys[group.members] += 1
            firsts = [track.first - 1 for track in group.tracks.values()] or [0]
            group.begin = max(0, min(firsts), max(firsts) - MAX_GAP)
            silent = set(group.members) - group.reached.keys()
            judge.matcher.group(*group.key).begin(group.begin, silent, str(group))
            for rank, track in group.tracks.items():
                tracks[rank].append((group, track))
        waits = self._waits()
        notes = {rank: self._notes(tracks[rank], waits.get(rank), rank) for rank in tracks}
        while notes:
            for rank in list(notes):
                turn = list(islice(notes[rank], TURN))
                for at, note, is_started in turn:
                    if isinstance(note, CallNote):
                        judge.count(rank, note)
                    entry = judge.matcher.add(rank, note)
                    if entry is not None and not is_started:
                        entry.started = False
                    if timeline is not None:
                        timeline.add(rank, at, note)
                if not turn:
                    del notes[rank]
        for group in self.groups:
            for rank in group.reached.keys() & set(self.older):  # it may have made more
                judge.matcher.group(*group.key).reached[rank] = sys.maxsize
        return judge

    def _notes(
        self, tracks: list[tuple[Group, Track]], wait: Made | None, rank: int
    ) -> Iterator[tuple[int, Note, bool]]:
        """Yield the notes of a rank with their times in µs; the flag is False if only enqueued."""
        calls: list[Iterator[Made]] = [
            (
                (order, group, 0, call, STARTED, 0)
                for order, group, call in self._pairs.get(rank, ())
            )
        ]
        made = 0
        for group, track in tracks:
            for _ in range(group.begin, track.first - 1):
                yield 0, CallNote(group.key, UNKNOWN_CALL, agreement(UNKNOWN_CALL)), True
                yield 0, ReturnNote(), True
                made += 1
            columns = zip(
                track.orders,
                repeat(group),
                count(track.first),
                track.calls,
                track.states,
                track.created,
                strict=False,
            )
            calls.append(islice(columns, max(0, group.begin + 1 - track.first), None))
        waited = -1
        at = 0
        is_done = False
        for call in merge(*calls, key=itemgetter(0)):
            _, group, _, number, state, created = call
            at = created // 1000
            if is_done:
                yield at, ReturnNote(), True
            is_done = state == COMPLETED or (state == ENDED and call != wait)
            yield at, self._note(group, number, is_done), state != SCHEDULED
            if call == wait:
                waited = made
            made += 1
        if is_done:
            yield at, ReturnNote(), True
        if waited >= 0:
            yield at, WaitNote(waited), True

    def _note(self, group: Group, number: int, is_done: bool) -> CallNote:
        note = self._known_notes.get((group.key, number, is_done))
        if note is None:
            call = replace(self.calls[number], sync=is_done, group=group.members)
            note = CallNote(group.key, call, agreement(call))
            self._known_notes[group.key, number, is_done] = note
        return note

    def _waits(self) -> dict[int, Made]:
        """Return the first call of each rank that hasn't completed."""
        first: dict[int, Made] = {}
        for group in self.groups:
            agreed = min(group.reached.values(), default=0)
            for rank, track in group.tracks.items():
                index = self._pending(track, agreed + 1)
                if index is None:
                    continue
                number = track.first + index
                if rank in self.older or any(
                    group.reached.get(old, number) < number for old in self.older
                ):
                    continue
                made = (
                    track.orders[index],
                    group,
                    number,
                    track.calls[index],
                    track.states[index],
                    track.created[index],
                )
                if rank not in first or made[0] < first[rank][0]:
                    first[rank] = made
        for rank, pairs in self._pairs.items():
            for order, group, call in pairs:
                if rank not in first or order < first[rank][0]:
                    first[rank] = (order, group, 0, call, STARTED, 0)
        return first

    def _pending(self, track: Track, late: int) -> int | None:
        """Return the index of the first call that hasn't completed, or None.

        Args:
            track: Calls of a rank.
            late: Number of the first call that some rank hasn't made. If calls have ended, this one
                has failed, unless a rank can complete it alone.
        """
        last = len(track.calls) - 1
        failed = (
            index
            for index in range(max(0, late - track.first), last + 1)
            if track.states[index] == ENDED
            and (index == last or self._synchronises(track.calls[index]))
        )
        indices = (track.states.find(SCHEDULED), track.states.find(STARTED), next(failed, -1))
        return min((index for index in indices if index >= 0), default=None)
