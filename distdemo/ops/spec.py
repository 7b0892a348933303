"""What an operation is asked for: one frozen record; no torch."""

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
        op: torch's own name, ``all_reduce``.
        group_size: ranks that take part; n of every formula. Ranks below count from 0 to n − 1,
            within the group if there is one.
        dtype: torch's name of the element type.
        shape: of one tensor; () is a scalar.
        reduce_op: ``sum``, ``product``, ``min``, ``max``, ``avg``, ``band``, ``bor``, ``bxor``,
            ``premul_sum``.
        root: the rank that gives (broadcast, scatter) or receives (reduce, gather).
        src: the sender of a point-to-point pair.
        dst: its receiver.
        pattern: of point-to-point, ``pair``, ``ring`` or ``exchange``.
        async_op: ask for a handle and wait on it.
        values: the user's own data, a row per label (see ``Op.cut``); None for a row not given.
        fill: the same number everywhere, or ``rank`` for each rank's own number.
        seed: mix the default values by this number instead of counting.
        variant: ``list``, ``single`` (one tensor that holds all pieces) or ``uneven``.
        sizes: for uneven tensors, the length of each rank's.
        splits: for uneven parts, a row a rank: the length of its part for each rank.
        objects: Python objects instead of tensors.
        objects_json: the user's own objects as JSON, one a label; None for one not given.
        members: the ranks of the world that form the group; None: all of them.
        inference: under ``torch.inference_mode``.
        factor: what ``premul_sum`` multiplies with.
        monitored: of a barrier, the one that names late ranks.
        straggler: of a barrier, the rank that comes late.
        straggler_delay_s: by how much.
        monitor_timeout_s: how long a monitored barrier waits.
        in_place: the output lies in the input, or the input in the output, where the call allows
            both (see ``Op.overlay``).
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
        """The rank in the world of a rank of the group."""
        return rank if self.members is None else self.members[rank]

    @property
    def numel(self) -> int:
        """Elements of one tensor."""
        return math.prod(self.shape)

    @property
    def is_joined(self) -> bool:
        """Whether a list of pieces lies in a single tensor, one after the other."""
        return self.variant == "single"

    @property
    def noun(self) -> str:
        """What a rank holds one of, in words."""
        return "object" if self.objects else "tensor"

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        """Bytes of a tensor of this shape."""
        return math.prod(shape) * DTYPES[self.dtype].itemsize

    def bytes_each(self, label: int | None = None) -> int:
        """Bytes of one tensor, or of this label's object.

        Without a label that of the largest object: where several travel, torch.distributed pads
        every pickle to the largest one.
        """
        if not self.objects:
            return self.bytes_of(self.shape)
        labels = range(self.group_size) if label is None else (label,)
        return max(pickled_size(object_of(each, self)) for each in labels)
