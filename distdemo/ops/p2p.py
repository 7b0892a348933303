"""p2p: one rank sends to another, a ring, or an exchange between neighbours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from distdemo.ops.contract import (
    AsyncStage,
    BoundCall,
    Buffers,
    Form,
    Group,
    Op,
    OpDoc,
    Source,
    Traffic,
    handles,
)
from distdemo.ops.spec import OpSpec

PATTERNS = {
    "pair": "src to dst",
    "ring": "each rank to its right neighbour",
    "exchange": "with both neighbours at once",
}
"""Communication patterns."""
NOTES = {
    "ring": "Ring: rank r sends to r + 1 and receives from r − 1 (modulo n). With blocking calls, "
    "even ranks send first and odd ranks receive first, which prevents a circular wait. "
    "The ring algorithm of all-reduce: distdemo trace ring.",
    "exchange": "Exchange: every rank sends to r − 1 and r + 1 and receives from both (modulo n). "
    "A batch has no order that could deadlock.",
}
"""Notes on the order of calls, by pattern."""
ALL_SEND = (
    "send may wait until the other rank receives: over gloo always, over MPI with large tensors. "
    "Then no rank gets to its recv. Let one rank send first and {other} receive first. Over NCCL "
    "it can hang, too: use batch_isend_irecv."
)
TOO_EARLY = "Reading the received tensor, or changing the sent one, before wait() returns."
ALONG_A_RING = (
    "Pass blocks of a sequence or a matrix around the ranks, such as keys and values in ring "
    "attention."
)
"""Mistakes and uses of several forms."""


class PointToPoint(Op):
    """``send``/``recv``, ``isend``/``irecv`` or ``batch_isend_irecv``.

    Before and after, pair, src 0 and dst 1::

        [ 0,  1]  # rank 0    [0, 1]  # rank 0
        [10, 11]  # rank 1    [0, 1]  # rank 1

    In a ring, rank r sends to r + 1 and receives from r − 1 (modulo n) into a second buffer. In an
    exchange, it sends to and receives from both neighbours, the left one first.
    """

    name = "p2p"
    takes = frozenset({"src", "dst", "nonblocking", "pattern", "objects"})
    lazy = False  # without a connection, even irecv blocks until the peer sends
    smallest_world = 2
    forms = (
        Form(
            "blocking", ("send", "recv"), {"objects": False, "pattern": "pair", "async_op": False}
        ),
        Form(
            "nonblocking",
            ("isend", "irecv"),
            {"objects": False, "pattern": "pair", "async_op": True},
            {"nonblocking": True},
            summary="The calls return immediately; the data is available after wait.",
            mistake=TOO_EARLY,
        ),
        Form(
            "ring",
            ("send", "recv"),
            {"objects": False, "pattern": "ring", "async_op": False},
            {"pattern": "ring"},
            summary="Every rank sends to its right neighbour, in an order that can't deadlock.",
            when=ALONG_A_RING,
            mistake=f"All ranks call send first. {ALL_SEND.format(other='its neighbours')}",
        ),
        Form(
            "ring nonblocking",
            ("isend", "irecv"),
            {"objects": False, "pattern": "ring", "async_op": True},
            {"pattern": "ring", "nonblocking": True},
            summary="The same ring, in which the order doesn't matter.",
            when=ALONG_A_RING,
            mistake=TOO_EARLY,
        ),
        Form(
            "exchange",
            ("batch_isend_irecv",),
            {"objects": False, "pattern": "exchange"},
            {"pattern": "exchange"},
            summary="Every rank exchanges its tensor with both neighbours in one batch.",
            when="Exchange halos: the edges of the parts of a grid.",
            mistake=TOO_EARLY,
        ),
        Form.objects(
            ("send_object_list", "recv_object_list"),
            "One rank sends its object to another.",
            padded=False,
        ),
    )
    doc = OpDoc(
        summary="One rank sends its tensor to another.",
        when="Pass activations to the next pipeline stage.",
        mistake=f"Both ranks call send first. {ALL_SEND.format(other='the other')}",
        call="dist.send(tensor, dst) on src, dist.recv(tensor, src) on dst",
    )

    # ------------------------------------------------------------------------- declarations

    def is_in_place(self, spec: OpSpec) -> bool:
        """Return True for a pair, whose ranks have one buffer each; otherwise they have several."""
        return _is_pair(spec)

    def takes_part(self, rank: int, spec: OpSpec) -> bool:
        """Return True for the ranks of the pair; in a ring or an exchange for every rank."""
        return not _is_pair(spec) or rank in _pair(spec)

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        """Return the sender's tensor on the receiver, and a rank's own on other ranks."""
        if _is_pair(spec):
            src, dst = _pair(spec)
            return (Source((src if rank == dst else rank,)),)
        return tuple(Source((peer,)) for peer in _peers(rank, spec)[1])

    def single_row_label(self, spec: OpSpec) -> int | None:
        """Return the sender, which a single row of values is for; None if there are several."""
        return _pair(spec)[0] if _is_pair(spec) else None

    def traffic(self, spec: OpSpec) -> Traffic:
        """Return S = one tensor, factor 1; 2 in an exchange with two neighbours."""
        sender = self.single_row_label(spec)
        moved_by = "sent by src to dst" if _is_pair(spec) else "sent and received by each rank"
        factor = 1 if _is_pair(spec) else len(_peers(0, spec)[0])
        if factor == 2:
            moved_by += ", one tensor per neighbour"
        payload = spec.bytes_each(sender)
        return Traffic(payload, f"one {spec.noun}", float(factor), str(factor), moved_by)

    def default_size(self, pattern: str | None) -> int:
        """Return 2 for a pair; in a ring of 2 ranks, both neighbours are the same rank."""
        return 2 if pattern in (None, "pair") else 4

    def notes(self, spec: OpSpec) -> tuple[str, ...]:
        """Return the order of calls in a ring or an exchange."""
        return (NOTES[spec.pattern],) if spec.pattern in NOTES else ()

    # ------------------------------------------------------------------------- execution

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
        """Prepare the calls in an order that can't deadlock."""
        import torch.distributed as dist

        if spec.pattern == "exchange":
            return _batch(buffers, spec, group, async_op=async_op)
        receives, sends = _calls(buffers, spec, group, async_op=async_op)
        # In a ring even ranks send first and odd ranks receive first. With an odd number of ranks
        # the last and the first both send first, but rank 1 receives and unblocks them.
        sends_first = not async_op and dist.get_rank(group) % 2 == 0
        return _in_order([*sends, *receives] if sends_first else [*receives, *sends])

    def stages(self, buffers: Buffers, spec: OpSpec, group: Group) -> list[AsyncStage]:
        """Return the receives, then the sends; an exchange is a single batch."""
        if spec.pattern == "exchange":
            both = partial(self.run, buffers, spec, group, async_op=True)
            return [AsyncStage("batch_isend_irecv", "not to be read yet", buffers.recv, both)]
        receives, sends = _calls(buffers, spec, group, async_op=True)
        receive = _in_order(receives)
        send = _in_order(sends)
        return [
            AsyncStage("irecv", "not to be read yet", buffers.recv, lambda: handles(receive())),
            AsyncStage("isend", "not to be changed yet", buffers.send, lambda: handles(send())),
        ]


