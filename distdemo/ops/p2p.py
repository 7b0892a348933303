"""p2p: one rank sends, another receives; or each sends to its right neighbour in a ring."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from distdemo.model import Traffic, Words
from distdemo.ops.contract import (
    Buffers,
    Handles,
    Op,
    Result,
    Source,
    Stage,
    bytes_per_tensor,
    handles,
)

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from distdemo.model import OpSpec


class PointToPoint(Op):
    """``send``/``recv``, or ``isend``/``irecv``.

    Before and after, pair, src 0 and dst 1::

        [ 0,  1]  # rank 0    [0, 1]  # rank 0
        [10, 11]  # rank 1    [0, 1]  # rank 1

    In a ring rank r sends to r + 1 and receives from r − 1 (modulo n) into a second buffer.
    """

    name = "p2p"
    takes = frozenset({"src", "dst", "nonblocking", "pattern"})
    lazy = False  # on a connection yet to be made, even irecv waits until the peer sends
    smallest_world = 2
    default_world = 2
    words = Words(
        summary="One rank sends its tensor to another (send/recv or isend/irecv).",
        when="Hand activations to the next pipeline stage, exchange halos: two ranks' business.",
        mistake="Both ranks call send first. Small messages slip through a buffer, large ones "
        "wait for each other until the timeout. One sends first, the other receives first.",
        call="dist.send(tensor, dst) on src, dist.recv(tensor, src) on dst",
    )

    # ------------------------------------------------------------------------- declarations

    @property
    def torch_names(self) -> str:
        """Blocking and not."""
        return "send/recv, isend/irecv"

    def is_in_place(self, spec: OpSpec) -> bool:
        """A pair has one buffer a rank; a ring sends from one and receives into another."""
        return not _is_ring(spec)

    def takes_part(self, rank: int, spec: OpSpec) -> bool:
        """Only the pair does; in a ring everybody."""
        return _is_ring(spec) or rank in _pair(spec)

    def result(self, rank: int, spec: OpSpec) -> Result:
        """The receiver holds the sender's tensor; everyone else what it held before."""
        if _is_ring(spec):
            return (Source((_left(rank, spec),)),)
        src, dst = _pair(spec)
        return (Source((src if rank == dst else rank,)),)

    def lone_label(self, spec: OpSpec) -> int | None:
        """One row of values is the sender's; a ring has no single sender."""
        return None if _is_ring(spec) else _pair(spec)[0]

    def traffic(self, spec: OpSpec) -> Traffic:
        """S is one tensor, factor 1."""
        return Traffic(bytes_per_tensor(spec), "one tensor", 1.0, "1")

    def notes(self, spec: OpSpec) -> tuple[str, ...]:
        """How the calls of a ring are ordered."""
        if not _is_ring(spec):
            return ()
        route = "Ring: rank r sends to r + 1 and receives from r − 1 (modulo n)."
        if spec.async_op:
            return (f"{route} Every rank posts irecv, then isend, then waits for both.",)
        order = (
            "Even ranks send, then receive; odd ranks receive, then send: no two wait in a circle."
        )
        return (f"{route} {order}",)

    # ------------------------------------------------------------------------- running it

    def run(
        self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None, *, async_op: bool
    ) -> Handles:
        """Collective within the pair or the ring: the calls in an order that can't deadlock."""
        import torch.distributed as dist

        rank = dist.get_rank(group)
        if async_op:
            received = self._post_receive(buffers, spec, group)
            return (*received, *self._post_send(buffers, spec, group))
        sends, receives = _send_to(rank, spec), _receive_from(rank, spec)
        # An even rank of a ring sends first, an odd one receives first: with an odd number of
        # ranks the last and the first both send first, but then rank 1 receives and frees them.
        if sends is not None and (receives is None or rank % 2 == 0):
            dist.send(buffers.send[0], sends, group=group)
        if receives is not None:
            dist.recv(buffers.recv[0], receives, group=group)
        if sends is not None and receives is not None and rank % 2 == 1:
            dist.send(buffers.send[0], sends, group=group)
        return ()

    def stages(self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None) -> list[Stage]:
        """All receives are posted, then all sends."""
        receive = partial(self._post_receive, buffers, spec, group)
        send = partial(self._post_send, buffers, spec, group)
        return [
            Stage("irecv", "not to be read yet", buffers.recv, receive),
            Stage("isend", "not to be changed yet", buffers.send, send),
        ]

    def _post_receive(self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None) -> Handles:
        import torch.distributed as dist

        source = _receive_from(dist.get_rank(group), spec)
        return () if source is None else handles(dist.irecv(buffers.recv[0], source, group=group))

    def _post_send(self, buffers: Buffers, spec: OpSpec, group: ProcessGroup | None) -> Handles:
        import torch.distributed as dist

        target = _send_to(dist.get_rank(group), spec)
        return () if target is None else handles(dist.isend(buffers.send[0], target, group=group))


def _is_ring(spec: OpSpec) -> bool:
    return spec.pattern == "ring"


def _pair(spec: OpSpec) -> tuple[int, int]:
    return spec.src or 0, 1 if spec.dst is None else spec.dst


def _left(rank: int, spec: OpSpec) -> int:
    return (rank - 1) % spec.world_size


def _send_to(rank: int, spec: OpSpec) -> int | None:
    """The rank that this one sends to, None if it sends nothing."""
    if _is_ring(spec):
        return (rank + 1) % spec.world_size
    src, dst = _pair(spec)
    return dst if rank == src else None


def _receive_from(rank: int, spec: OpSpec) -> int | None:
    """The rank that this one receives from, None if it receives nothing."""
    if _is_ring(spec):
        return _left(rank, spec)
    src, dst = _pair(spec)
    return src if rank == dst else None
