"""reduce_scatter: all ranks' tensors are reduced and each rank gets one part of the result."""

from __future__ import annotations

from functools import partial

from distdemo.ops.contract import BoundCall, Buffers, Form, Group, Op, OpDoc, Slice, Source, Traffic
from distdemo.ops.reduction import torch_reduce_op
from distdemo.ops.spec import OpSpec


class ReduceScatter(Op):
    """Every rank holds n pieces; rank r gets the reduction of all ranks' piece r.

    Before and after, sum::

        [ 0,  1], [ 2,  3]  # rank 0    [10, 12]  # rank 0
        [10, 11], [12, 13]  # rank 1    [14, 16]  # rank 1
    """

    name = "reduce_scatter"
    takes = frozenset({"reduce_op", "async_op", "variant"})
    forms = (
        Form("list", ("reduce_scatter",), {"variant": "list"}),
        Form(
            "single",
            ("reduce_scatter_single",),
            {"variant": "single"},
            {"variant": "single"},
            summary="The pieces to reduce are concatenated in a single tensor.",
            since="2.13",
            older="reduce_scatter_tensor",  # deprecated since then
        ),
    )
    list_before = True
    shares_own_piece = True
    default_shape = (2,)
    doc = OpDoc(
        summary="All tensors are combined; each rank gets one part of it.",
        when="Combine gradients (avg, or sum) and shard them over the ranks (FSDP, ZeRO); the "
        "first half of a ring all_reduce.",
        mistake="An output as large as all pieces together. It must be as large as one of them. "
        "reduce_scatter_single takes one tensor instead of a list, and cuts it into n equal pieces "
        "along its first dimension.",
        call="dist.reduce_scatter(tensor, pieces, op={OP})",
    )

    def pieces(self, rank: int, spec: OpSpec) -> int:
        """Return one piece per rank."""
        return spec.group_size

    def cut(self, rank: int, piece: int, spec: OpSpec) -> Slice:
        """Return one of n equal pieces of the rank's row."""
        return Slice(rank, spec.shape, piece * spec.numel)

    def row(self, label: int, spec: OpSpec) -> int:
        """Return the number of elements in all pieces of a rank."""
        return spec.group_size * spec.numel

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        """Return the reduction of all ranks' piece r on rank r."""
        return (Source(tuple(range(spec.group_size)), piece=rank, reduced=True),)

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return S = all n pieces of one rank, factor (n−1)/n."""
        n = spec.group_size
        whole = n * spec.bytes_each()
        return Traffic.of_pieces(n, whole, "all n pieces of a rank", "sent by each rank")

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare ``dist.reduce_scatter``, or the call with a single tensor."""
        import torch.distributed as dist

        give = buffers.send if buffers.send_joined is None else buffers.send_joined
        call = partial(getattr(dist, self.form(spec).call), buffers.recv[0], give)
        return partial(call, op=torch_reduce_op(spec), group=group, async_op=async_op)
