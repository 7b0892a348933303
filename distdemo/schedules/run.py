"""Run a schedule on one rank with torch.distributed's isend and irecv, and local reductions.

All buffers and messages are prepared beforehand. Each round then does only what a hand-written loop
would do: pack non-contiguous chunks, post all receives and sends, wait for all of them, reduce. All
are posted before the first wait, so no message size can deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distdemo.ops.buffers import poison, torch_dtype
from distdemo.ops.reduction import REDUCTIONS
from distdemo.schedules.schedule import ChunkSizes, Schedule, Transfer

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.ops.spec import OpSpec

Action = Callable[[], Any]
_NATIVE_DTYPES = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    | {torch.int8, torch.uint8, torch.int32, torch.int64}
)
"""Dtypes that every backend can send; other tensors are sent as bytes."""


@dataclass(frozen=True, slots=True)
class Role:
    """One rank's part in one round.

    Attributes:
        send: Message that it sends, unless there is none or it is empty.
        receive: Message that it receives, likewise.
        arrived: Chunks that are new or changed after the round, including empty ones.
    """

    send: Transfer | None
    receive: Transfer | None
    arrived: tuple[int, ...]


def roles(rank: int, schedule: Schedule) -> Iterator[Role]:
    """Yield this rank's role in each round."""
    for exchange in schedule.exchanges():
        send = next((t for t in exchange.transfers if t.src == rank), None)
        receive = next((t for t in exchange.transfers if t.dst == rank), None)
        yield Role(
            send if send and send.elements else None,
            receive if receive and receive.elements else None,
            receive.chunks if receive else (),
        )


class Memory:
    """Chunks of one rank, stored in one flat tensor.

    Args:
        sizes: Sizes of the chunks.
        order: Chunks to store, in memory order.
        dtype: Dtype of the tensor.
        device: Device of the tensor.

    Attributes:
        flat: Tensor with all chunks.
    """

    def __init__(
        self, sizes: ChunkSizes, order: Sequence[int], dtype: torch.dtype, device: str
    ) -> None:
        self._spans: dict[int, tuple[int, int]] = {}
        end = 0
        for chunk in order:
            self._spans[chunk] = (end, end + sizes.of(chunk))
            end += sizes.of(chunk)
        self.flat: Tensor = torch.empty(end, dtype=dtype, device=device)

    def of(self, chunk: int) -> Tensor:
        """Return a view of the chunk."""
        start, end = self._spans[chunk]
        return self.flat[start:end]

    def runs(self, chunks: Iterable[int]) -> list[Tensor]:
        """Return views of these chunks in this order, adjacent ones merged, empty ones omitted."""
        spans: list[tuple[int, int]] = []
        for chunk in chunks:
            start, end = self._spans[chunk]
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], end)
            elif start < end:
                spans.append((start, end))
        return [self.flat[start:end] for start, end in spans]


@dataclass(slots=True)
class PreparedRound:
    """One round of one rank, prepared so that it can run repeatedly.

    Attributes:
        pack: Actions before the messages are posted.
        post: Function that posts all messages and returns their handles.
        unpack: Actions after the messages arrived: they are reduced or unpacked.
    """

    pack: list[Action]
    post: Callable[[], list[Any]]
    unpack: list[Action]


