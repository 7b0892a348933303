"""all_to_all: every rank sends a part to every rank, a transposition."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

from distdemo.ops.contract import BoundCall, Buffers, Form, Group, Op, OpDoc, Slice, Source, Traffic
from distdemo.ops.spec import OpSpec

LISTS_DIFFER = (
    "Received tensors that don't match the other ranks' parts: on rank j, received[i] must be as "
    "large as parts[j] on rank i. Exchange the lengths first."
)
"""Mistake in the forms that take lists."""


class AllToAll(Op):
    """Rank i's part j goes to rank j, where it becomes part i.

    Before and after::

        [ 0,  1], [ 2,  3]  # rank 0    [0, 1], [10, 11]  # rank 0
        [10, 11], [12, 13]  # rank 1    [2, 3], [12, 13]  # rank 1

    With splits the parts have unequal lengths: ``splits[i][j]`` is the length of rank i's part
    for rank j.
    """

    name = "all_to_all"
    takes = frozenset({"async_op", "variant", "uneven", "splits"})
    forms = (
        Form("list", ("all_to_all",), {"variant": "list", "splits": None}, mistake=LISTS_DIFFER),
        Form(
            "single",
            ("all_to_all_single",),
            {"variant": "single", "splits": None},
            {"variant": "single"},
            summary="The parts are concatenated in a single tensor.",
            mistake="A first dimension that isn't a multiple of n. Without split sizes, "
            "all_to_all_single cuts the input into n equal parts along it.",
        ),
        Form(
            "uneven",
            ("all_to_all_single",),
            {"variant": "single"},
            {"uneven": True},
            frozenset({"shape"}),
            summary="Parts of unequal lengths, in a single tensor.",
            uneven=True,
        ),
        Form(
            "uneven list",
            ("all_to_all",),
            {"variant": "list"},
            {"variant": "list", "uneven": True},
            frozenset({"shape"}),
            summary="Parts of unequal lengths, as lists.",
            mistake=LISTS_DIFFER,
            uneven=True,
        ),
    )
    list_before = True
    list_after = True
    default_shape = (2,)
    doc = OpDoc(
        summary="Every rank sends a different part to each rank.",
        when="Route tokens to experts (mixture of experts); transpose a matrix that is "
        "distributed over the ranks; redistribute embedding lookups.",
        mistake="Output splits that don't match the other ranks' input splits: rank j must "
        "expect from rank i what rank i sends to it. Exchange the lengths first.",
        call="dist.all_to_all(received, parts)",
    )

    # ------------------------------------------------------------------------- declarations

    def pieces(self, rank: int, spec: OpSpec) -> int:
        """Return one part per rank."""
        return spec.group_size

    def cut(self, rank: int, piece: int, spec: OpSpec) -> Slice:
        """Return a part of the rank's row; the parts are contiguous."""
        if spec.splits is None:
            return Slice(rank, spec.shape, piece * spec.numel)
        rest = spec.shape[1:]
        before = sum(spec.splits[rank][:piece]) * math.prod(rest)
        return Slice(rank, (spec.splits[rank][piece], *rest), before)

    def row(self, label: int, spec: OpSpec) -> int:
        """Return the number of elements in all parts of a rank."""
        if spec.splits is None:
            return spec.group_size * spec.numel
        return sum(spec.splits[label]) * math.prod(spec.shape[1:])

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        """Return every rank's part for this rank."""
        return tuple(Source((source,), piece=rank) for source in range(spec.group_size))

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return S = all n parts of the rank with the most data, factor (n−1)/n: one stays."""
        n = spec.group_size
        if spec.splits is None:
            moved_by = "sent and received by each rank"
            return Traffic.of_pieces(n, n * spec.bytes_each(), "all n parts of a rank", moved_by)
        most = max(spec.bytes_of((self.row(rank, spec),)) for rank in range(n))
        counted, moved_by = self._busiest(spec)
        traffic = Traffic.of_pieces(n, most, "all n parts of the rank with most", moved_by)
        return replace(traffic, counted_bytes=counted)

    def _busiest(self, spec: OpSpec) -> tuple[int, str]:
        """Return the most bytes that a rank sends or receives, with the rank, as text."""
        every = range(spec.group_size)
        sizes = [[spec.bytes_of(cut.shape) for cut in self.cuts_before(i, spec)] for i in every]
        sent = [sum(sizes[i]) - sizes[i][i] for i in every]
        received = [sum(row[i] for row in sizes) - sizes[i][i] for i in every]
        most = max(*sent, *received)
        if most in received:
            rank = spec.member(received.index(most))
            moved = f"received by rank {rank}: all parts for it except its own"
        else:
            rank = spec.member(sent.index(most))
            moved = f"sent by rank {rank}: all its parts except the one for itself"
        return most, f"{moved}. The busiest rank determines the time"

    # ------------------------------------------------------------------------- execution

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare ``dist.all_to_all`` or ``dist.all_to_all_single``."""
        import torch.distributed as dist

        how: dict[str, Any] = {"group": group, "async_op": async_op}
        if buffers.send_joined is None:
            return partial(dist.all_to_all, buffers.recv, buffers.send, **how)
        if spec.splits is not None:
            how["output_split_sizes"] = [part.shape[0] for part in buffers.recv]
            how["input_split_sizes"] = [part.shape[0] for part in buffers.send]
        return partial(dist.all_to_all_single, buffers.recv_joined, buffers.send_joined, **how)
