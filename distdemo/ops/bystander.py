"""A rank outside the group of an op: it makes no call, and what it holds must stay as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.ops.contract import Op
from distdemo.ops.parts import Buffers, Call, Result, Source, nothing
from distdemo.ops.spec import Traffic, Words

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from distdemo.ops.spec import OpSpec


class Bystander(Op):
    """Not in the registry: what the ranks outside of ``--group`` are given to do.

    Before and after, rank 1 outside::

        [10, 11]  # rank 1    [10, 11]  # rank 1
    """

    name = "bystander"
    takes = frozenset()
    in_place = True
    words = Words("Takes no part.", "", "", "")

    def result(self, rank: int, spec: OpSpec) -> Result:
        """What it held before."""
        return (Source((rank,)),)

    def takes_part(self, rank: int, spec: OpSpec) -> bool:
        """Never."""
        return False

    def traffic(self, spec: OpSpec) -> Traffic:
        """Nothing moves."""
        return Traffic(0, "nothing", 0.0, "0")

    def bind(
        self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, *, async_op: bool
    ) -> Call:
        """Nothing."""
        return nothing
