"""all_gather: every rank gets all tensors: as a list, in one tensor, or of unequal sizes."""

from __future__ import annotations

from functools import partial
from typing import Any

from distdemo.ops.contract import (
    Buffers,
    Call,
    Cut,
    Form,
    Group,
    Op,
    Source,
    Traffic,
    Words,
    objects_form,
)
from distdemo.ops.spec import OpSpec


class AllGather(Op):
    """Every rank gets every rank's tensor, in the order of the ranks.

    Before and after::

        [ 0,  1]  # rank 0    [0, 1], [10, 11]  # rank 0
        [10, 11]  # rank 1    [0, 1], [10, 11]  # rank 1

    The single form gets them in one tensor, ``[0, 1, 10, 11]``. Uneven tensors, whose first
    dimension differs from rank to rank, are padded to the largest and trimmed afterwards.
    """

    name = "all_gather"
    takes = frozenset({"async_op", "variant", "uneven", "objects"})
    forms = (
        Form("list", "all_gather", {"objects": False, "variant": "list"}),
        Form(
            "single",
            "all_gather_single",
            {"objects": False, "variant": "single"},
            "--variant single",
            summary="Every rank gets all tensors, one after the other in a single one.",
            since="2.13",
            older="all_gather_into_tensor",  # warns from then on
        ),
        Form(
            "uneven",
            "all_gather, twice",
            {"objects": False, "variant": "uneven"},
            "--uneven",
            frozenset({"async_op"}),
            "Tensors of unequal sizes: gather the sizes, pad, gather, trim.",
            uneven=True,
        ),
        objects_form("all_gather_object", "Every rank gets every rank's object."),
    )
    list_after = True
    words = Words(
        summary="Every rank gets every rank's tensor, in the order of the ranks.",
        when="Give every rank all the parts: the embeddings for a contrastive loss, say.",
        mistake="[tensor] * n as the output list. The entries are one and the same tensor, so "
        "every rank's value turns out to be the last one. Make n separate tensors.",
        call="dist.all_gather([torch.empty_like(tensor) for _ in range(n)], tensor)",
    )

    # ------------------------------------------------------------------------- declarations

    def cut(self, rank: int, piece: int, spec: OpSpec) -> Cut:
        """The rank's whole row, which may be shorter or longer than another's."""
        return Cut(rank, _shape(rank, spec))

    def row(self, label: int, spec: OpSpec) -> int:
        """As long as the tensor of that rank."""
        return Cut(label, _shape(label, spec)).numel

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        """All hold all pieces."""
        return tuple(Source((source,)) for source in range(spec.group_size))

    def overlay(self, rank: int, spec: OpSpec) -> tuple[int, int] | None:
        """The rank's tensor may be its place in the result already."""
        return None if spec.objects or spec.variant == "uneven" else (0, rank)

    def traffic(self, spec: OpSpec) -> Traffic:
        """S is all n pieces, factor (n−1)/n: a rank's own does not travel to it."""
        n = spec.group_size
        if spec.variant == "uneven":
            padded = n * spec.bytes_of(_largest(spec))
            return Traffic(padded, "all n pieces, padded", (n - 1) / n, "(n−1)/n")
        return Traffic(n * spec.bytes_each(), "all n pieces", (n - 1) / n, "(n−1)/n")

    def notes(self, spec: OpSpec) -> tuple[str, ...]:
        """What the padding of uneven tensors costs."""
        if spec.variant != "uneven":
            return ()
        whole = spec.group_size * spec.bytes_of(_largest(spec))
        used = sum(spec.bytes_of(_shape(rank, spec)) for rank in range(spec.group_size))
        share = f" ({(whole - used) / whole:.0%})" if whole else ""
        wasted = f"{whole - used:,} of {whole:,} bytes{share}"
        return (f"Padding: {wasted} of what every rank gathers are thrown away again.",)

    # ------------------------------------------------------------------------- running it

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> Call:
        """``dist.all_gather``, or the call of another form."""
        import torch.distributed as dist

        if spec.objects:
            return partial(dist.all_gather_object, buffers.recv, buffers.send[0], group=group)
        if spec.variant == "uneven":
            return partial(_gather_uneven, buffers, group)
        own, how = buffers.send[0], {"group": group, "async_op": async_op}
        if buffers.recv_joined is not None:
            return partial(getattr(dist, self.form(spec).call), buffers.recv_joined, own, **how)
        return partial(dist.all_gather, buffers.recv, own, **how)


def _shape(rank: int, spec: OpSpec) -> tuple[int, ...]:
    """Of this rank's tensor."""
    if spec.variant != "uneven" or spec.sizes is None:
        return spec.shape
    return (spec.sizes[rank], *spec.shape[1:])


def _largest(spec: OpSpec) -> tuple[int, ...]:
    return max(_shape(rank, spec) for rank in range(spec.group_size))


def _gather_uneven(buffers: Buffers, group: Group) -> None:
    """Collective: gather the sizes, pad, gather, trim; nothing can be allocated before that."""
    from distdemo.comm import all_gather_uneven

    buffers.trail.clear()

    def note(*step: Any) -> None:  # noqa: ANN401 - a step's name, its tensors and the bytes sent
        buffers.trail.append(step)

    gathered = all_gather_uneven(buffers.send[0], group, note=note)
    for place, tensor in zip(buffers.recv, gathered, strict=True):
        place.copy_(tensor)
