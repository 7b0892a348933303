"""State according to the notes so far: the calls of every group, and what every rank is doing."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import islice

from distdemo.backends.contract import Backend
from distdemo.calls.match.rules import backend_named
from distdemo.calls.match.shifts import Lines
from distdemo.calls.match.splits import Cause
from distdemo.calls.notes import RECORDER, Destruction, EndNote, GroupKey
from distdemo.calls.records import Finding, RankCall

MAX_WAITS = 1000  # latest waits for a late rank on one line, for the median


@dataclass(eq=False, slots=True)
class Entry:
    """A call of one rank.

    Attributes:
        agreement: Values that must be equal on all ranks.
        serial: Number of the call's definition; see `CallNote`.
        order: Number of calls that its rank made before it.
        turn: Number of calls that its rank had made when its position was known.
        step: Number of training steps before it; -1 if it reduces no gradients.
        accepted: True if torch can't reject it any longer.
        position: Position in the sequence of its group; meaningless for a send or receive.
        calls_there: Calls at that position; None for a send or receive.
        matched: True if the other side of the send or receive has arrived, known or not.
        other: Other side of the send or receive, if known.
        waited: True if the rank waits or has waited for it.
        wrong: Problem of it, or of it and the other side.
        failed: True if it raised after it was made.
        no_wait: True if the rank polled it until it was done, or took its future.
        dropped: True if its handle was dropped before, and the backend needs it.
        timing: Times of the call, if they are recorded.
    """

    rank: int
    group: Group
    call: RankCall
    agreement: tuple[object, ...] = ()
    serial: int = -1
    order: int = 0
    turn: int = 0
    step: int = -1
    accepted: bool = False
    position: int = 0
    calls_there: CallSet | None = None
    matched: bool = False
    other: Entry | None = None
    waited: bool = False
    wrong: Problem | None = None
    failed: bool = False
    no_wait: bool = False
    dropped: bool = False
    timing: Timing | None = None

    @property
    def sends(self) -> bool:
        """True for a send."""
        return self.call.rules.data == "to peer"

    @property
    def from_any(self) -> bool:
        """True for a receive from any rank: one sender is enough."""
        return self.call.peer == -1 and not self.sends

    @property
    def together(self) -> list[Entry]:
        """Calls of all members, or both sides; empty while some are missing."""
        if self.calls_there is None:
            return [] if self.other is None else [self, self.other]
        complete = len(self.calls_there) == len(self.group.members)
        return list(self.calls_there.values()) if complete else []


@dataclass(slots=True)
class Timing:
    """Times of one call.

    Attributes:
        made_us: Time of the call in µs.
        waits_us: Time from which the rank waits for it, or 0 if unknown.
        late: Waits for the rank that it waited for, or None.
        ended_us: Time at which that rank made the call.
    """

    made_us: int
    waits_us: int = 0
    late: Late | None = None
    ended_us: int = 0


@dataclass(slots=True)
class Late:
    """A rank that other ranks waited for, in the calls of one line.

    Attributes:
        last: Number of calls that it made after a rank that needs its data.
        total: Total time that other ranks waited for it, in µs.
        waits: Latest of these times.
    """

    last: int = 0
    total: int = 0
    waits: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_WAITS))

    def count(self, began: int, ended: int) -> None:
        """Count the time that a rank waited; none if it began to wait afterwards."""
        waited = max(0, ended - began)
        self.total += waited
        self.waits.append(waited)


class CallSet(dict[int, Entry]):
    """Calls at one position of a group, by rank.

    Attributes:
        group: The group.
        position: Index in its sequence of calls.
        unconfirmed: Number of these calls that torch may still reject.
        lacking: Ranks that haven't made the call; None if not computed since the last change.
        is_uneven: True if parts have different sizes, so that every pair of ranks is compared.
        is_waived: True if they differ in a way that isn't an error for the user.
    """

    __slots__ = ("group", "is_uneven", "is_waived", "lacking", "position", "unconfirmed")

    def __init__(self, group: Group, position: int) -> None:
        super().__init__()
        self.group = group
        self.position = position
        self.unconfirmed = 0
        self.lacking: tuple[int, ...] | None = None
        self.is_uneven = False
        self.is_waived = False

    @property
    def by_rank(self) -> dict[int, RankCall]:
        """Properties of the calls."""
        return {rank: entry.call for rank, entry in self.items()}

    def cause(self, members: Collection[int]) -> Cause | None:
        """Return why these members differ, if all members have agreed on every earlier call."""
        if self.position > self.group.agreed:
            return None
        return self.group.lines.cause_here(self.by_rank, members)

    @property
    def place(self) -> tuple[int, int]:
        """Place of the earliest of these calls; see `Problem`."""
        return min((entry.turn, entry.rank) for entry in self.values())

    @property
    def name(self) -> str:
        """``call 2 of the default group``, counting the program's own calls from 1."""
        before = islice(self.group.open, self.position - self.group.agreed)
        internal = sum(next(iter(calls.values())).call.rules.internal for calls in before if calls)
        return f"call {self.position + 1 - self.group.internal - internal:,} of {self.group.name}"


