"""What ranks held before and after an op, and whether that is right. Frozen; no torch.

What is kept of tensors and objects is enough to show them; the comparison was made on the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distdemo.ops.spec import Number

HOST = "perf_counter"
"""The clock of a call on the host."""
EVENTS = "CUDA events"
"""The clock of a call on tensors of a GPU."""


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
class Thing:
    """A Python object that a rank holds.

    Attributes:
        value: what JSON has: None, bool, numbers, text, lists and dictionaries of them.
        size: bytes of its pickle.
        source: the rank that it came from.
    """

    value: Any
    size: int
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """What a rank holds: its pieces in order (none: it holds nothing).

    Attributes:
        omitted: pieces left out between the first and the last half of ``pieces``.
        undefined: the op leaves this buffer undefined; its contents mean nothing.
        listed: the rank has a list of tensors here, though it may be of one.
        joined: the pieces lie one after the other in a single tensor.
    """

    pieces: tuple[Piece | Thing, ...] = ()
    omitted: int = 0
    undefined: bool = False
    listed: bool = False
    joined: bool = False


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
class Step:
    """One step of an op that is made of several calls.

    Attributes:
        name: what was done, ``pad to the largest``.
        holds: what the rank had afterwards.
        sent: bytes that it handed to the backend.
    """

    name: str
    holds: Holding
    sent: int


@dataclass(frozen=True, slots=True)
class Attendance:
    """When a rank came to a barrier and left it, on the clock that all ranks of a machine share.

    Attributes:
        arrived: seconds since the first rank of the world arrived.
        left: likewise.
        present: how many ranks of the group had arrived when this one was let go.
    """

    arrived: float
    left: float
    present: int


@dataclass(frozen=True, slots=True)
class RankRecord:
    """What one rank held before and after an op, whether it is right, and how long it took.

    Attributes:
        group_rank: its number within the group of the op; None: it is in none.
        group: which of the groups that run at once it is in, counted from 0.
        seconds: the call, and the wait if there was a handle.
        launch_seconds: until the call gave its handle back; None for a blocking call.
        wait_seconds: in ``wait``; None for a blocking call.
        clock: what measured ``seconds`` and ``wait_seconds``, ``HOST`` or ``EVENTS``; when a call
            gave its handle back is always the host's to say.
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
    steps: tuple[Step, ...] = ()
    attendance: Attendance | None = None
    group_rank: int | None = None
    group: int = 0
    clock: str = HOST
