"""all_gather: every rank gets all tensors, as a list, in one tensor, or with unequal sizes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from distdemo.ops.contract import BoundCall, Buffers, Form, Group, Op, OpDoc, Slice, Source, Traffic
from distdemo.ops.spec import OpSpec


class AllGather(Op):
    """Every rank gets every rank's tensor, in rank order.

    Before and after::

        [ 0,  1]  # rank 0    [0, 1], [10, 11]  # rank 0
        [10, 11]  # rank 1    [0, 1], [10, 11]  # rank 1

    The single form gets them in one tensor, ``[0, 1, 10, 11]``. Uneven tensors, whose first
    dimension differs from rank to rank, are padded to the largest and trimmed afterwards.
    """

    name = "all_gather"
    takes = frozenset({"async_op", "variant", "uneven", "sizes", "objects"})
    forms = (
        Form("list", ("all_gather",), {"objects": False, "variant": "list"}),
        Form(
            "single",
            ("all_gather_single",),
            {"objects": False, "variant": "single"},
            {"variant": "single"},
            summary="Every rank gets all tensors, concatenated into one.",
            mistake="An output that is too small: it must have n times as many elements as the "
            "input. All inputs must have the same size.",
            since="2.13",
            older="all_gather_into_tensor",  # deprecated since then
        ),
        Form(
            "uneven",
            ("all_gather", "all_gather"),
            {"objects": False, "variant": "uneven"},
            {"uneven": True},
            frozenset({"async_op", "variant", "shape"}),
            "Tensors of unequal sizes: gather the sizes, pad, gather, trim.",
            mistake="No padding: all_gather needs the same shape on every rank. Only after "
            "gathering the sizes does each rank know how much to pad, and where to trim.",
            besides="the sizes go in an earlier call",
            uneven=True,
        ),
        Form.objects(("all_gather_object",), "Every rank gets every rank's object.", padded=True),
    )
    list_after = True
    shares_own_piece = True
    doc = OpDoc(
        summary="Every rank gets every rank's tensor, in rank order.",
        when="Give every rank all parts, such as the embeddings for a contrastive loss.",
        mistake="[tensor] * n as the output list. All entries are the same tensor, so every "
        "entry holds the last rank's value. Create n separate tensors.",
        call="dist.all_gather([torch.empty_like(tensor) for _ in range(n)], tensor)",
    )

    # ------------------------------------------------------------------------- declarations

    def cut(self, rank: int, piece: int, spec: OpSpec) -> Slice:
        """Return the rank's whole row; rows may differ in length."""
        return Slice(rank, _shape(rank, spec))

    def row(self, label: int, spec: OpSpec) -> int:
        """Return the number of elements in the tensor of that rank."""
        return Slice(label, _shape(label, spec)).numel

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        """Return all pieces on every rank."""
        return tuple(Source((source,)) for source in range(spec.group_size))

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return S = all n pieces, factor (n−1)/n: a rank doesn't receive its own."""
        n = spec.group_size
        moved_by = "received by each rank"
        if spec.variant != "uneven":
            return Traffic.of_pieces(n, n * spec.bytes_each(), "all n pieces", moved_by)
        largest = spec.bytes_of(_largest(spec))
        sizes = [spec.bytes_of(_shape(rank, spec)) for rank in range(n)]
        data = sorted({sum(sizes) - size for size in (max(sizes), min(sizes))})
        shares = " to ".join(f"{share:,}" for share in data)
        moved_by = f"{moved_by} with the padding; {shares} B of it are data"
        traffic = Traffic.of_pieces(n, n * largest, "all n pieces, padded", moved_by)
        return replace(traffic, counted_bytes=(n - 1) * largest)

    def notes(self, spec: OpSpec) -> tuple[str, ...]:
        """Return the cost of padding uneven tensors."""
        if spec.variant != "uneven":
            return ()
        whole = spec.group_size * spec.bytes_of(_largest(spec))
        used = sum(spec.bytes_of(_shape(rank, spec)) for rank in range(spec.group_size))
        share = f" ({(whole - used) / whole:.0%})" if whole else ""
        wasted = f"{whole - used:,} of {whole:,} bytes{share}"
        return (f"Padding: {wasted} that every rank gathers are discarded.",)

    # ------------------------------------------------------------------------- execution

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare ``dist.all_gather``, or the call of another form."""
        import torch.distributed as dist

        if spec.objects:
            return partial(dist.all_gather_object, buffers.recv, buffers.send[0], group=group)
        if spec.variant == "uneven":
            return partial(_gather_uneven, buffers, group)
        take = buffers.recv if buffers.recv_joined is None else buffers.recv_joined
        call = getattr(dist, self.form(spec).call)
        return partial(call, take, buffers.send[0], group=group, async_op=async_op)


def _shape(rank: int, spec: OpSpec) -> tuple[int, ...]:
    """Return the shape of this rank's tensor."""
    if spec.variant != "uneven" or spec.sizes is None:
        return spec.shape
    return (spec.sizes[rank], *spec.shape[1:])


def _largest(spec: OpSpec) -> tuple[int, ...]:
    return max(_shape(rank, spec) for rank in range(spec.group_size))


def _gather_uneven(buffers: Buffers, group: Group) -> None:
    """Gather the sizes, pad, gather and trim; sizes are unknown until then. Collective."""
    from distdemo.comm import all_gather_uneven

    for buffer, tensor in zip(buffers.recv, all_gather_uneven(buffers.send[0], group), strict=True):
        buffer.copy_(tensor)