class Runner:
    """One rank, prepared to run a schedule repeatedly.

    Fill the inputs and call ``reset`` before the first run. Each run starts from the current
    contents of the memory.

    Args:
        rank: Number of this rank.
        schedule: Schedule of all ranks.
        spec: Op with its dtype, shape, reduce op and root.
        device: Device of the tensors.
    """

    def __init__(self, rank: int, schedule: Schedule, spec: OpSpec, device: str) -> None:
        self._is_whole = schedule.goal.whole
        self._shape = spec.shape
        self._device = device
        self._roles = tuple(roles(rank, schedule))
        self._given = schedule.given(rank)
        self._due = schedule.due(rank)
        chunks = {*self._given, *self._due}.union(*(role.arrived for role in self._roles))
        dtype = torch_dtype(spec)
        self._memory = Memory(schedule.sizes, sorted(chunks), dtype, device)
        self._inputs = Memory(schedule.sizes, self._given, dtype, device)
        self._combine = getattr(torch, REDUCTIONS[spec.reduce_op or "sum"].torch_combine)
        # Handles are kept until the next round has posted its own. Dropping one of gloo's right
        # after its wait() waits for gloo's thread again, which doubles a round's time on
        # oversubscribed cores.
        self._in_flight: list[Any] = []
        self._buffers: dict[tuple[str, int], Tensor] = {}
        self._last: Tensor | None = None  # message that was received last, if it is forwarded
        self._forwards_last = any(role.send and role.send.content == "last" for role in self._roles)
        self._rounds = [self._round(number, role) for number, role in enumerate(self._roles)]
        if spec.reduce_op == "avg" and self._rounds:
            runs = self._memory.runs(self._due)
            self._rounds[-1].unpack += [partial(run.div_, schedule.n) for run in runs]

    # ------------------------------------------------------------------------------------ running

    def inputs(self) -> list[Tensor]:
        """Return the memory of what this rank gives as flat views, one per piece."""
        if self._is_whole:
            return [self._inputs.flat] if self._given else []
        return [self._inputs.of(chunk) for chunk in self._given]

    def reset(self) -> None:
        """Copy the inputs to the chunks and poison all other memory. Not part of any timing."""
        poison(self._memory.flat)
        for chunk in self._given:
            self._memory.of(chunk).copy_(self._inputs.of(chunk))

    def run(self, after_round: Callable[[Sequence[int]], None] = lambda _: None) -> None:
        """Run all rounds. Collective.

        Args:
            after_round: Function that is called after each round with the chunks that arrived.
        """
        for role, prepared in zip(self._roles, self._rounds, strict=True):
            run_all(prepared.pack)
            self._in_flight = prepared.post()
            for work in self._in_flight:
                work.wait()
            run_all(prepared.unpack)
            after_round(role.arrived)

    def chunk(self, number: int) -> Tensor:
        """Return the memory of a chunk as a one-dimensional view."""
        return self._memory.of(number)

    def result(self) -> list[Tensor]:
        """Return the op's result as views, one per piece, in the order of ``expected``."""
        if self._due and self._is_whole:
            return [self._memory.flat.view(self._shape)]
        return [self._memory.of(chunk).view(self._shape) for chunk in self._due]

    # -------------------------------------------------------------------------- preparing a round
    #
    # A message whose chunks are contiguous is sent without a copy; other messages are packed. A
    # message that isn't reduced is received in place unless the same round also sends that memory;
    # a message that is reduced is received into a separate buffer.

    def _round(self, number: int, role: Role) -> PreparedRound:
        """Prepare a round."""
        pack: list[Action] = []
        unpack: list[Action] = []
        calls: list[tuple[Any, Tensor, int]] = []
        outgoing = self._outgoing(role.send, pack) if role.send else None
        if role.receive is not None:
            # A message that is forwarded in the next round must not be overwritten there.
            self._last = self._incoming(role.receive, role, f"received {number % 2}", unpack)
            calls.append((dist.irecv, self._last, role.receive.src))
        if role.send is not None and outgoing is not None:
            calls.append((dist.isend, outgoing, role.send.dst))
        return PreparedRound(pack, self._posting(calls), unpack)

    def _outgoing(self, transfer: Transfer, pack: list[Action]) -> Tensor:
        """Return the tensor to send; actions before the send are appended to ``pack``."""
        if transfer.content == "last" and self._last is not None:
            return self._last
        source = self._inputs if transfer.content == "original" else self._memory
        runs = source.runs(transfer.chunks)
        if len(runs) == 1:
            return runs[0]
        message = self._buffer("packed", transfer.elements)
        pack.append(partial(torch.cat, runs, out=message))
        return message

    def _incoming(
        self, transfer: Transfer, role: Role, buffer: str, unpack: list[Action]
    ) -> Tensor:
        """Return the tensor to receive into; actions after the receive are appended to ``unpack``.

        Args:
            transfer: Message to receive.
            role: This rank's part in the round.
            buffer: Name of the buffer to use if it can't be received in place.
            unpack: List of actions.
        """
        runs = self._memory.runs(transfer.chunks)
        sends_it = role.send is not None and not set(role.arrived).isdisjoint(role.send.chunks)
        if len(runs) == 1 and not (transfer.reduce or sends_it or self._forwards_last):
            return runs[0]
        message = self._buffer(buffer, transfer.elements)
        parts = torch.split(message, [run.numel() for run in runs])
        for run, part in zip(runs, parts, strict=True):
            combine = partial(self._combine, run, part, out=run)
            unpack.append(combine if transfer.reduce else partial(run.copy_, part))
        return message

    def _buffer(self, name: str, elements: int) -> Tensor:
        """Return a buffer outside the chunks' memory; other rounds reuse it."""
        key = (name, elements)
        if key not in self._buffers:
            self._buffers[key] = self._memory.flat.new_empty(elements)
        return self._buffers[key]

    def _posting(self, calls: Sequence[tuple[Any, Tensor, int]]) -> Callable[[], list[Any]]:
        """Return a function that makes these calls (function, tensor, peer); on a GPU at once."""
        sendable = [
            (call, tensor if tensor.dtype in _NATIVE_DTYPES else tensor.view(torch.uint8), peer)
            for call, tensor, peer in calls
        ]
        if self._device != "cpu" and calls:
            return partial(dist.batch_isend_irecv, [dist.P2POp(*call) for call in sendable])
        return lambda: [call(tensor, peer) for call, tensor, peer in sendable]


def run_all(actions: Iterable[Action]) -> None:
    """Run prepared actions in this order."""
    for action in actions:
        action()
