"""all_reduce: every rank gets the sum (or product, ...) of all tensors."""

from __future__ import annotations

from functools import partial

from distdemo.ops.contract import BoundCall, Buffers, Group, Op, OpDoc, Source, Traffic
from distdemo.ops.reduction import torch_reduce_op
from distdemo.ops.spec import OpSpec


class AllReduce(Op):
    """Every rank gets the combination of all tensors, in place.

    Before and after, sum::

        [ 0,  1]  # rank 0    [10, 12]  # rank 0
        [10, 11]  # rank 1    [10, 12]  # rank 1
    """

    name = "all_reduce"
    takes = frozenset({"reduce_op", "async_op"})
    in_place = True
    doc = OpDoc(
        summary="Every rank gets all tensors combined.",
        when="Combine gradients in data-parallel training (avg, or sum); agree on a global loss "
        "(sum), on the longest time (max) or on a flag (max, or min).",
        mistake="Different shapes on different ranks. gloo may return a wrong result on some "
        "ranks without an error. Use the same shape, dtype and op on every rank.",
        call="dist.all_reduce(tensor, op={OP})",
    )

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        """Return the reduction of all ranks on every rank."""
        return (Source(tuple(range(spec.group_size)), reduced=True),)

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return S = one tensor, factor 2(n−1)/n: a reduce-scatter and an all-gather.

        For each element, n − 1 messages bring n values together, and n − 1 more take the result to
        the other ranks: 2(n−1) × S in total (Patarasuk and Yuan, Bandwidth optimal all-reduce
        algorithms for clusters of workstations, 2009). Single ranks may send less than the average.
        """
        factor = 2 * (spec.group_size - 1) / spec.group_size
        moved_by = "sent and received per rank on average"
        return Traffic(spec.bytes_each(), "one rank's tensor", factor, "2(n−1)/n", moved_by)

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare ``dist.all_reduce``."""
        import torch.distributed as dist

        call = partial(dist.all_reduce, buffers.recv[0], op=torch_reduce_op(spec))
        return partial(call, group=group, async_op=async_op)
