"""What ranks held before and after an operation, whether it is right, and what commands report.

Frozen; no torch, no rich. What is kept of tensors and objects is enough to show them; the
comparison was made on the whole. Field names are those of the JSON documents: ``_s`` is seconds,
``_bytes`` bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from distdemo.launcher.clock import HOST
from distdemo.launcher.records import WorldReport
from distdemo.ops import REGISTRY
from distdemo.ops.contract import Traffic, Words
from distdemo.ops.spec import Number, OpSpec

# ---------------------------------------------------------------------------- what a rank holds


@dataclass(frozen=True, slots=True)
class Piece:
    """What is kept of one tensor for showing it.

    Attributes:
        shape: of the whole tensor.
        values: all its elements in row-major order, or the first ones.
        last_values: the last ones, if some in the middle were left out.
        source: the rank that the data came from; None if it was reduced over several.
    """

    kind: ClassVar[str] = "tensor"

    shape: tuple[int, ...]
    values: tuple[Number, ...]
    last_values: tuple[Number, ...] = ()
    source: int | None = None

    def __post_init__(self) -> None:
        if min(self.shape, default=0) < 0:
            raise ValueError(f"{self.shape} is not a shape")
        if not self.last_values and len(self.values) != math.prod(self.shape):
            raise ValueError(f"{len(self.values)} values for the shape {self.shape}")

    def document(self) -> Any:  # noqa: ANN401 - nested lists
        """Return the elements as nested lists, or the ends of a large tensor."""
        if self.last_values:
            ends = {"first": self.values, "last": self.last_values}
            return {"shape": self.shape, **ends}
        found: list[Any] = list(self.values)
        for length in self.shape[:0:-1]:
            found = [found[at : at + length] for at in range(0, len(found), length or 1)]
        return found if self.shape else found[0]


@dataclass(frozen=True, slots=True)
class ObjectPiece:
    """A Python object that a rank holds.

    Attributes:
        value: what JSON has: None, bool, numbers, text, lists and dictionaries of them.
        pickled_bytes: of its pickle.
        source: the rank that it came from.
    """

    kind: ClassVar[str] = "object"

    value: Any
    pickled_bytes: int
    source: int | None = None

    def document(self) -> Any:  # noqa: ANN401 - the user's value
        """Return the object itself."""
        return self.value


@dataclass(frozen=True, slots=True)
class Holding:
    """What a rank holds: its pieces in order (none: it holds nothing).

    Attributes:
        omitted: pieces left out between the first and the last half of ``pieces``.
        undefined: the op leaves this buffer undefined; its contents mean nothing.
        listed: the rank has a list of tensors here, though it may be of one.
        joined: the pieces lie one after the other in a single tensor.
    """

    pieces: tuple[Piece | ObjectPiece, ...] = ()
    omitted: int = 0
    undefined: bool = False
    listed: bool = False
    joined: bool = False

    def document(self) -> list[Any] | None:
        """Return the pieces in order, or None where the contents mean nothing."""
        if self.undefined:
            return None
        pieces: list[Any] = list(self.pieces)
        if self.omitted:
            pieces.insert(len(pieces) // 2, {"omitted": self.omitted})
        return pieces


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One wrong element: in which piece, at which index, and what it should be."""

    piece: int
    index: tuple[int, ...]
    got: Number | str
    expected: Number | str


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison of every defined element with plain arithmetic on the inputs.

    Attributes:
        ok: all agree; True where nothing is defined (``checked`` is 0 then).
        checked: elements compared.
        wrong: how many differ.
        tolerance: largest allowed difference; 0 where the result must match exactly.
        mismatches: the first few of the wrong ones.
    """

    ok: bool
    checked: int
    wrong: int = 0
    tolerance: float = 0.0
    mismatches: tuple[Mismatch, ...] = ()


# ------------------------------------------------------------------------------- what a rank did


@dataclass(frozen=True, slots=True)
class Event:
    """One moment of a non-blocking operation.

    Attributes:
        at_s: since the first event of the world; of each host where there are several.
        what: what the rank did, ``irecv returned``.
        buffer: what it held then.
        unchanged: it still held what it held before.
        rule: what the program may do with the buffer now.
    """

    rank: int
    at_s: float
    what: str
    buffer: Holding
    unchanged: bool
    rule: str


@dataclass(frozen=True, slots=True)
class CallStep:
    """One step of an op that is made of several calls.

    Attributes:
        name: what was done, ``pad to the largest``.
        buffer: what the rank had afterwards.
        sent_bytes: what it handed to the backend.
    """

    name: str
    buffer: Holding
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Attendance:
    """When a rank came to a barrier and left it, since the first rank arrived.

    Attributes:
        present: how many ranks of the group had arrived when this one was let go.
    """

    arrived_s: float
    left_s: float
    present: int


@dataclass(frozen=True, slots=True)
class RankResult:
    """What one rank held before and after an op, whether it is right, and how long it took.

    Attributes:
        group: which of the groups that run at once it is in, counted from 0.
        group_rank: its number within that group; None: it is in none.
        time_s: the call, and the wait if there was a handle.
        launch_s: until the call gave its handle back, by the host's clock; None if it blocked.
        wait_s: in ``wait``; None for a blocking call.
        clock: what measured ``time_s`` and ``wait_s``, ``HOST`` or ``EVENTS``.
    """

    rank: int
    takes_part: bool
    before: Holding
    after: Holding
    expected: Holding
    verification: Verification
    time_s: float
    launch_s: float | None = None
    wait_s: float | None = None
    clock: str = HOST
    events: tuple[Event, ...] = ()
    steps: tuple[CallStep, ...] = ()
    attendance: Attendance | None = None
    group: int = 0
    group_rank: int | None = None

    def document(self) -> RankDocument:
        """Return the result in its form for users."""
        found = self.verification
        return RankDocument(
            self.rank,
            self.before.document(),
            self.after.document(),
            found.checked,
            found.wrong,
            found.mismatches,
            found.tolerance,
            self.time_s,
            self.launch_s,
            self.wait_s,
            self.clock,
            self.events,
            self.steps,
            self.attendance,
            self.takes_part,
            self.group,
            self.group_rank if self.group_rank != self.rank else None,
        )


@dataclass(frozen=True, slots=True)
class RankDocument:
    """One rank's part in an operation.

    Attributes:
        before: Tensors or objects that the rank held, in order.
        after: The same after the call; left out where the op leaves the buffer undefined.
        checked: Number of elements that were compared with plain arithmetic on the inputs.
        wrong: Number of elements that differ.
        mismatches: The first wrong elements.
        tolerance: Largest allowed difference; 0 where the result must match exactly.
        time_s: Seconds of the call, and of the wait if there was a handle.
        launch_s: Seconds until a non-blocking call returned its handle.
        wait_s: Seconds in ``wait`` of a non-blocking call.
        clock: Clock of these times.
        takes_part: False if the rank is in no group.
        group: Index of the rank's group.
        group_rank: Rank within the group, where that is another number.
    """

    rank: int
    before: list[Any] | None
    after: list[Any] | None = None
    checked: int = 0
    wrong: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    tolerance: float = 0.0
    time_s: float = 0.0
    launch_s: float | None = None
    wait_s: float | None = None
    clock: str = HOST
    events: tuple[Event, ...] = ()
    steps: tuple[CallStep, ...] = ()
    attendance: Attendance | None = None
    takes_part: bool = True
    group: int = 0
    group_rank: int | None = None


# ------------------------------------------------------------------------ what the commands report


@dataclass(frozen=True, slots=True)
class CallDocument:
    """A call: torch's name of the op, the function of torch.distributed, and its settings.

    The settings are those of `OpSpec`; they are left out where they have their default or the op
    doesn't take them.
    """

    name: str
    call: str
    form: str = "tensor"
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    reduce_op: str | None = None
    root: int | None = None
    src: int | None = None
    dst: int | None = None
    pattern: str | None = None
    async_op: bool = False
    values: tuple[tuple[Number, ...] | None, ...] | None = None
    fill: Number | str | None = None
    seed: int | None = None
    sizes: tuple[int, ...] | None = None
    splits: tuple[tuple[int, ...], ...] | None = None
    objects_json: tuple[str | None, ...] | None = None
    inference: bool = False
    factor: float = 2.0
    monitored: bool = False
    straggler: int | None = None
    straggler_delay_s: float = 0.0
    in_place: bool = False


def call_document(spec: OpSpec) -> CallDocument:
    """Return the call of a spec as documents have it."""
    op = REGISTRY[spec.op]
    form = op.form(spec)
    same = [each.name for each in fields(CallDocument) if hasattr(spec, each.name)]
    given: dict[str, Any] = {name: getattr(spec, name) for name in same}
    if spec.objects or not op.traffic(spec).payload_bytes:
        given |= {"dtype": None, "shape": None}
    return CallDocument(name=spec.op, call=form.call, form=form.name, **given)


@dataclass(frozen=True, slots=True)
class ExplainedRank:
    """What a rank would hold before and after."""

    rank: int
    before: Holding
    after: Holding


@dataclass(frozen=True, slots=True)
class Explanation:
    """An op drawn without running it: what every rank holds before and after, and who gives.

    Attributes:
        ranks: those that are shown.
        moves: (from, to) for each pair between which data moves.
        meets: nothing moves; the ranks wait for each other.
        names: in which releases of torch its calls have which names, in sentences.
    """

    spec: OpSpec
    words: Words
    traffic: Traffic
    ranks: tuple[ExplainedRank, ...]
    moves: tuple[tuple[int, int], ...]
    meets: bool = False
    names: tuple[str, ...] = ()
    ok: ClassVar[bool] = True

    def document(self) -> ExplanationDocument:
        """Return the explanation in its form for users."""
        call = call_document(self.spec)
        moves, meets, names = self.moves, self.meets, self.names
        return ExplanationDocument(call, self.words, self.traffic, self.ranks, moves, meets, names)


@dataclass(frozen=True, slots=True)
class ExplanationDocument:
    """An `Explanation` for users."""

    op: CallDocument
    words: Words
    traffic: Traffic
    ranks: tuple[ExplainedRank, ...]
    moves: tuple[tuple[int, int], ...] = ()
    meets: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpReport:
    """An op that ran, or a world that failed while running it.

    Attributes:
        spec: of the first group, or of the whole world.
        groups: the ranks of each group that ran at once; empty: the world was one.
        form: which form of the op.
        calls: the function of torch.distributed.
        ranks: empty if the world failed.
        explanation: if it was asked for.
        warning: that this is known to be wrong in this release of torch; else empty.
    """

    spec: OpSpec
    groups: tuple[tuple[int, ...], ...]
    form: str
    calls: str
    traffic: Traffic
    world: WorldReport
    ranks: tuple[RankResult, ...]
    versions: dict[str, str] = field(default_factory=dict)
    explanation: Explanation | None = None
    warning: str = ""

    @property
    def ok(self) -> bool:
        """Whether every rank returned and every defined element was right."""
        return self.world.ok and all(each.verification.ok for each in self.ranks)

    def document(self) -> OpDocument:
        """Return the report in its form for users."""
        return OpDocument(
            call_document(self.spec),
            self.world,
            self.traffic,
            self.ranks,
            self.versions,
            self.groups,
            self.explanation,
            self.warning,
        )


@dataclass(frozen=True, slots=True)
class OpDocument:
    """An `OpReport` for users.

    Attributes:
        ranks: Result of each rank; left out if the world failed.
        groups: Ranks of each group that ran at once; left out if the whole world was one.
        warning: Sentence that says what this release of torch does wrong here.
    """

    op: CallDocument
    world: WorldReport
    traffic: Traffic
    ranks: tuple[RankResult, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    groups: tuple[tuple[int, ...], ...] = ()
    explanation: Explanation | None = None
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Introduction:
    """What one rank of ``hello`` says of itself."""

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
    """Every rank's introduction."""

    world: WorldReport
    ranks: tuple[Introduction, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every rank came, and heard from all the others."""
        return self.world.ok and all(each.heard_from == len(self.ranks) for each in self.ranks)


@dataclass(frozen=True, slots=True)
class OpEntry:
    """One form of an operation: its command, the flags that choose it, and torch's call."""

    command: str
    flags: str
    calls: str
    summary: str


@dataclass(frozen=True, slots=True)
class OpList:
    """All operations in all their forms."""

    ops: tuple[OpEntry, ...]
    ok: ClassVar[bool] = True
