"""The role of every rank in an op that runs in groups, and the process groups."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distdemo.ops.contract import NonMember

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.distributed import ProcessGroup

    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec


@dataclass(frozen=True, slots=True)
class GroupRole:
    """The op that one rank runs, and its group.

    Attributes:
        op: Op to run; ``NonMember`` for a rank in no group.
        spec: Spec of the rank's group.
        rank: Rank within the group.
        group: Index of the group, or None if the rank is in no group.
        name: Name of this op, unique in its world.
    """

    op: Op
    spec: OpSpec
    rank: int
    group: int | None
    name: str = ""


def role_of(rank: int, op: Op, specs: Sequence[OpSpec], name: str = "") -> GroupRole:
    """Return the role of a rank.

    Args:
        rank: Rank in the world.
        op: Op that the groups run.
        specs: One spec per group; their members don't overlap.
        name: Name of this op, unique in its world.
    """
    for number, spec in enumerate(specs):
        if spec.members is None:
            return GroupRole(op, spec, rank, number, name)
        if rank in spec.members:
            return GroupRole(op, spec, spec.members.index(rank), number, name)
    first = specs[0]
    spec = replace(
        first,
        op=NonMember.name,
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
    return GroupRole(NonMember(), spec, 0, None, name)


class Groups:
    """Process groups of a world. All ranks create them once, in the same order."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._groups: dict[tuple[Any, ...], ProcessGroup | None] = {}

    def of(self, specs: Sequence[OpSpec], role: GroupRole) -> ProcessGroup | None:
        """Create the specs' groups; return this rank's, or None for the world. Collective."""
        groups = [self._one(spec) for spec in specs]
        return None if role.group is None else groups[role.group]

    def _one(self, spec: OpSpec) -> ProcessGroup | None:
        # Objects are pickled into CPU tensors, which not every backend supports.
        devices = dist.Backend.backend_capability[self._backend]
        needs_gloo = spec.objects and "cpu" not in devices
        backend = "gloo" if needs_gloo else None
        key = (spec.members, backend)
        if key == (None, None):
            return None
        if key not in self._groups:
            ranks = None if spec.members is None else list(spec.members)
            with _unbound(backend):
                self._groups[key] = dist.new_group(ranks, backend=backend)
        return self._groups[key]


@contextmanager
def _unbound(backend: str | None) -> Iterator[None]:
    """Unbind the default group from its GPU within the block, if `backend` is another backend.

    Before torch 2.15, ``new_group`` splits the communicator of a bound nccl group on the ranks
    that aren't members of the new group, whatever the new group's backend is. A split needs all
    ranks, but the members of a gloo group don't take part, so the non-members would hang
    (``_get_split_source`` in distributed_c10d.py, which checks the backend since 2.15).
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
    """Return the context in which this spec's tensors are created and its call runs."""
    return torch.inference_mode(spec.inference)
