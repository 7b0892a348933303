"""The settings of an operation as one frozen record; no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from distdemo.dtypes import DTYPES
from distdemo.ops.values import object_of, pickled_size

Number = bool | int | float | complex


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One operation with all its settings; an op reads those that it takes.

    Attributes:
        op: torch's own name, such as ``all_reduce``.
        group_size: Number of ranks that take part; n in every formula. The ranks in other fields
            count from 0 to n − 1, within the group if there is one.
        dtype: torch's name of the element type.
        shape: Shape of one tensor; () is a scalar.
        reduce_op: ``sum``, ``product``, ``min``, ``max``, ``avg``, ``band``, ``bor``, ``bxor``,
            ``premul_sum``.
        root: Rank that gives (broadcast, scatter) or receives (reduce, gather).
        src: Sender of a point-to-point pair.
        dst: Receiver of a point-to-point pair.
        pattern: Point-to-point pattern: ``pair``, ``ring`` or ``exchange``.
        async_op: True to ask for a handle and wait on it.
        values: The user's data, one row per label (see ``Op.cut``); None for a missing row.
        fill: Number in every element, or ``rank`` for each rank's own number.
        seed: Seed to mix the default values with, instead of counting.
        variant: ``list``, ``single`` (one tensor that holds all pieces) or ``uneven``.
        sizes: Length of each rank's tensor, if they are uneven.
        splits: Length of the parts for each rank, one row per rank, if they are uneven.
        objects: True for Python objects instead of tensors.
        objects_json: The user's objects as JSON, one per label; None for a missing one.
        members: Ranks of the world that form the group; None for all.
        inference: True to run under ``torch.inference_mode``.
        factor: Factor by which ``premul_sum`` multiplies.
        monitored: True for the barrier that names late ranks.
        straggler: Rank that is late for a barrier.
        straggler_delay_s: Delay of that rank.
        monitor_timeout_s: Timeout of a monitored barrier.
        in_place: True if input and output share memory where the call allows both (see
            ``Op.in_place_slots``).
    """

    op: str
    group_size: int
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
    seed: int | None = None
    variant: str | None = None
    sizes: tuple[int, ...] | None = None
    splits: tuple[tuple[int, ...], ...] | None = None
    objects: bool = False
    objects_json: tuple[str | None, ...] | None = None
    members: tuple[int, ...] | None = None
    inference: bool = False
    factor: float = 2.0
    monitored: bool = False
    straggler: int | None = None
    straggler_delay_s: float = 0.0
    monitor_timeout_s: float = 10.0
    in_place: bool = False

    def member(self, rank: int) -> int:
        """Return the world rank of a rank of the group."""
        return rank if self.members is None else self.members[rank]

    @property
    def numel(self) -> int:
        """Number of elements in one tensor."""
        return math.prod(self.shape)

    @property
    def is_joined(self) -> bool:
        """True if a list of pieces is stored in a single tensor."""
        return self.variant == "single"

    @property
    def noun(self) -> str:
        """Word for what a rank holds: object or tensor."""
        return "object" if self.objects else "tensor"

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
        return max(pickled_size(object_of(each, self)) for each in labels)
