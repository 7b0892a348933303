"""The frozen records that cross layers: what to run, and what ranks held before and after.

No torch, no rich, no typer: every layer may import this, and every record can be pickled. How
ranks ended is in ``outcomes``, what the views are drawn from in ``reports``.
"""

from __future__ import annotations

from dataclasses import dataclass

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
