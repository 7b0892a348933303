"""A call, its data, and the verification of its result, as frozen records; no torch."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from distdemo.dtypes import DTYPES
from distdemo.encoding import pickled_size
from distdemo.launcher.clock import HOST

if TYPE_CHECKING:
    from typing_extensions import Self

Number = bool | int | float | complex


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operation; an op reads the settings that it takes.

    Every document with a call contains this record. Ranks count from 0 to n − 1 within the group.

    Attributes:
        op: torch's own name, such as ``all_reduce``.
        group_size: Number of ranks that take part; n in every formula.
        call: Function of torch.distributed; see ``Op.call``.
        dtype: torch's name of the element type; empty if no tensor moves.
        shape: Shape of one tensor; () is a scalar.
        reduce_op: ``sum``, ``product``, ``min``, ``max``, ``avg``, ``band``, ``bor``, ``bxor``,
            ``premul_sum``.
        root: Rank that gives (broadcast, scatter) or receives (reduce, gather).
        src: Sender of a point-to-point pair.
        dst: Receiver of a point-to-point pair.
        pattern: Point-to-point pattern: ``pair``, ``ring`` or ``exchange``.
        async_op: True to ask for a handle and wait on it.
        variant: ``list``, ``single`` (one tensor that holds all pieces) or ``uneven``.
        sizes: Lengths of the ranks' tensors, if they are uneven.
        splits: Lengths of the parts for the ranks, one row per rank, if they are uneven.
        objects: True for Python objects instead of tensors.
        inference: True to run under ``torch.inference_mode``.
        monitored: True for the barrier that names late ranks.
        straggler: Rank that is late for a barrier.
        straggler_delay_s: Delay of that rank.
        in_place: True if input and output share memory where the call allows both (see
            ``Op.in_place_slots``).
    """

    op: str = field(metadata={"json": "name"})
    group_size: int = field(default=0, metadata={"json": False})
    call: str = field(default="", kw_only=True)
    dtype: str = ""
    shape: tuple[int, ...] = ()
    reduce_op: str | None = None
    root: int | None = None
    src: int | None = None
    dst: int | None = None
    pattern: str | None = None
    async_op: bool = False
    variant: str | None = None
    sizes: tuple[int, ...] | None = None
    splits: tuple[tuple[int, ...], ...] | None = None
    objects: bool = False
    inference: bool = False
    monitored: bool = False
    straggler: int | None = None
    straggler_delay_s: float = 0.0
    in_place: bool = False

    @classmethod
    def of(cls, other: Call, /, **more: Any) -> Self:
        """Return the same call as another class, or with other settings."""
        return cls(**{member.name: getattr(other, member.name) for member in fields(Call)} | more)

    @property
    def is_joined(self) -> bool:
        """True if a list of pieces is stored in a single tensor."""
        return self.variant == "single"

    @property
    def noun(self) -> str:
        """Word for what a rank holds: object or tensor."""
        return "object" if self.objects else "tensor"


@dataclass(frozen=True, slots=True)
class OpSpec(Call):
    """A call with its data and its group, as the ranks run it.

    Attributes:
        values: The user's numbers, one row per label (see ``Op.cut``); None for a missing row.
        seed: Seed to mix the default values with, instead of counting.
        objects_json: The user's objects as JSON, one per label; None for a missing one.
        members: Ranks of the world that form the group; None for all.
        monitor_timeout_s: Timeout of a monitored barrier.
    """

    dtype: str = "float32"
    shape: tuple[int, ...] = (4,)
    values: tuple[tuple[Number, ...] | None, ...] | None = None
    seed: int | None = None
    objects_json: tuple[str | None, ...] | None = None
    members: tuple[int, ...] | None = None
    monitor_timeout_s: float = 10.0

    def member(self, rank: int) -> int:
        """Return the world rank of a rank of the group."""
        return rank if self.members is None else self.members[rank]

    @property
    def numel(self) -> int:
        """Number of elements in one tensor."""
        return math.prod(self.shape)

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        """Return the bytes of a tensor of this shape."""
        return math.prod(shape) * DTYPES[self.dtype].itemsize

    def bytes_each(self, label: int | None = None) -> int:
        """Return the bytes of one tensor, or of this label's object.

        Without a label, return those of the largest object: torch.distributed pads all pickles to
        the size of the largest one.
        """
        if not self.objects:
            return self.bytes_of(self.shape)
        labels = range(self.group_size) if label is None else (label,)
        return max(pickled_size(object_of(one, self)) for one in labels)


# ------------------------------------------------------------------------ timing and verification


@dataclass(frozen=True)
class CallTiming:
    """Times of a call.

    Attributes:
        time_s: Seconds of the call, and of the wait if there was a handle.
        launch_s: Seconds until the call returned its handle, by the host's clock; None if it
            blocked.
        wait_s: Seconds in ``wait``; None for a blocking call.
        clock: Clock of ``time_s`` and ``wait_s``.
        started_s: Time of the call, by ``time.monotonic``.
        ended_s: Time at which it was complete, by the same clock.
        present: Number of ranks that had arrived at a barrier when this one left it.
    """

    time_s: float = 0.0
    launch_s: float | None = None
    wait_s: float | None = None
    clock: str = HOST
    started_s: float = 0.0
    ended_s: float = 0.0
    present: int | None = None


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


# -------------------------------------------------------------------------------- Python objects


def object_of(label: int, spec: OpSpec) -> Any:
    """Return the Python object of this label: of a rank, or of a piece of the root's list.

    It is the user's, or a default one whose content and pickled length differ by rank, so that
    padding and misrouting are visible: rank 2 holds ``{"rank": 2, "items": [20, 21]}``.
    """
    if spec.objects_json is not None:
        return json.loads(spec.objects_json[label] or "null")
    number = spec.member(label)
    return {"rank": number, "items": [10 * number + i for i in range(number % 5)]}


def object_text(value: Any) -> str:
    """Return the object as JSON; equal objects have equal texts and vice versa."""
    return json.dumps(value, ensure_ascii=False)
