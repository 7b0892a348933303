"""The frozen records that cross layers: what to run, how ranks ended, what they held.

No torch, no rich, no typer: every layer may import this, and every record can be pickled.
Times are seconds; ``at`` counts from the moment the launcher began to start ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Number = bool | int | float | complex

# ------------------------------------------------------------------------------------ requests


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """The ranks to start on this machine.

    Attributes:
        world_size: how many ranks.
        backend: torch's name of it, ``gloo``.
        device: ``cpu``, or ``cuda``: then rank r takes GPU r modulo the number of GPUs.
        timeout: seconds from the start of the first rank until the world is judged.
        start_method: ``auto``, ``fork``, ``forkserver`` or ``spawn``.
        capture: collect what ranks write to stdout and stderr instead of letting it through.
        lazy: let gloo connect two ranks when they first talk (quicker, but then even an irecv may
            wait for its peer), or not; None leaves it to torch and the user's environment.
    """

    world_size: int
    backend: str = "gloo"
    device: str = "cpu"
    timeout: float = 30.0
    start_method: str = "auto"
    capture: bool = False
    lazy: bool | None = None


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One operation with all its settings; an op reads those that it takes.

    Attributes:
        op: torch's own name, ``all_reduce``.
        world_size: ranks that take part.
        dtype: torch's name of the element type.
        shape: of one tensor; () is a scalar.
        reduce_op: ``sum``, ``product``, ``min``, ``max``, ``avg``, ``band``, ``bor``, ``bxor``.
        root: the rank that gives (broadcast, scatter) or receives (reduce, gather).
        src: the sender of a point-to-point pair.
        dst: its receiver.
        pattern: of point-to-point, ``pair`` or ``ring``.
        async_op: ask for a handle and wait on it.
        values: the user's own data, a row per label (see ``Op.label``); None for a row not given.
        fill: the same number everywhere, or ``rank`` for each rank's own number.
    """

    op: str
    world_size: int
    dtype: str = "float32"
    shape: tuple[int, ...] = (4,)
    reduce_op: str | None = None
    root: int | None = None
    src: int | None = None
    dst: int | None = None
    pattern: str | None = None
    async_op: bool = False
    values: tuple[tuple[Number, ...] | None, ...] | None = None
    fill: Number | str | None = None

    @property
    def numel(self) -> int:
        """Elements of one tensor."""
        product = 1
        for length in self.shape:
            product *= length
        return product


@dataclass(frozen=True, slots=True)
class Traffic:
    """What an op moves, by the formulas of nccl-tests (doc/PERFORMANCE.md).

    Attributes:
        payload: bytes S that algbw counts.
        payload_words: what S is, in words.
        factor: busbw is factor × algbw.
        formula: the factor in terms of n, as text.
    """

    payload: int
    payload_words: str
    factor: float
    formula: str

    @property
    def bus_bytes(self) -> float:
        """Bytes that each rank's link carries at least: S × factor."""
        return self.payload * self.factor


# ------------------------------------------------------------------------ how ranks ended


@dataclass(frozen=True, slots=True)
class Phase:
    """A step that a rank said it reached. ``step`` grows as the rank gets further."""

    step: int
    name: str
    at: float = 0.0


NOT_STARTED = Phase(-1, "not started")


