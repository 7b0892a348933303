r"""Judge calls that all ranks make alike once, for all of them.

Ranks of one program mostly write the same notes, byte for byte. A *stretch* is such text of all
ranks, from one place to another at which no rank is in a call. If each of its calls has been agreed
on before as it is defined now, it is agreed on again, and is only counted::

    rank 0   0\na\nr\n1\na\nw 1\nr\n0\na\n
    rank 1   0\na\nr\n1\na\nw 1\nr\n0\n
    rank 2   0\na\nr\n1\na\nw 1\nr\n
             ────── stretch ────────        the rest waits for the other ranks

Everything else is read on every rank, call by call, so that all come to the next stretch together.
If no rank makes progress, or one has ended, all notes are read as they are. The result is the same
as that of reading each note of each rank.
"""

from __future__ import annotations

import math
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from distdemo.calls.match.matcher import MAX_PENDING, Matcher
from distdemo.calls.match.rules import check_arguments, lacking_in_nccl
from distdemo.calls.match.state import CallSet, Entry, Group, RankState
from distdemo.calls.notes import MAX_LINE_BYTES, CallNote, GroupKey, Note, Reader
from distdemo.calls.records import RankCall

HELD_RANKS = 16  # of a world in which notes may wait; fewer are fast enough without
HELD_POLLS = 5  # polls without progress after which all notes are read
READ_S = 1.0  # of each poll, for notes that are read rank by rank
READ_BYTES = 1 << 10  # of a rank that are read before the next rank
STRETCH_BYTES = 1 << 16  # of each rank that are compared at once
OTHERS = b" +\n"  # end of a line that says that the rank has other threads
LINE = re.compile(rb"(?:@(\d{1,4}) )?(?:(\d{1,9})(?: (\d{1,18}))?|([ar])|([wn]) (\d{1,18}))")
"""Note within a stretch: its thread; number and step of a call; letter; letter and number."""


class Step(Enum):
    """Kind of text that follows a place which all ranks have reached."""

    STRETCH = auto()  # a stretch, which has been read
    CALL = auto()  # something that must be read on every rank
    NOTHING = auto()  # some rank hasn't written enough


@dataclass(slots=True)
class Part:
    """A call of one group.

    Attributes:
        group: The group.
        calls: Call of each member.
        serials: Rank and number of the definition of each of these.
    """

    group: Group
    calls: dict[int, RankCall]
    serials: frozenset[tuple[int, int]]


@dataclass(slots=True)
class Shared:
    """A call that every rank makes, each on a group that it is in.

    Attributes:
        notes: Note of each rank.
        parts: The call by group.
        sync: True if the call itself waits.
        cpp: True if torch can't reject it any longer.
    """

    notes: list[CallNote]
    parts: list[Part]
    sync: bool
    cpp: bool


@dataclass(slots=True)
class Stretch:
    """A stretch, and what follows it until a note that isn't understood.

    Attributes:
        end: Number of its lines.
        ends: Number of items of each of the lists below that belong to it.
        marks: Indices of the lines that say whether the rank has other threads.
        made: Calls.
        threads: Threads that made them.
        waits: Numbers of the calls that are waited for.
        polled: Numbers of the calls that needn't be waited for any more.
        is_cut: True if something follows that must be read on every rank.
    """

    end: int = 0
    ends: tuple[int, int, int, int] = (0, 0, 0, 0)
    marks: list[int] = field(default_factory=list)
    made: list[Shared] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    polled: list[int] = field(default_factory=list)
    is_cut: bool = True

    def end_here(self, lines: int) -> None:
        """Extend the stretch to this number of lines."""
        self.end = lines
        self.ends = len(self.marks), len(self.made), len(self.waits), len(self.polled)

    def cut(self) -> None:
        """Forget what follows the stretch."""
        marks, made, waits, polled = self.ends
        del self.marks[marks:], self.made[made:], self.threads[made:]
        del self.waits[waits:], self.polled[polled:]


