"""gather: the root gets the list of all tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.model import Traffic, Words
from distdemo.ops.contract import Buffers, Handles, Op, Result, Source, bytes_per_tensor, handles

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from distdemo.model import OpSpec


class Gather(Op):
    """The root gets every rank's tensor, in the order of the ranks.

    Before and after, root 0::

        [ 0,  1]  # rank 0    [0, 1], [10, 11]  # rank 0
        [10, 11]  # rank 1    nothing           # rank 1
    """

    name = "gather"
    takes = frozenset({"root", "async_op"})
    list_after = True
    root_is = "dst"
    words = Words(
        summary="The root gets every rank's tensor, in the order of the ranks.",
        when="Bring predictions or metrics of all ranks to the one that writes the file.",
        mistake="Passing gather_list on ranks other than the root, which raises an error there. "
        "Only the root has a list; for a list on every rank use all_gather.",
        call="dist.gather(tensor, pieces if rank == root else None, dst=root)",
    )

    def result(self, rank: int, spec: OpSpec) -> Result:
        """The root holds all pieces, the others nothing."""
        if rank != (spec.root or 0):
            return ()
        return tuple(Source((source,)) for source in range(spec.world_size))

    def traffic(self, spec: OpSpec) -> Traffic:
        """S is all n pieces, factor (n−1)/n: the root's own does not travel."""
        n = spec.world_size
        return Traffic(n * bytes_per_tensor(spec), "all n pieces", (n - 1) / n, "(n−1)/n")

    def run(
        self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, *, async_op: bool
    ) -> Handles:
        """Collective: ``dist.gather``."""
        import torch.distributed as dist

        work = dist.gather(
            buffers.send[0],
            buffers.recv or None,
            dst=spec.root or 0,
            group=group,
            async_op=async_op,
        )
        return handles(work)
