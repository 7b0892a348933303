"""Records of the op commands: data before and after, verification, and reports.

Frozen; no torch, no rich. Large tensors are shortened for display; verification compares all
elements. Field names are those of the JSON documents: ``_s`` is seconds, ``_bytes`` bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from distdemo.launcher.records import WorldReport
from distdemo.ops.contract import OpDoc, Traffic
from distdemo.ops.spec import Call, CallTiming, Mismatch, OpSpec
from distdemo.view.held import UNDEFINED, Held, Holding

# ------------------------------------------------------------------------------- results of a rank


@dataclass(frozen=True, slots=True)
class Event:
    """One call of a non-blocking operation.

    Attributes:
        called_s: Seconds from the first call of the group on this host until this call.
        returned_s: Seconds until it returned, from the same moment.
        call: ``irecv``, ``isend``, ``batch_isend_irecv`` or ``wait``.
        buffer: Contents of the buffer when it returned.
        rule: Permitted use of the buffer from here on.
    """

    rank: int
    called_s: float
    returned_s: float
    call: str
    buffer: Holding
    rule: str


@dataclass(frozen=True)
class RankResult(CallTiming, Held):
    """Result of an operation on one rank.

    The ranks are connected before the call; up to 64 also meet at a barrier. Times are since the
    first call of the group on this host.

    Attributes:
        after: Left out where the op leaves the buffer undefined.
        checked: Number of elements that were compared with plain arithmetic on the inputs.
        wrong: Number of elements that differ.
        mismatches: The first wrong elements.
        tolerance: Largest allowed difference; 0 where the result must match exactly.
        events: Calls of a non-blocking point-to-point op.
        takes_part: True if the rank makes the call.
        group: Index of the rank's group, or None if it is in no group.
        group_rank: Rank within the group, if it differs from `rank`.
    """

    after: Holding = UNDEFINED
    checked: int = 0
    wrong: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    tolerance: float = 0.0
    events: tuple[Event, ...] = ()
    takes_part: bool = True
    group: int | None = 0
    group_rank: int | None = None

    @property
    def ok(self) -> bool:
        """True if every defined element is right."""
        return self.wrong == 0


# ------------------------------------------------------------------------ reports of the commands


@dataclass(frozen=True, slots=True)
class Explanation:
    """Data flow of an op, computed without running it.

    Attributes:
        ranks: Ranks that are shown.
        moves: (from, to) for every rank whose data a rank holds at the end, itself included.
        is_barrier: True if no data moves and the ranks wait for each other.
        names: Sentences about the name of this call in other releases of torch.
        code: Program that makes the call, with --code.
        spec: Spec that is drawn.
    """

    op: Call
    words: OpDoc
    traffic: Traffic
    ranks: tuple[Held, ...]
    spec: OpSpec = field(metadata={"json": False})
    moves: tuple[tuple[int, int], ...] = ()
    is_barrier: bool = False
    names: tuple[str, ...] = ()
    code: str = ""
    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class OpReport:
    """Result of an op, or the world that failed while running it.

    Attributes:
        ranks: Results of the ranks; left out if the world failed.
        spec: Call and its data.
        group: Ranks of the group; left out if it was the whole world.
        explanation: Drawing of the op, with --explain.
        warning: Known bug of this release of torch.
    """

    op: Call
    world: WorldReport
    traffic: Traffic
    spec: OpSpec = field(metadata={"json": False})
    ranks: tuple[RankResult, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    group: tuple[int, ...] = ()
    explanation: Explanation | None = None
    warning: str = ""

    @property
    def ok(self) -> bool:
        """True if every rank returned and every defined element is right."""
        return self.world.ok and all(result.ok for result in self.ranks)

    @property
    def is_barrier(self) -> bool:
        """True if no data moved and the ranks waited for each other."""
        return any(result.present is not None for result in self.ranks)

    @property
    def noun(self) -> str:
        """Word for what was compared: object or element."""
        return "object" if self.spec.objects else "element"

    @property
    def has_events(self) -> bool:
        """True if calls of a non-blocking point-to-point op were recorded."""
        return any(result.events for result in self.ranks)


@dataclass(frozen=True, slots=True)
class Introduction:
    """Introduction of one rank by ``hello``."""

    rank: int
    world_size: int
    pid: int
    host: str
    backend: str
    device: str
    startup_s: float
    heard_from: int


@dataclass(frozen=True, slots=True)
class HelloReport:
    """Introductions of all ranks."""

    world: WorldReport
    ranks: tuple[Introduction, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if the world ran and every rank counted all ranks."""
        return self.world.ok and all(rank.heard_from == len(self.ranks) for rank in self.ranks)


@dataclass(frozen=True, slots=True)
class OpEntry:
    """One form of an operation: its command, its flags and the call in torch.

    Attributes:
        older: Earlier name of the call, now deprecated.
    """

    command: str
    flags: str
    calls: str
    summary: str
    older: str = ""


@dataclass(frozen=True, slots=True)
class OpList:
    """List of all operations in all their forms."""

    ops: tuple[OpEntry, ...]
    ok: ClassVar[bool] = True