class Streams:
    """Notes of all ranks that haven't been judged.

    Args:
        matcher: Comparison of the calls.
        add: Function that gets each note that is read: its rank, the note and its time.
        count: Function that gets the calls that were judged without: rank, note and number.
    """

    def __init__(
        self,
        matcher: Matcher,
        add: Callable[[int, Note, int], object],
        count: Callable[[int, CallNote, int], object],
    ) -> None:
        self._matcher = matcher
        self._add = add
        self._count = count
        self._readers = [Reader() for _ in matcher.ranks]
        self._new = [bytearray() for _ in matcher.ranks]
        self._shared: dict[int, Shared] = {}
        """Calls that may be repeated, by the number of their definition."""
        self._unmoved = 0  # polls without progress
        self._held = [0] * matcher.world_size
        """Number of bytes of each rank that the latest poll has left."""

    def feed(self, rank: int, piece: bytes) -> None:
        """Add new notes of a rank."""
        self._new[rank] += piece

    def read(self) -> None:
        """Judge all notes that have arrived."""
        self._advance()
        self._held = list(map(len, self._new))
        self.read_held()

    def poll(self, *, is_quiet: bool) -> bool:
        """Judge what all ranks have written; without progress, also the rest, for a limited time.

        Args:
            is_quiet: True if no rank has written anything since the last time.

        Returns:
            True unless the next poll must go on with the rest.
        """
        before = sum(map(len, self._new))
        is_done = self._advance(READ_S)
        self._held = list(map(len, self._new))
        self._unmoved = self._unmoved + 1 if sum(self._held) == before else 0
        if not is_done:
            return False
        if len(self._held) < HELD_RANKS:
            return self.read_held()
        if self._may_be_alike() and not is_quiet and self._unmoved < HELD_POLLS:
            return True
        return self.read_held(READ_S)

    def read_held(self, seconds: float = math.inf) -> bool:
        """Judge the notes that the latest poll has left, and no later ones.

        Args:
            seconds: Time after which the rest is left.
        """
        until = time.monotonic() + seconds
        while (ends := [*map(self._end, range(len(self._held)))]) != [0] * len(ends):
            for rank, end in enumerate(ends):
                self._read(rank, end)
            if time.monotonic() > until:
                return False
        return True

    def _end(self, rank: int) -> int:
        """Return the size of the next lines of a rank that the latest poll has left."""
        held = self._held[rank]
        new = self._new[rank]
        size = new.rfind(b"\n", 0, min(held, READ_BYTES)) + 1 or new.find(b"\n", 0, held) + 1
        return size or (held if held > MAX_LINE_BYTES else 0)  # its reader will refuse it

    def _read(self, rank: int, size: int) -> None:
        """Read this number of bytes of a rank."""
        new = self._new[rank]
        text = bytes(new[:size])
        self._held[rank] = max(0, self._held[rank] - size)
        del new[:size]  # first, so that nothing is read twice
        if _has_fields(text):
            self._shared.clear()  # numbers may have a new meaning
        for at, note in self._readers[rank].read(text):
            self._add(rank, note, at)

    def _read_line(self, rank: int) -> bool:
        """Read the next line of a rank; return False if there is none."""
        size = self._new[rank].find(b"\n") + 1
        self._read(rank, size)
        return size > 0

    # ------------------------------------------------------------------------------ all ranks

    def _may_be_alike(self) -> bool:
        matcher = self._matcher
        if matcher.problems or matcher.stopped or matcher.world_size == 1:
            return False
        is_timed = any(new.startswith(b"t") for new in self._new)  # times differ
        return not (is_timed or any(state.over for state in matcher.ranks))

    def _is_level(self) -> bool:
        """Return True if all ranks have made the same number of calls, and are in none."""
        ranks = self._matcher.ranks
        count = ranks[0].call_count
        return all(state.call_count == count and _is_between(state) for state in ranks)

    def _advance(self, seconds: float = math.inf) -> bool:
        """Judge what all ranks have written.

        Args:
            seconds: Time after which the rest is left.

        Returns:
            True if nothing is left that all ranks have written.
        """
        until = time.monotonic() + seconds
        while self._may_be_alike():
            step = self._step() if self._is_level() else Step.CALL
            if step is Step.NOTHING or (step is Step.CALL and not self._read_call()):
                return True
            if time.monotonic() > until:
                return False
        return True

    def _read_call(self) -> bool:
        """Read all ranks up to the same number of calls; return False if one hasn't made them."""
        ranks = self._matcher.ranks
        target = max(state.call_count for state in ranks) + self._is_level()
        has_all = True
        for rank, state in enumerate(ranks):
            while state.call_count < target or not _is_between(state):
                if not self._read_line(rank):
                    has_all = False
                    break
        return has_all

    def _step(self) -> Step:
        """Judge the next stretch, if all ranks have written one."""
        for rank, new in enumerate(self._new):
            while _has_fields(new[: new.find(b"\n") + 1]):
                self._read_line(rank)
        if not (self._may_be_alike() and self._is_level()):
            return Step.CALL
        if any(b"\n" not in new for new in self._new):
            return Step.NOTHING
        texts = [bytes(new[:STRETCH_BYTES]) for new in self._new]
        plain = [text.replace(OTHERS, b"\n") if OTHERS in text else text for text in texts]
        common, is_cut = _common(plain)
        lines = common.split(b"\n")[:-1]
        stretch = self._follow(lines)
        if not stretch.end:
            return Step.CALL if is_cut or stretch.is_cut else Step.NOTHING
        stretch.cut()
        size = sum(map(len, lines[: stretch.end])) + stretch.end
        for rank, (text, raw) in enumerate(zip(plain, texts, strict=True)):
            others = False
            own = size
            if text is not raw:
                *first, rest = raw.split(b"\n", stretch.end)
                own = len(raw) - len(rest)
                others = bool(stretch.marks) and first[stretch.marks[-1]].endswith(b" +")
            del self._new[rank][:own]
            if stretch.marks:
                self._matcher.ranks[rank].others = others
        self._repeat(stretch)
        return Step.STRETCH

    def _follow(self, lines: Sequence[bytes]) -> Stretch:
        """Return the stretch at the beginning of these lines; see `Stretch`."""
        first = self._matcher.ranks[0].call_count
        stretch = Stretch()
        unaccepted: set[int] = set()  # threads whose latest call torch may still reject
        inside: set[int] = set()  # threads that are in a call
        pending: set[int] = set()  # calls that may be waited for
        able: dict[tuple[int, bool], Shared | None] = {}
        for index, line in enumerate(lines):
            match = LINE.fullmatch(line)
            if match is None:
                return stretch
            on, call, step, letter, about, of = match.groups()
            thread = int(on or 0)
            if call is not None:
                key = int(call), step is not None
                if key not in able:
                    able[key] = self._repeatable(*key)
                shared = able[key]
                if shared is None:
                    return stretch
                (inside.add if shared.sync else inside.discard)(thread)
                (unaccepted.discard if shared.cpp else unaccepted.add)(thread)
                if not shared.sync:
                    pending.add(first + len(stretch.made))
                stretch.made.append(shared)
                stretch.threads.append(thread)
            elif about == b"n":
                if int(of) not in pending:
                    return stretch
                stretch.polled.append(int(of))
            else:
                unaccepted.discard(thread)
                if letter == b"r":
                    inside.discard(thread)
                else:
                    stretch.marks.append(index)
                if about is not None:
                    if int(of) not in pending and not (int(of) < first and self._is_done(int(of))):
                        return stretch
                    pending.discard(int(of))
                    stretch.waits.append(int(of))
                    inside.add(thread)
            if not (unaccepted or inside):
                stretch.end_here(index + 1)
        stretch.is_cut = False
        return stretch

    def _is_done(self, number: int) -> bool:
        """Return True if on no rank the call with this number is a send or receive."""
        entries = (state.pending.get(number) for state in self._matcher.ranks)
        return all(entry is None or entry.calls_there is not None for entry in entries)

    # ---------------------------------------------------------------------------------- calls

    def _repeatable(self, number: int, has_step: bool) -> Shared | None:
        """Return the call with this definition on all ranks, if it may be repeated now."""
        shared = self._shared.get(number) or self._find(number)
        if shared is None:
            return None
        self._shared[number] = shared
        groups = [part.group for part in shared.parts]
        rules = self._matcher.rules
        is_open = any(group.open for group in groups)
        may_repeat = (rule.repeats(group, has_step=has_step) for group in groups for rule in rules)
        return shared if not is_open and all(may_repeat) else None

    def _find(self, number: int) -> Shared | None:
        """Return the call with this definition on all ranks, if they have agreed on it before.

        A repetition must change nothing but numbers, so it isn't a call with which something is or
        may be wrong.
        """
        notes: list[CallNote] = []
        members: dict[GroupKey, dict[int, CallNote]] = {}
        for rank, reader in enumerate(self._readers):
            note = reader.call(number)
            if note is None:
                return None
            notes.append(note)
            members.setdefault(note.group, {})[rank] = note
        calls = [note.call for note in notes]
        waits = {(call.sync, call.source_line.cpp) for call in calls}
        parts = [self._part(key, made) for key, made in members.items()]
        if len(waits) > 1 or not all(map(_is_plain, calls)) or None in parts:
            return None
        ((sync, cpp),) = waits
        return Shared(notes, [part for part in parts if part is not None], sync, cpp)

    def _part(self, key: GroupKey, notes: Mapping[int, CallNote]) -> Part | None:
        """Return a call of one group, if all members have agreed on it before and it is right."""
        group = self._matcher.groups.get(key)
        if group is None or group.silent or group.lost or notes.keys() != group.numbers.keys():
            return None
        calls = {rank: note.call for rank, note in notes.items()}
        serials = frozenset((rank, note.serial) for rank, note in notes.items())
        alike = {
            (note.agreement, note.call.shape, note.call.device, note.call.part_size)
            for note in notes.values()
        }
        if len(alike) > 1 or not group.lines.has_agreed(serials):
            return None
        size = len(calls)
        for rank, call in calls.items():
            if call.rules.parts and call.part_size is None:  # every pair of ranks is compared
                return None
            is_lacking = self._matcher.nccl and lacking_in_nccl(call)
            if is_lacking or check_arguments(call, group.numbers[rank], size, key.backend):
                return None
        return Part(group, calls, serials)

    def _repeat(self, stretch: Stretch) -> None:
        """Judge the calls of a stretch."""
        ranks = self._matcher.ranks
        first = ranks[0].call_count
        made = stretch.made
        numbers = range(first, first + len(made))
        done = {*stretch.waits, *stretch.polled}
        groups: dict[int, Group] = {}
        times: dict[int, tuple[Shared, int]] = {}
        for number, shared in zip(numbers, made, strict=True):
            is_left = not shared.sync and number not in done
            times[id(shared)] = shared, times.get(id(shared), (shared, 0))[1] + 1
            for part in shared.parts:
                group = part.group
                if is_left:
                    self._leave(part, shared, number)
                group.lines.add(part.calls, part.serials, group.agreed + 1 - group.internal)
                group.last = part.calls
                group.agreed += 1
                groups[id(group)] = group
        for group in groups.values():
            group.reached = dict.fromkeys(group.members, group.agreed)
        waited = [number for number, shared in zip(numbers, made, strict=True) if shared.sync]
        latest = max((*waited, *stretch.waits), default=-1)
        earlier = [number for number in stretch.waits if number < first]
        for rank, state in enumerate(ranks):
            state.call_count += len(made)
            state.threads.update(stretch.threads)
            state.waited = max(state.waited, latest)
            for number in earlier:
                state.pending.pop(number, None)
            if made:
                state.last = made[-1].notes[rank].call
                state.refused = None
            for shared, count in times.values():
                self._count(rank, shared.notes[rank], count)

    def _leave(self, part: Part, shared: Shared, number: int) -> None:
        """Remember a call that may still be waited for, unless torch waits for it unnoticed."""
        group = part.group
        calls = CallSet(group, group.agreed)
        for rank, call in part.calls.items():
            line = call.source_line
            if line.part or line.inner:
                continue
            note = shared.notes[rank]
            entry = Entry(
                rank,
                group,
                call,
                note.agreement,
                note.serial,
                order=number,
                turn=number,
                accepted=True,
                position=group.agreed,
                calls_there=calls,
            )
            calls[rank] = entry
            pending = self._matcher.ranks[rank].pending
            pending[number] = entry
            if len(pending) > MAX_PENDING:
                del pending[next(iter(pending))]


def _is_plain(call: RankCall) -> bool:
    """Return True for a collective of the program that the rank takes part in."""
    is_other = call.rules.internal or call.partial or call.outside
    return call.peer is None and not is_other


def _is_between(state: RankState) -> bool:
    """Return True if a rank is in no call, and torch can't reject one any longer."""
    return not (state.unconfirmed or state.waits)


def _has_fields(text: bytes | bytearray) -> bool:
    """Return True if a note has more than numbers."""
    return b"{" in text or b"[" in text


def _common(texts: Sequence[bytes]) -> tuple[bytes, bool]:
    """Return the lines with which all texts begin, and True if something else follows on a rank.

    Lines with fields belong to no stretch.
    """
    first = texts[0]
    least = size = min(map(len, texts))
    for text in texts:
        for mark in (b"{", b"["):
            at = text.find(mark, 0, size)
            size = size if at < 0 else at
    for text in texts:
        if not text.startswith(first[:size]):
            size = bisect_left(range(size), True, key=lambda n: text[: n + 1] != first[: n + 1])
    return first[: first.rfind(b"\n", 0, size) + 1], size < least
