"""broadcast: every rank gets the root's tensor."""

from __future__ import annotations

from functools import partial

from distdemo.ops.contract import BoundCall, Buffers, Form, Group, Op, OpDoc, Source, Traffic
from distdemo.ops.spec import OpSpec


class Broadcast(Op):
    """One rank's tensor goes to all ranks, in place.

    Before and after, root 0::

        [ 0,  1]  # rank 0    [0, 1]  # rank 0
        [10, 11]  # rank 1    [0, 1]  # rank 1
    """

    name = "broadcast"
    takes = frozenset({"root", "async_op", "objects"})
    forms = (
        Form("tensor", ("broadcast",), {"objects": False}),
        Form.objects(
            ("broadcast_object_list",),
            "Every rank gets a copy of the root's object.",
            padded=False,
        ),
    )
    root_is = "src"
    in_place = True
    doc = OpDoc(
        summary="Every rank gets a copy of the root's tensor.",
        when="Start all ranks from the same weights, or send one rank's decision to all.",
        mistake="Calling it only on the root. The root may wait for the other ranks until the "
        "timeout. Every rank must call broadcast, with the same src.",
        call="dist.broadcast(tensor, src=root)",
    )

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        """Return the root's piece on every rank."""
        return (Source((spec.root or 0,)),)

    def single_row_label(self, spec: OpSpec) -> int | None:
        """Return the root: a single row of values is its own."""
        return spec.root or 0

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return S = one tensor, factor 1."""
        payload = spec.bytes_each(spec.root or 0)
        return Traffic(payload, f"the root's {spec.noun}", 1.0, "1", "received by every other rank")

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare ``dist.broadcast`` or ``dist.broadcast_object_list``."""
        import torch.distributed as dist

        root = spec.root or 0
        if spec.objects:
            things = buffers.recv
            return partial(dist.broadcast_object_list, things, group=group, group_src=root)
        tensor = buffers.recv[0]
        return partial(dist.broadcast, tensor, group=group, group_src=root, async_op=async_op)
