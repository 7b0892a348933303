"""Records of the op commands: data before and after, verification, and reports.

Frozen; no torch, no rich. Large tensors are shortened for display; verification compares all
elements. Field names are those of the JSON documents: ``_s`` is seconds, ``_bytes`` bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from distdemo.launcher.clock import HOST
from distdemo.launcher.records import WorldReport
from distdemo.ops import REGISTRY
from distdemo.ops.contract import OpDoc, Traffic
from distdemo.ops.spec import Number, OpSpec

# ---------------------------------------------------------------------------- data of a rank


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor, shortened for display.

    Attributes:
        shape: Shape of the whole tensor.
        values: All elements in row-major order, or the first ones.
        last_values: The last elements, if some in the middle were left out.
        source: Rank that the data came from, or None if it was reduced over several.
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
        value: A JSON value.
        pickled_bytes: Size of its pickle.
        source: Rank that it came from.
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
    """Tensors or objects that a rank holds.

    Attributes:
        pieces: Tensors or objects in order; empty if it holds nothing.
        omitted: Number of pieces left out in the middle of ``pieces``.
        undefined: True if the op leaves this buffer undefined.
        listed: True if this is a list of tensors, possibly of one.
        joined: True if the pieces are consecutive in a single tensor.
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
    """One wrong element: its piece, its index, the actual and the expected value."""

    piece: int
    index: tuple[int, ...]
    got: Number | str
    expected: Number | str


@dataclass(frozen=True, slots=True)
class Verification:
    """Comparison of every defined element with plain arithmetic on the inputs.

    Attributes:
        ok: True if all match, or if nothing is defined (``checked`` is 0 then).
        checked: Number of elements compared.
        wrong: Number of elements that differ.
        tolerance: Largest allowed difference; 0 where the result must match exactly.
        mismatches: The first few wrong elements.
    """

    ok: bool
    checked: int
    wrong: int = 0
    tolerance: float = 0.0
    mismatches: tuple[Mismatch, ...] = ()


# ------------------------------------------------------------------------------- results of a rank


@dataclass(frozen=True, slots=True)
class Event:
    """One moment of a non-blocking operation.

    Attributes:
        at_s: Seconds since the first event of the world, or of the host if there are several.
        what: Description, ``irecv returned``.
        buffer: Contents of the buffer at that time.
        unchanged: True if the buffer still had its original contents.
        rule: Permitted use of the buffer from here on.
    """

    rank: int
    at_s: float
    what: str
    buffer: Holding
    unchanged: bool
    rule: str


@dataclass(frozen=True, slots=True)
class CallStep:
    """One step of an op that consists of several calls.

    Attributes:
        name: Description, ``pad to the largest``.
        buffer: Data of the rank after the step.
        sent_bytes: Bytes passed to the backend.
    """

    name: str
    buffer: Holding
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Attendance:
    """Times when a rank arrived at a barrier and left it, since the first arrival.

    Attributes:
        present: Number of ranks in the group that had arrived when this one left.
    """

    arrived_s: float
    left_s: float
    present: int


@dataclass(frozen=True, slots=True)
class RankResult:
    """Data of one rank before and after an op, its verification and its times.

    Attributes:
        group: Index of the rank's group.
        group_rank: Rank within that group, or None if it is in no group.
        time_s: Seconds of the call, and of the wait if there was a handle.
        launch_s: Seconds until the call returned its handle, by the host's clock; None if it
            blocked.
        wait_s: Seconds in ``wait``; None for a blocking call.
        clock: Clock of ``time_s`` and ``wait_s``: ``HOST`` or ``EVENTS``.
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
    """Result of an operation on one rank.

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
        group_rank: Rank within the group, if it differs from `rank`.
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


# ------------------------------------------------------------------------ reports of the commands


@dataclass(frozen=True, slots=True)
class CallDocument:
    """A call: torch's name of the op, the function of torch.distributed, and its settings.

    The settings are those of `OpSpec`. Defaults, and settings that the op doesn't take, are
    left out.
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
    """Return the call of a spec in its form for users."""
    op = REGISTRY[spec.op]
    form = op.form(spec)
    same = [each.name for each in fields(CallDocument) if hasattr(spec, each.name)]
    given: dict[str, Any] = {name: getattr(spec, name) for name in same}
    if spec.objects or not op.traffic(spec).payload_bytes:
        given |= {"dtype": None, "shape": None}
    return CallDocument(name=spec.op, call=form.call, form=form.name, **given)


@dataclass(frozen=True, slots=True)
class ExplainedRank:
    """Data of one rank before and after an op."""

    rank: int
    before: Holding
    after: Holding


@dataclass(frozen=True, slots=True)
class Explanation:
    """Data flow of an op, computed without running it.

    Attributes:
        ranks: Ranks that are shown.
        moves: (from, to) for each pair between which data moves.
        is_barrier: True if no data moves and the ranks wait for each other.
        names: Sentences about names of its calls in other releases of torch.
    """

    spec: OpSpec
    words: OpDoc
    traffic: Traffic
    ranks: tuple[ExplainedRank, ...]
    moves: tuple[tuple[int, int], ...]
    is_barrier: bool = False
    names: tuple[str, ...] = ()
    ok: ClassVar[bool] = True

    def document(self) -> ExplanationDocument:
        """Return the explanation in its form for users."""
        call = call_document(self.spec)
        moves, is_barrier, names = self.moves, self.is_barrier, self.names
        return ExplanationDocument(
            call, self.words, self.traffic, self.ranks, moves, is_barrier, names
        )


@dataclass(frozen=True, slots=True)
class ExplanationDocument:
    """An `Explanation` for users."""

    op: CallDocument
    words: OpDoc
    traffic: Traffic
    ranks: tuple[ExplainedRank, ...]
    moves: tuple[tuple[int, int], ...] = ()
    is_barrier: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpReport:
    """Result of an op, or the world that failed while running it.

    Attributes:
        spec: Spec of the first group, or of the whole world.
        groups: Ranks of each group; empty if the whole world was one group.
        form: Form of the op.
        calls: Function of torch.distributed.
        ranks: Result of each rank; empty if the world failed.
        explanation: Drawing of the op, with --explain.
        warning: Known bug of this release of torch; else empty.
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
        """Return True if every rank returned and every defined element is right."""
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
        groups: Ranks of each group; left out if the whole world was one group.
        warning: Known bug of this release of torch.
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
        """Return True if the world ran and every rank counted all ranks."""
        return self.world.ok and all(each.heard_from == len(self.ranks) for each in self.ranks)


@dataclass(frozen=True, slots=True)
class OpEntry:
    """One form of an operation: its command, its flags and the call in torch."""

    command: str
    flags: str
    calls: str
    summary: str


@dataclass(frozen=True, slots=True)
class OpList:
    """List of all operations in all their forms."""

    ops: tuple[OpEntry, ...]
    ok: ClassVar[bool] = True
