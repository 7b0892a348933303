"""The process group that torch gets: every op, and point-to-point messages and the barrier."""
# mypy: disable-error-code="override"

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from mpi4py import MPI

from distdemo.mpi.buffers import clone, plain, settled, units
from distdemo.mpi.engine import Options
from distdemo.mpi.errors import expect, translated
from distdemo.mpi.moving import Moving, filling
from distdemo.mpi.reducing import Reducing

_BARRIER = c10d.BarrierOptions()

Tensors = Sequence[torch.Tensor]


class MpiProcessGroup(Moving, Reducing):
    """A process group of torch.distributed over a communicator of MPI."""

    def send(self, tensors: Tensors, dstRank: int, tag: int) -> dist.Work:  # noqa: N803 - torch's
        """A message to one rank."""
        (tensor,) = tensors
        _expect_tag(tag)
        held = settled(tensor)
        try:
            request = self.comm.Isend(units(held), dstRank, tag)
        except MPI.Exception as error:
            raise translated(error, "send", self.me) from error
        return self.handle("send", [request], tensors, held.data_ptr)

    def recv(self, tensors: Tensors, srcRank: int, tag: int) -> dist.Work:  # noqa: N803 - torch's
        """A message from one rank; it may be shorter than the tensor, not longer."""
        (tensor,) = tensors
        _expect_tag(tag)
        held = tensor if plain(tensor) else clone(tensor)
        try:
            request = self.comm.Irecv(units(held), srcRank, tag)
        except MPI.Exception as error:
            raise translated(error, "recv", self.me) from error
        return self.handle("recv", [request], tensors, filling(tensor, held))

    def recv_anysource(self, tensors: Tensors, tag: int) -> dist.Work:
        """A message from whoever sends one; the handle's ``source_rank`` tells who did."""
        return self.recv(tensors, MPI.ANY_SOURCE, tag)

    def barrier(self, opts: Options = _BARRIER) -> dist.Work:
        """Go on when all are here."""
        return self.go("barrier", (self.comm.Ibarrier, None), (), opts, 0)


@cache
def _largest_tag() -> int:
    return int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 32767)  # the least that MPI promises


def _expect_tag(tag: int) -> None:
    expect(
        0 <= tag <= _largest_tag(),
        f"Tags of this MPI library go from 0 to {_largest_tag()}: {tag} is none.",
    )
