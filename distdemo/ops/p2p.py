"""p2p: one rank sends, another receives; around a ring; or all exchange with their neighbours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from distdemo.ops.contract import (
    Buffers,
    Call,
    Form,
    Group,
    Op,
    Source,
    Stage,
    Traffic,
    Words,
    at_once,
    handles,
    in_turn,
    objects_form,
)
from distdemo.ops.spec import OpSpec

PATTERNS = {
    "pair": "src to dst",
    "ring": "each rank to its right neighbour",
    "exchange": "with both neighbours at once",
}
"""Who talks to whom."""
RING = "Ring: rank r sends to r + 1 and receives from r − 1 (modulo n)."
NOTES: dict[Any, str] = {
    ("ring", False): f"{RING} Even ranks send, then receive; odd ranks receive, then send: no two "
    "wait in a circle.",
    ("ring", True): f"{RING} Every rank posts irecv, then isend, then waits for both.",
    "exchange": "Exchange: every rank sends to r − 1 and r + 1 and receives from both (modulo n). "
    "A batch has no order that could deadlock.",
}
"""How the calls of a pattern are ordered, and of a ring (blocking or not)."""


class PointToPoint(Op):
    """``send``/``recv``, ``isend``/``irecv`` or ``batch_isend_irecv``.

    Before and after, pair, src 0 and dst 1::

        [ 0,  1]  # rank 0    [0, 1]  # rank 0
        [10, 11]  # rank 1    [0, 1]  # rank 1

    In a ring rank r sends to r + 1 and receives from r − 1 (modulo n) into a second buffer. In an
    exchange it sends to both and receives from both, the left one first.
    """

    name = "p2p"
    takes = frozenset({"src", "dst", "nonblocking", "pattern", "objects"})
    lazy = False  # on a connection yet to be made, even irecv waits until the peer sends
    smallest_world = 2
    default_world = 2
    forms = (
        Form("blocking", "send/recv", {"objects": False, "pattern": "pair", "async_op": False}),
        Form(
            "nonblocking",
            "isend/irecv",
            {"objects": False, "pattern": "pair", "async_op": True},
            "--nonblocking",
            summary="The calls return at once; the data is there after wait.",
        ),
        Form(
            "ring",
            "send/recv",
            {"objects": False, "pattern": "ring", "async_op": False},
            "--pattern ring",
            summary="Every rank sends to its right neighbour, in an order that can't deadlock.",
        ),
        Form(
            "ring nonblocking",
            "isend/irecv",
            {"objects": False, "pattern": "ring", "async_op": True},
            "--pattern ring --nonblocking",
            summary="The same ring without an order to mind.",
        ),
        Form(
            "exchange",
            "batch_isend_irecv",
            {"objects": False, "pattern": "exchange"},
            "--pattern exchange",
            summary="Every rank exchanges its tensor with both neighbours in one batch.",
        ),
        objects_form("send/recv_object_list", "One rank sends its object to another."),
    )
    words = Words(
        summary="One rank sends its tensor to another.",
        when="Hand activations to the next pipeline stage, exchange halos: two ranks' business.",
        mistake="Both ranks call send first. Small messages slip through a buffer, large ones "
        "wait for each other until the timeout. One sends first, the other receives first.",
        call="dist.send(tensor, dst) on src, dist.recv(tensor, src) on dst",
    )

    # ------------------------------------------------------------------------- declarations

    def is_listed(self, spec: OpSpec) -> bool:
        """An exchange brings a list of two."""
        return spec.pattern == "exchange"

    def is_in_place(self, spec: OpSpec) -> bool:
        """A pair has one buffer a rank; else a rank sends from one and receives into others."""
        return _is_pair(spec)

    def takes_part(self, rank: int, spec: OpSpec) -> bool:
        """Only the pair does; in a ring or an exchange everybody."""
        return not _is_pair(spec) or rank in _pair(spec)

    def result(self, rank: int, spec: OpSpec) -> tuple[Source, ...]:
        """The receiver holds the sender's tensor; everyone else what it held before."""
        if _is_pair(spec):
            src, dst = _pair(spec)
            return (Source((src if rank == dst else rank,)),)
        return tuple(Source((peer,)) for peer in _peers(rank, spec)[1])

    def lone_label(self, spec: OpSpec) -> int | None:
        """One row of values is the sender's; a ring has no single sender."""
        return _pair(spec)[0] if _is_pair(spec) else None

    def traffic(self, spec: OpSpec) -> Traffic:
        """S is one tensor, factor 1."""
        sender = self.lone_label(spec)
        return Traffic(spec.bytes_each(sender), f"one {spec.noun}", 1.0, "1")

    def notes(self, spec: OpSpec) -> tuple[str, ...]:
        """How the calls of a ring or an exchange are ordered."""
        note = NOTES.get(spec.pattern) or NOTES.get((spec.pattern, spec.async_op))
        return (note,) if note else ()

    # ------------------------------------------------------------------------- running it

    def bind(self, buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> Call:
        """The calls of the pair or the ring, in an order that can't deadlock."""
        import torch.distributed as dist

        if spec.pattern == "exchange":
            return _batch(buffers, spec, group, async_op=async_op)
        if async_op:
            receives, sends = _calls(dist.irecv, dist.isend, buffers, spec, group)
            return at_once(*receives, *sends)
        receive = dist.recv_object_list if spec.objects else dist.recv
        send = dist.send_object_list if spec.objects else dist.send
        receives, sends = _calls(receive, send, buffers, spec, group)
        # An even rank of a ring sends first, an odd one receives first: with an odd number of
        # ranks the last and the first both send first, but then rank 1 receives and frees them.
        even = dist.get_rank(group) % 2 == 0
        return in_turn(*sends, *receives) if even else in_turn(*receives, *sends)

    def stages(self, buffers: Buffers, spec: OpSpec, group: Group) -> list[Stage]:
        """All receives are posted, then all sends; or all in one batch."""
        import torch.distributed as dist

        if spec.pattern == "exchange":
            both = partial(self.run, buffers, spec, group, async_op=True)
            rule = "not to be read yet"
            return [Stage("batch_isend_irecv", rule, buffers.recv, both)]
        receives, sends = _calls(dist.irecv, dist.isend, buffers, spec, group)
        receive, send = at_once(*receives), at_once(*sends)
        return [
            Stage("irecv", "not to be read yet", buffers.recv, lambda: handles(receive())),
            Stage("isend", "not to be changed yet", buffers.send, lambda: handles(send())),
        ]


def _calls(
    receive: Callable[..., Any],
    send: Callable[..., Any],
    buffers: Buffers,
    spec: OpSpec,
    group: Group,
) -> tuple[list[Call], list[Call]]:
    """What this rank of a pair or a ring receives, and what it sends: one call or none of each."""
    import torch.distributed as dist

    gives, takes = _peers(dist.get_rank(group), spec)
    give, take = (
        (buffers.send, buffers.recv) if spec.objects else (buffers.send[0], buffers.recv[0])
    )
    return (
        [partial(receive, take, group=group, group_src=peer) for peer in takes],
        [partial(send, give, group=group, group_dst=peer) for peer in gives],
    )


def _batch(buffers: Buffers, spec: OpSpec, group: Group, *, async_op: bool) -> Call:
    """All sends and receives at once; waited for in the call unless the caller does."""
    import torch.distributed as dist

    gives, takes = _peers(dist.get_rank(group), spec)
    calls = [
        dist.P2POp(dist.irecv, place, group=group, group_peer=peer)
        for place, peer in zip(buffers.recv, takes, strict=True)
    ]
    calls += [
        dist.P2POp(dist.isend, buffers.send[0], group=group, group_peer=peer) for peer in gives
    ]
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
    """The ranks that this one sends to, and those that it receives from, in buffer order."""
    n = spec.group_size
    left, right = (rank - 1) % n, (rank + 1) % n
    if spec.pattern == "ring":
        return (right,), (left,)
    if spec.pattern == "exchange":
        both = tuple(dict.fromkeys((left, right)))  # of two ranks they are the same, once
        return both, both
    src, dst = _pair(spec)
    return (dst,) * (rank == src), (src,) * (rank == dst)