@dataclass(eq=False, slots=True)
class Group:
    """A process group and the sequence of its calls.

    Attributes:
        key: Its members, backend and number.
        label: Text that tells it apart; empty for the default group.
        numbers: Group rank by global rank; empty if a member is outside the world.
        reached: Number of calls made, by rank.
        open: Calls that some members haven't made yet, oldest first.
        agreed: Number of calls that all members agreed on.
        internal: Number of these that aren't the program's own.
        first: Number of earlier calls, of which there are no notes.
        last: Latest of the agreed calls, by rank.
        lines: Lines and shapes of these calls.
        destroyed: How each rank destroyed the group.
        size: Number of members with notes.
        silent: Members without notes; nothing waits for them.
        recorded: True if torch's flight recorder tells the order of calls.
        lost: True if it has lost calls of a member, which ends the comparison.
    """

    key: GroupKey
    label: str
    numbers: dict[int, int]
    reached: dict[int, int]
    open: deque[CallSet] = field(default_factory=deque)
    agreed: int = 0
    internal: int = 0
    first: int = 0
    last: dict[int, RankCall] = field(default_factory=dict)
    lines: Lines = field(default_factory=Lines)
    destroyed: dict[int, Destruction] = field(default_factory=dict)
    size: int = 0
    silent: frozenset[int] = frozenset()
    recorded: bool = False
    lost: bool = False

    def __post_init__(self) -> None:
        """Count the members."""
        self.size = len(self.members)

    def begin(self, first: int, silent: Collection[int]) -> None:
        """Start at a later call, without these members."""
        self.first = first
        self.agreed = first
        self.numbers = {rank: number for number, rank in enumerate(self.members)}
        self.silent = frozenset(silent)
        self.size = len(self.members) - len(self.silent)
        for rank in self.members:
            self.reached[rank] = sys.maxsize if rank in self.silent else first

    @property
    def facts(self) -> Backend:
        """Facts about the backend."""
        return backend_named(self.key.backend)

    @property
    def members(self) -> tuple[int, ...]:
        """Global ranks of the members, in group order."""
        return self.key.members

    @property
    def name(self) -> str:
        """Name in texts, ``the default group``."""
        return self.label or "the default group"

    def at(self, position: int) -> CallSet:
        """Return the calls at a position that not all members have agreed on."""
        while len(self.open) <= position - self.agreed:
            self.open.append(CallSet(self, self.agreed + len(self.open)))
        return self.open[position - self.agreed]


@dataclass(eq=False, slots=True)
class Problem:
    """Error of one rank, or of a send and a receive.

    Attributes:
        finding: The error as it is reported.
        place: Number of calls that the rank made before, and the rank.
        entry: Call that has the error, or None.
        settled: Ranks that can't change it.
        by_rank: True if other ranks may have the same problem; the summary doesn't name the rank.
    """

    finding: Finding
    place: tuple[int, int]
    entry: Entry | None = None
    settled: Collection[int] = ()
    by_rank: bool = False


@dataclass(eq=False, slots=True)
class RankState:
    """State of one rank, according to its notes.

    Attributes:
        call_count: Number of calls so far.
        pending: Non-blocking calls that weren't waited for yet, by number.
        threads: Threads that have made calls, and the main thread, 0.
        others: True if it has threads that have made no call yet.
        waits: Call that each thread is in.
        last: Latest call of the program itself.
        unconfirmed: Latest call of each thread while torch may still reject it.
        unordered: Calls whose position isn't known yet, by number.
        recorder_read: True if torch's flight recorder was read to the end of the program.
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
    last: RankCall | None = None
    unconfirmed: dict[int, Entry] = field(default_factory=dict)
    unordered: dict[int, Entry] = field(default_factory=dict)
    recorder_read: bool = False
    lost: bool = False
    ended: EndNote | None = None
    refused: Problem | None = None
    waited: int = -1

    @property
    def over(self) -> bool:
        """True if its program has ended."""
        return self.lost or self.ended is not None

    @property
    def returned(self) -> bool:
        """True if its program has ended without an error."""
        return self.ended is not None and self.ended.how == "returned"

    @property
    def blocked(self) -> list[Entry]:
        """Calls that block the rank; empty while one of its threads is doing something else."""
        if not self.threads <= self.waits.keys():
            return []
        return [entry for thread, entry in self.waits.items() if thread != RECORDER]
