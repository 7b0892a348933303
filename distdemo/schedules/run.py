"""Run a schedule on one rank with torch.distributed's isend and irecv, and local reductions.

All buffers and messages are prepared beforehand. Each round then does only what a hand-written loop
would do: pack non-contiguous chunks, post all receives and sends, wait for all of them, reduce. All
are posted before the first wait, so no message size can deadlock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distdemo.ops.buffers import poison, torch_dtype
from distdemo.ops.reduction import REDUCTIONS
from distdemo.schedules.schedule import ChunkSizes, Schedule, ScheduleError, Transfer

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.ops.spec import OpSpec

Action = Callable[[], Any]
_NATIVE_DTYPES = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    | {torch.int8, torch.uint8, torch.int32, torch.int64}
)
"""Dtypes that every backend can send; other tensors are sent as bytes."""


# ------------------------------------------------------------------------------------------- roles


@dataclass(frozen=True, slots=True)
class Role:
    """One rank's part in one round.

    Attributes:
        send: Message that it sends, unless there is none or it is empty.
        receive: Message that it receives, likewise.
        unfilled: Received chunks that it didn't hold before, so there is nothing to combine with.
        arrived: Chunks that are new or changed after the round, including empty ones.
        held: Chunks held after the round.
    """

    send: Transfer | None
    receive: Transfer | None
    unfilled: frozenset[int]
    arrived: frozenset[int]
    held: frozenset[int]


def roles(rank: int, schedule: Schedule) -> Iterator[Role]:
    """Yield this rank's role in each round.

    Raises:
        ScheduleError: A rank sends a chunk that it doesn't hold.
    """
    held = frozenset(schedule.given(rank))
    for exchange in schedule.exchanges():
        send = next((t for t in exchange.transfers if t.src == rank), None)
        receive = next((t for t in exchange.transfers if t.dst == rank), None)
        sent = frozenset(send.chunks if send else ())
        arrived = frozenset(receive.chunks if receive else ())
        if not sent <= held:
            raise ScheduleError(
                f"In round {exchange.number} rank {rank} sends chunk {min(sent - held)}, "
                "which it doesn't hold."
            )
        if schedule.goal.moved:
            held -= sent
        unfilled = arrived - held
        held |= arrived
        yield Role(
            send if send and send.elements else None,
            receive if receive and receive.elements else None,
            unfilled,
            arrived,
            held,
        )


# ------------------------------------------------------------------------------------------ memory


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


# ------------------------------------------------------------------------------------------ rounds


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

    Attributes:
        roles: This rank's part in each round.
        rounds: Prepared rounds; None where this rank sends and receives nothing.
        before: Actions before the first round: the multiplications of ``premul_sum``.
        after: Actions after the last round: the divisions of ``avg``.
        held: Chunks that the rank holds now.
        sent_bytes: Bytes that one run hands to the backend for sending.

    Raises:
        ScheduleError: A rank sends a chunk that it doesn't hold.
    """

    def __init__(self, rank: int, schedule: Schedule, spec: OpSpec, device: str) -> None:
        self._rank = rank
        self._schedule = schedule
        self._spec = spec
        self._device = device
        self.roles = tuple(roles(rank, schedule))
        given = schedule.given(rank)
        dtype = torch_dtype(spec)
        self._memory = Memory(schedule.sizes, self._memory_order(), dtype, device)
        self._inputs = Memory(schedule.sizes, given, dtype, device)
        self._original = self._inputs
        self.before: list[Action] = []
        self.after: list[Action] = []
        if spec.reduce_op == "premul_sum":  # the original chunks are multiplied before sending
            self._original = Memory(schedule.sizes, given, dtype, device)
            for source, target in (
                (self._memory, self._memory),
                (self._inputs, self._original),
            ):
                self.before.append(partial(torch.mul, source.flat, spec.factor, out=target.flat))
        if spec.reduce_op == "avg" and schedule.n > 1:
            runs = self._memory.runs(schedule.due(rank))
            self.after = [partial(run.div_, schedule.n) for run in runs]
        self._combine = getattr(torch, REDUCTIONS[spec.reduce_op or "sum"].torch_combine)
        # Handles are kept until the next round has posted its own. Dropping one of gloo's right
        # after its wait() waits for gloo's thread again, which doubles a round's time on
        # oversubscribed cores.
        self._in_flight: list[Any] = []
        self._buffers: dict[tuple[str, int], Tensor] = {}
        self._last: Tensor | None = None  # message that was received last, if it is forwarded
        self._forwards_last = any(role.send and role.send.content == "last" for role in self.roles)
        self.sent_bytes = 0
        self.rounds = [self._round(*numbered) for numbered in enumerate(self.roles)]
        self.held = frozenset(given)

    # ------------------------------------------------------------------------------------ running

    def inputs(self) -> list[Tensor]:
        """Return the memory of what this rank gives as flat views, one per piece."""
        given = self._schedule.given(self._rank)
        if self._schedule.goal.whole:
            return [self._inputs.flat] if given else []
        return [self._inputs.of(chunk) for chunk in given]

    def fill(self, pieces: Sequence[Tensor]) -> None:
        """Copy the op's pieces to the inputs; those that the op only overwrites are left out."""
        for place, piece in zip(self.inputs(), pieces, strict=False):
            place.copy_(piece.reshape(-1))

    def reset(self) -> None:
        """Copy the inputs to the chunks and poison all other memory. Not part of any timing."""
        given = self._schedule.given(self._rank)
        poison(self._memory.flat)
        for chunk in given:
            self._memory.of(chunk).copy_(self._inputs.of(chunk))
        self.held = frozenset(given)

    def run(self) -> None:
        """Run all rounds. Collective."""
        run_all(self.before)
        for prepared in self.rounds:
            if prepared is not None:
                self.post(prepared)
                self.wait()
                run_all(prepared.unpack)
        run_all(self.after)
        if self.roles:
            self.held = self.roles[-1].held

    def post(self, prepared: PreparedRound) -> None:
        """Pack and post all messages."""
        run_all(prepared.pack)
        self._in_flight = prepared.post()

    def wait(self) -> None:
        """Wait for all posted messages. Collective."""
        for work in self._in_flight:
            work.wait()

    def chunk(self, number: int) -> Tensor:
        """Return the memory of a chunk as a one-dimensional view."""
        return self._memory.of(number)

    def result(self) -> list[Tensor]:
        """Return the op's result as views, one per piece, in the order of ``expected``."""
        due = self._schedule.due(self._rank)
        shape = self._spec.shape
        if due and self._schedule.goal.whole:
            return [self._memory.flat.view(shape)]
        return [self._memory.of(chunk).view(shape) for chunk in due]

    # -------------------------------------------------------------------------- preparing a round
    #
    # A message whose chunks are contiguous is sent without a copy; other messages are packed. A
    # message that isn't reduced is received in place unless the same round also sends that memory;
    # a message that is reduced is received into a separate buffer.

    def _round(self, number: int, role: Role) -> PreparedRound | None:
        """Prepare a round; return None if this rank sends and receives nothing in it."""
        if role.send is None and role.receive is None:
            return None
        pack: list[Action] = []
        unpack: list[Action] = []
        calls: list[tuple[Any, Tensor, int]] = []
        outgoing = self._outgoing(role.send, pack) if role.send else None
        if role.receive is not None:
            # A message that is forwarded in the next round must not be overwritten there.
            self._last = self._incoming(role.receive, role, f"received {number % 2}", unpack)
            calls.append((dist.irecv, self._last, role.receive.src))
        if role.send is not None and outgoing is not None:
            self.sent_bytes += outgoing.nbytes
            calls.append((dist.isend, outgoing, role.send.dst))
        return PreparedRound(pack, self._posting(calls), unpack)

    def _outgoing(self, transfer: Transfer, pack: list[Action]) -> Tensor:
        """Return the tensor to send; actions before the send are appended to ``pack``."""
        if transfer.content == "last":
            if self._last is None:
                raise ScheduleError(f"Rank {transfer.src} forwards a message before it got one.")
            return self._last
        source = self._original if transfer.content == "original" else self._memory
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
        sends_it = role.send is not None and not role.arrived.isdisjoint(role.send.chunks)
        if len(runs) == 1 and not (transfer.reduce or sends_it or self._forwards_last):
            return runs[0]
        message = self._buffer(buffer, transfer.elements)
        reduced = [transfer.reduce] * len(runs)
        if transfer.reduce and role.unfilled:  # chunk by chunk: combine some, copy the rest
            runs = [self._memory.of(chunk) for chunk in transfer.chunks]
            reduced = [chunk not in role.unfilled for chunk in transfer.chunks]
        parts = torch.split(message, [run.numel() for run in runs])
        for run, part, is_reduced in zip(runs, parts, reduced, strict=True):
            combine = partial(self._combine, run, part, out=run)
            unpack.append(combine if is_reduced else partial(run.copy_, part))
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
        if self._device != "cpu":
            return partial(dist.batch_isend_irecv, [dist.P2POp(*call) for call in sendable])
        return lambda: [call(tensor, peer) for call, tensor, peer in sendable]

    def _memory_order(self) -> Sequence[int]:
        """Return the memory order: a tensor's chunks in sequence, others to minimize packing."""
        schedule = self._schedule
        if schedule.goal.whole:
            return range(schedule.sizes.chunks)
        messages = [
            message for role in self.roles for message in (role.send, role.receive) if message
        ]
        needed = {*schedule.given(self._rank), *schedule.due(self._rank)}
        needed.update(*(role.arrived for role in self.roles))
        needed.update(*(message.chunks for message in messages))
        row = sorted(needed)

        def packed(order: Sequence[int]) -> int:
            """Return the number of elements in messages whose chunks aren't contiguous."""
            position = {chunk: index for index, chunk in enumerate(order)}
            return sum(
                message.elements
                for message in messages
                if any(position[b] != position[a] + 1 for a, b in pairwise(message.chunks))
            )

        cuts = (bisect_left(row, start) for start in (0, self._rank, schedule.root))
        return min(([*row[cut:], *row[:cut]] for cut in cuts), key=packed)


def run_all(actions: Iterable[Action]) -> None:
    """Run prepared actions in this order."""
    for action in actions:
        action()