@dataclass(frozen=True, slots=True)
class Where:
    """Where a rank's main thread was when it was asked.

    Attributes:
        collective: the torch.distributed function it waited in, empty if none.
        place: the user's innermost line, ``train.py:12 in step``.
    """

    collective: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one rank ended; one of the classes below."""

    rank: int
    phase: Phase = NOT_STARTED
    at: float = 0.0
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned(Outcome):
    """The function returned this value."""

    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised(Outcome):
    """The function raised. ``consequence``: it only lost a peer that failed before."""

    type: str
    message: str
    traceback: str
    consequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Died(Outcome):
    """The process ended without a word: by a signal, or with this exit code."""

    signal: int | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(Outcome):
    """It was still running at the deadline."""

    where: Where | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Outcome):
    """The launcher ended it because the world had failed or was interrupted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a world failed: the root cause first.

    Attributes:
        ranks: the ranks at fault; empty if none is (all wait for each other).
        consequences: ranks that failed or waited because of them.
        traceback: of the first rank at fault, if it left one.
    """

    what: str
    why: str
    hint: str
    ranks: tuple[int, ...] = ()
    consequences: tuple[int, ...] = ()
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class WorldReport:
    """How a world went.

    Attributes:
        outcomes: one a rank, in order.
        verdict: None if every rank returned.
        seconds: from the start of the first rank until the last one was gone.
        start_method: the one taken.
        start_reason: why that one.
        interrupted_by: the signal that ended it, or None.
    """

    world: WorldSpec
    outcomes: tuple[Outcome, ...]
    verdict: Verdict | None
    seconds: float
    start_method: str
    start_reason: str
    interrupted_by: int | None = None

    @property
    def ok(self) -> bool:
        """Whether every rank returned."""
        return self.verdict is None

    @property
    def values(self) -> list[Any]:
        """What the ranks returned, in order; only for a world that went well."""
        return [o.value for o in self.outcomes if isinstance(o, Returned)]


# ------------------------------------------------------------------------- what ranks held


@dataclass(frozen=True, slots=True)
class Piece:
    """What is kept of one tensor for showing it.

    Attributes:
        shape: of the whole tensor.
        head: all its elements in row-major order, or the first ones.
        tail: the last ones, if some in the middle were left out.
        source: the rank that the data came from; None if it was reduced over several.
    """

    shape: tuple[int, ...]
    head: tuple[Number, ...]
    tail: tuple[Number, ...] = ()
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """What a rank holds: its pieces in order (none: it holds nothing).

    Attributes:
        omitted: pieces left out between the first and the last half of ``pieces``.
        undefined: the op leaves this buffer undefined; its contents mean nothing.
        listed: the rank has a list of tensors here, though it may be of one.
    """

    pieces: tuple[Piece, ...] = ()
    omitted: int = 0
    undefined: bool = False
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One wrong element: in which piece, at which index, and what it should be."""

    piece: int
    index: tuple[int, ...]
    got: Number
    expected: Number


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


@dataclass(frozen=True, slots=True)
class Event:
    """One moment of a non-blocking operation, on the clock that all ranks of a machine share.

    Attributes:
        at: seconds since the first event of the world.
        what: what the rank did, ``irecv returned``.
        holds: what the buffer held then.
        unchanged: it still held what it held before.
        rule: what the program may do with the buffer now.
    """

    rank: int
    at: float
    what: str
    holds: Holding
    unchanged: bool
    rule: str


@dataclass(frozen=True, slots=True)
class RankRecord:
    """What one rank held before and after an op, whether it is right, and how long it took.

    Attributes:
        seconds: the call, and the wait if there was a handle.
        launch_seconds: until the call gave its handle back; None for a blocking call.
        wait_seconds: in ``wait``; None for a blocking call.
    """

    rank: int
    takes_part: bool
    before: Holding
    after: Holding
    expected: Holding
    verification: Verification
    seconds: float
    launch_seconds: float | None = None
    wait_seconds: float | None = None
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class OpReport:
    """An op that ran (or a world that failed while running it): what every view is drawn from."""

    spec: OpSpec
    world: WorldReport
    traffic: Traffic
    ranks: tuple[RankRecord, ...]
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every rank returned and every defined element was right."""
        return self.world.ok and all(record.verification.ok for record in self.ranks)


@dataclass(frozen=True, slots=True)
class Introduction:
    """What one rank of ``hello`` says of itself."""

    rank: int
    world_size: int
    pid: int
    host: str
    backend: str
    device: str
    startup_seconds: float
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
        size = self.world.world.world_size
        return self.world.ok and all(each.heard_from == size for each in self.ranks)


# ---------------------------------------------------------------------------- explaining


@dataclass(frozen=True, slots=True)
class Words:
    """What an op's own file says of it, in sentences.

    Attributes:
        summary: one line, what it does.
        when: when people use it.
        mistake: the usual mistake with it, and what happens then.
        call: the torch call that this runs.
    """

    summary: str
    when: str
    mistake: str
    call: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """An op drawn without running it: what every rank holds before and after, and who gives."""

    spec: OpSpec
    words: Words
    before: tuple[Holding, ...]
    after: tuple[Holding, ...]
    edges: frozenset[tuple[int, int]]
    traffic: Traffic
    notes: tuple[str, ...] = ()
