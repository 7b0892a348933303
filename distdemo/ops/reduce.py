"""reduce: the root gets the sum (or product, ...) of all tensors."""

from __future__ import annotations

from functools import partial

from distdemo.ops.contract import BoundCall, Buffers, Group, Op, OpDoc, Source, Traffic, Undefined
from distdemo.ops.reduction import torch_reduce_op
from distdemo.ops.spec import OpSpec


class Reduce(Op):
    """The root gets the combination of all tensors, in place.

    Before and after, sum, root 0::

        [ 0,  1]  # rank 0    [10, 12]   # rank 0
        [10, 11]  # rank 1    undefined  # rank 1: the backend may have used it as scratch
    """

    name = "reduce"
    takes = frozenset({"root", "reduce_op", "async_op"})
    root_is = "dst"
    in_place = True
    doc = OpDoc(
        summary="The root gets all tensors combined.",
        when="Collect a loss or a count (sum), or the longest time (max), on one rank that writes "
        "the log.",
        mistake="Reading the tensor on a rank other than the root. gloo leaves partial sums there "
        "that look like results. Use all_reduce if every rank needs the value.",
        call="dist.reduce(tensor, dst=root, op={OP})",
    )

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...] | Undefined:
        """Return the reduction on the root; other ranks hold the backend's scratch data."""
        if rank != (spec.root or 0):
            return Undefined()
        return (Source(tuple(range(spec.group_size)), reduced=True),)

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return S = one tensor, factor 1."""
        return Traffic(spec.bytes_each(), "one rank's tensor", 1.0, "1", "sent by every other rank")

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare ``dist.reduce``."""
        import torch.distributed as dist

        return partial(
            dist.reduce,
            buffers.recv[0],
            op=torch_reduce_op(spec),
            group=group,
            group_dst=spec.root or 0,
            async_op=async_op,
        )
