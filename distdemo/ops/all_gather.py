"""all_gather: every rank gets the list of all tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdemo.model import Traffic, Words
from distdemo.ops.contract import Buffers, Handles, Op, Result, Source, bytes_per_tensor, handles

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from distdemo.model import OpSpec


class AllGather(Op):
    """Every rank gets every rank's tensor, in the order of the ranks.

    Before and after::

        [ 0,  1]  # rank 0    [0, 1], [10, 11]  # rank 0
        [10, 11]  # rank 1    [0, 1], [10, 11]  # rank 1
    """

    name = "all_gather"
    takes = frozenset({"async_op"})
    list_after = True
    words = Words(
        summary="Every rank gets every rank's tensor, in the order of the ranks.",
        when="Give every rank all the parts: the embeddings for a contrastive loss, say.",
        mistake="[tensor] * n as the output list. The entries are one and the same tensor, so "
        "every rank's value turns out to be the last one. Make n separate tensors.",
        call="dist.all_gather([torch.empty_like(tensor) for _ in range(n)], tensor)",
    )

    def result(self, rank: int, spec: OpSpec) -> Result:
        """All hold all pieces."""
        return tuple(Source((source,)) for source in range(spec.world_size))

    def traffic(self, spec: OpSpec) -> Traffic:
        """S is all n pieces, factor (n−1)/n: a rank's own does not travel to it."""
        n = spec.world_size
        return Traffic(n * bytes_per_tensor(spec), "all n pieces", (n - 1) / n, "(n−1)/n")

    def run(
        self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, *, async_op: bool
    ) -> Handles:
        """Collective: ``dist.all_gather``."""
        import torch.distributed as dist

        work = dist.all_gather(buffers.recv, buffers.send[0], group=group, async_op=async_op)
        return handles(work)