def _in_order(calls: list[BoundCall]) -> BoundCall:
    """Combine calls into one that makes them in this order and returns their handles."""
    if len(calls) == 1:
        return calls[0]
    return lambda: [handle for call in calls for handle in handles(call())]


def _calls(
    buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool
) -> tuple[list[BoundCall], list[BoundCall]]:
    """Return this rank's receive and send in a pair or ring, as lists of at most one call."""
    import torch.distributed as dist

    receive: Callable[..., Any] = dist.irecv if async_op else dist.recv
    send: Callable[..., Any] = dist.isend if async_op else dist.send
    received, sent = buffers.recv[0], buffers.send[0]
    if spec.objects:
        receive, send = dist.recv_object_list, dist.send_object_list
        received, sent = buffers.recv, buffers.send
    receivers, senders = _peers(dist.get_rank(group), spec)
    return (
        [partial(receive, received, group=group, group_src=peer) for peer in senders],
        [partial(send, sent, group=group, group_dst=peer) for peer in receivers],
    )


def _batch(buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> BoundCall:
    """Return a call that posts all sends and receives, and waits for them unless ``async_op``."""
    import torch.distributed as dist

    receivers, senders = _peers(dist.get_rank(group), spec)
    calls = [
        dist.P2POp(dist.irecv, buffer, group=group, group_peer=peer)
        for buffer, peer in zip(buffers.recv, senders, strict=True)
    ]
    sent = buffers.send[0]
    calls += [dist.P2POp(dist.isend, sent, group=group, group_peer=peer) for peer in receivers]
    post = partial(dist.batch_isend_irecv, calls)

    def exchange() -> None:
        for work in post():
            work.wait()

    return post if async_op else exchange


def _is_pair(spec: OpSpec) -> bool:
    return spec.pattern not in ("ring", "exchange")


def _pair(spec: OpSpec) -> tuple[int, int]:
    return spec.src or 0, 1 if spec.dst is None else spec.dst


def _peers(rank: int, spec: OpSpec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ranks that this one sends to and receives from, in buffer order."""
    n = spec.group_size
    left, right = (rank - 1) % n, (rank + 1) % n
    if spec.pattern == "ring":
        return (right,), (left,)
    if spec.pattern == "exchange":
        both = tuple(dict.fromkeys((left, right)))  # with two ranks they are the same
        return both, both
    src, dst = _pair(spec)
    return (dst,) * (rank == src), (src,) * (rank == dst)
