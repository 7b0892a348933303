"""Which part a rank has in an op that runs in groups, and the groups themselves."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distdemo import backends
from distdemo.ops.contract import Outsider

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.distributed import ProcessGroup

    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank has to do.

    Attributes:
        op: the op, or ``Outsider`` for a rank in no group.
        spec: of its group.
        rank: its number within the group.
        group: which of the groups it is in, counted from 0; None: in none.
        place: a name for this op that no other of the same world has.
    """

    op: Op
    spec: OpSpec
    rank: int
    group: int | None
    place: str = ""


def part_of(rank: int, op: Op, specs: Sequence[OpSpec], place: str = "") -> Part:
    """The part of this rank of the world.

    Args:
        rank: its number in the world.
        op: what the groups run.
        specs: one a group; their members don't overlap.
        place: a name for this op that no other of the same world has.
    """
    for number, spec in enumerate(specs):
        if spec.members is None:
            return Part(op, spec, rank, number, place)
        if rank in spec.members:
            return Part(op, spec, spec.members.index(rank), number, place)
    first = specs[0]
    alone = replace(
        first,
        op=Outsider.name,
        group_size=1,
        members=(rank,),
        variant=None,
        sizes=None,
        splits=None,
        values=None,
        objects_json=None,
        async_op=False,
        straggler=None,
    )
    return Part(Outsider(), alone, 0, None, place)


class Groups:
    """The process groups of a world, each made once and by all ranks in the same order."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._made: dict[tuple[Any, ...], ProcessGroup | None] = {}

    def of(self, specs: Sequence[OpSpec], part: Part) -> ProcessGroup | None:
        """Collective: make the groups of these specs; this rank's one, None for the whole world."""
        made = [self._one(spec) for spec in specs]
        return None if part.group is None else made[part.group]

    def _one(self, spec: OpSpec) -> ProcessGroup | None:
        # Objects are pickled into CPU tensors, which not every backend takes.
        beside = spec.objects and "cpu" not in backends.REGISTRY[self._backend].devices
        backend = "gloo" if beside else None
        key = (spec.members, backend)
        if key == (None, None):
            return None
        if key not in self._made:
            ranks = None if spec.members is None else list(spec.members)
            with _unbound(backend):
                self._made[key] = dist.new_group(ranks, backend=backend)
        return self._made[key]


@contextmanager
def _unbound(backend: str | None) -> Iterator[None]:
    """Within the block the default group is bound to no GPU, for a group of another backend.

    Before torch 2.15 ``new_group`` splits the communicator of a bound nccl group on the ranks that
    are no members of the new one, whatever that one's backend is. All ranks have to take part in a
    split, but the members of a gloo group don't: those outside would wait for ever
    (``_get_split_source`` in distributed_c10d.py, which asks for the backend from 2.15 on).
    """
    world = dist.group.WORLD
    if backend is None or world is None or world.bound_device_id is None:
        yield
        return
    bound = world.bound_device_id
    world.bound_device_id = None
    try:
        yield
    finally:
        world.bound_device_id = bound


def inference(spec: OpSpec) -> torch.inference_mode:
    """The block in which this spec's tensors are made and its call runs."""
    return torch.inference_mode(spec.inference)
