"""gather: the root gets a list of all tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from distdemo.ops.contract import BoundCall, Buffers, Form, Group, Op, OpDoc, Source, Traffic
from distdemo.ops.spec import OpSpec


class Gather(Op):
    """The root gets every rank's tensor, in rank order.

    Before and after, root 0::

        [ 0,  1]  # rank 0    [0, 1], [10, 11]  # rank 0
        [10, 11]  # rank 1    nothing           # rank 1

    The single form (torch 2.14) gathers them into one tensor, ``[0, 1, 10, 11]``.
    """

    name = "gather"
    takes = frozenset({"root", "async_op", "variant", "objects"})
    forms = (
        Form("list", ("gather",), {"objects": False, "variant": "list"}),
        Form(
            "single",
            ("gather_single",),
            {"objects": False, "variant": "single"},
            {"variant": "single"},
            summary="The root gets all tensors, concatenated into one.",
            mistake="An output that is too small: that of the root must have n times as many "
            "elements as the input. All inputs must have the same size.",
            since="2.14",
        ),
        Form.objects(("gather_object",), "The root gets every rank's object.", padded=True),
    )
    list_after = True
    shares_own_piece = True
    root_is = "dst"
    doc = OpDoc(
        summary="The root gets every rank's tensor, in rank order.",
        when="Collect predictions or metrics of all ranks on the one that writes the file.",
        mistake="Passing gather_list on ranks other than the root, which raises an error. "
        "Only the root passes a list; for a list on every rank use all_gather.",
        call="dist.gather(tensor, pieces if rank == root else None, dst=root)",
    )

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        """Return all pieces on the root, nothing on other ranks."""
        if rank != (spec.root or 0):
            return ()
        return tuple(Source((source,)) for source in range(spec.group_size))

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return S = all n pieces, factor (n−1)/n: the root's own isn't sent."""
        n = spec.group_size
        whole = n * spec.bytes_each()
        return Traffic.of_pieces(n, whole, "all n pieces", "received by the root")

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare ``dist.gather``, or the call of another form."""
        import torch.distributed as dist

        take = buffers.recv_joined if spec.variant == "single" else buffers.recv or None
        call: Callable[..., Any] = getattr(dist, self.form(spec).call)
        how: dict[str, Any] = {} if spec.objects else {"async_op": async_op}
        return partial(call, buffers.send[0], take, group=group, group_dst=spec.root or 0, **how)
