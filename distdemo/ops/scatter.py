"""scatter: the root sends one tensor of its list to each rank."""

from __future__ import annotations

from functools import partial
from typing import Any

from distdemo.ops.contract import BoundCall, Buffers, Form, Group, Op, OpDoc, Slice, Source, Traffic
from distdemo.ops.spec import OpSpec


class Scatter(Op):
    """The root holds n pieces; rank r gets piece r.

    Before and after, root 0::

        [0, 1], [10, 11]  # rank 0    [ 0,  1]  # rank 0
        nothing           # rank 1    [10, 11]  # rank 1
    """

    name = "scatter"
    takes = frozenset({"root", "async_op", "objects"})
    forms = (
        Form("list", ("scatter",), {"objects": False}),
        Form.objects(
            ("scatter_object_list",),
            "The root sends one object of its list to each rank.",
            padded=True,
        ),
    )
    list_before = True
    shares_own_piece = True
    root_is = "src"
    doc = OpDoc(
        summary="The root sends a different piece of its data to each rank.",
        when="Distribute the parts of a batch or a matrix that one rank has read.",
        mistake="Passing scatter_list on every rank, which raises an error on all but the root. "
        "Other ranks pass None, and every rank passes a tensor to receive into.",
        call="dist.scatter(tensor, pieces if rank == root else None, src=root)",
    )

    def pieces(self, rank: int, spec: OpSpec) -> int:
        """Return one piece per rank on the root, none on other ranks."""
        return spec.group_size if rank == (spec.root or 0) else 0

    def cut(self, rank: int, piece: int, spec: OpSpec) -> Slice:
        """Return piece r, which is for rank r; values differ by piece."""
        return Slice(piece, spec.shape)

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        """Return the root's piece r on rank r."""
        return (Source((spec.root or 0,), piece=rank),)

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return S = all n pieces, factor (n−1)/n: the root keeps its own."""
        n = spec.group_size
        return Traffic.of_pieces(n, n * spec.bytes_each(), "all n pieces", "sent by the root")

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare ``dist.scatter`` or ``dist.scatter_object_list``."""
        import torch.distributed as dist

        how: dict[str, Any] = {"group": group, "group_src": spec.root or 0}
        give = buffers.send or None
        if spec.objects:
            return partial(dist.scatter_object_list, buffers.recv, give, **how)
        return partial(dist.scatter, buffers.recv[0], give, async_op=async_op, **how)
