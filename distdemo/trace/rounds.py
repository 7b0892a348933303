"""The rounds of one rank, ready to be played: its messages, and what is done before and after.

A message whose chunks lie in a row is sent from where they lie, others are packed. What only takes
a place is received right there, unless that is sent, or filled twice, in the same round; what is
reduced comes in beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distdemo.trace.memory import Memory, Scratch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from distdemo.trace.roles import Role
    from distdemo.trace.scheduling import Transfer

Act = Callable[[], Any]
Ends = Sequence[tuple[int, "Tensor"]]
_SENT_AS_IT_IS = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    | {torch.int8, torch.uint8, torch.int32, torch.int64}
)
"""What every backend sends; other elements go as their bytes."""


class Rounds:
    """Makes rounds, and counts what they hand to the backend.

    Args:
        memory: of the chunks.
        original: of what is sent of the start.
        combine: torch's function of two tensors, that takes ``out``.
        group: of the ranks; None: the whole world.

    Attributes:
        sent: bytes to be sent.
        received: bytes to be filled.
        messages: that are sent.
    """

    def __init__(
        self,
        memory: Memory,
        original: Memory,
        combine: Callable[..., Tensor],
        group: ProcessGroup | None,
    ) -> None:
        self._memory, self._original = memory, original
        self._combine, self._group = combine, group
        self._scratch = Scratch(memory.flat)
        self._batched = memory.flat.device.type != "cpu"
        self._under_way: list[Any] = []
        self.sent = self.received = self.messages = 0

    def add(self, role: Role) -> Act | None:
        """The next round; None where this rank has no part in it.

        Returns:
            Collective: packs, posts, waits, and reduces or unpacks.
        """
        if not role.sends and not role.receives:
            return None
        self._scratch.clear()
        packing: list[Act] = []
        settling: list[Act] = []
        fresh = set(role.fresh)
        out = [(each.dst, self._outgoing(each, packing)) for each in role.sends]
        into = [(each.src, self._incoming(each, role, fresh, settling)) for each in role.receives]
        self.sent += sum(tensor.nbytes for _, tensor in out)
        self.received += sum(tensor.nbytes for _, tensor in into)
        self.messages += len(out)
        return _play(packing, self._posting(out, into), settling, self._under_way)

    def _outgoing(self, transfer: Transfer, packing: list[Act]) -> Tensor:
        source = self._original if transfer.original else self._memory
        runs = source.runs(transfer.chunks)
        if len(runs) == 1:
            return runs[0]
        message = self._scratch.take(transfer.elements)
        packing.append(partial(torch.cat, runs, out=message))
        return message

    def _incoming(
        self, transfer: Transfer, role: Role, fresh: set[int], settling: list[Act]
    ) -> Tensor:
        """Where the message comes to.

        Args:
            transfer: the message.
            role: the whole round.
            fresh: chunks with nothing to combine with yet; those that come now are taken out.
            settling: gets what is to be done afterwards.
        """
        runs = self._memory.runs(transfer.chunks)
        reduced = transfer.reduce and fresh.isdisjoint(transfer.chunks)
        if len(runs) == 1 and not transfer.reduce and not _shared(transfer, role):
            return runs[0]
        message = self._scratch.take(transfer.elements)
        if reduced or not transfer.reduce:
            settling += self._settle(runs, message, reduce=reduced)
        else:
            settling += self._settle_each(transfer, message, fresh)
        fresh.difference_update(transfer.chunks)
        return message

    def _settle(self, runs: Sequence[Tensor], message: Tensor, *, reduce: bool) -> list[Act]:
        parts = torch.split(message, [run.numel() for run in runs])
        return [
            partial(self._combine, run, part, out=run) if reduce else partial(run.copy_, part)
            for run, part in zip(runs, parts, strict=True)
        ]

    def _settle_each(self, transfer: Transfer, message: Tensor, fresh: set[int]) -> list[Act]:
        """Chunk by chunk: some are there already, others take their place."""
        chunks = [self._memory.of(chunk) for chunk in transfer.chunks]
        parts = torch.split(message, [chunk.numel() for chunk in chunks])
        return [
            act
            for number, chunk, part in zip(transfer.chunks, chunks, parts, strict=True)
            for act in self._settle([chunk], part, reduce=number not in fresh)
        ]

    def _posting(self, out: Ends, into: Ends) -> Callable[[], Iterable[Any]]:
        """Posts all receives, then all sends; on a GPU as one launch."""
        group = self._group
        if self._batched:
            batch = [dist.P2POp(dist.irecv, _wire(t), group=group, group_peer=r) for r, t in into]
            batch += [dist.P2POp(dist.isend, _wire(t), group=group, group_peer=r) for r, t in out]
            return partial(dist.batch_isend_irecv, batch)
        calls = [partial(dist.irecv, _wire(t), group=group, group_src=r) for r, t in into]
        calls += [partial(dist.isend, _wire(t), group=group, group_dst=r) for r, t in out]
        return lambda: [call() for call in calls]


def _play(
    packing: Sequence[Act],
    posting: Callable[[], Iterable[Any]],
    settling: Sequence[Act],
    under_way: list[Any],
) -> Act:
    """The parts of a round as one.

    Args:
        packing: before.
        posting: gives the handles.
        settling: after.
        under_way: keeps the handles until the next round has posted its own. To let go of one of
            gloo's as soon as it has been waited for means to wait for gloo's thread once more: on
            crowded cores a round takes twice as long then.
    """

    def play() -> None:
        for act in packing:
            act()
        under_way[:] = posting()
        for work in under_way:
            work.wait()
        for act in settling:
            act()

    return play


def _shared(transfer: Transfer, role: Role) -> bool:
    """Whether a chunk of it is also sent, or comes a second time, in this round.

    It must not be filled then while the other message is under way.
    """
    touching = [
        each
        for each in (*role.sends, *role.receives)
        if not set(each.chunks).isdisjoint(transfer.chunks)
    ]
    return len(touching) > 1


def _wire(tensor: Tensor) -> Tensor:
    """As the backend gets it."""
    return tensor if tensor.dtype in _SENT_AS_IT_IS else tensor.view(torch.uint8)
