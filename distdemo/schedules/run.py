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
        sends: Non-empty messages that it sends.
        receives: Non-empty messages that it receives.
        unfilled: Received chunks that it didn't hold before, so there is nothing to combine with.
        arrived: Chunks that are new or changed after the round, including empty ones.
        held: Chunks held after the round.
    """

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]
    unfilled: frozenset[int]
    arrived: frozenset[int]
    held: frozenset[int]


def roles(rank: int, schedule: Schedule) -> Iterator[Role]:
    """Yield this rank's role in each round.

    Raises:
        ScheduleError: A rank sends a chunk that it doesn't hold.
    """
    held = set(schedule.given(rank))
    for step in schedule.steps():
        sends = [transfer for transfer in step.transfers if transfer.src == rank]
        receives = [transfer for transfer in step.transfers if transfer.dst == rank]
        sent = {chunk for transfer in sends for chunk in transfer.chunks}
        if not sent <= held:
            raise ScheduleError(
                f"In round {step.number} rank {rank} sends chunk {min(sent - held)}, "
                "which it doesn't hold."
            )
        if schedule.goal.moved:
            held -= sent
        arrived = frozenset(chunk for transfer in receives for chunk in transfer.chunks)
        unfilled = arrived - held
        held |= arrived
        yield Role(
            tuple(transfer for transfer in sends if transfer.elements),
            tuple(transfer for transfer in receives if transfer.elements),
            unfilled,
            arrived,
            frozenset(held),
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
            start, end = end, end + sizes.of(chunk)
            self._spans[chunk] = (start, end)
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
            if start == end:
                continue
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], end)
            else:
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
        before: Actions before the first round.
        after: Actions after the last round.
        held: Chunks that the rank holds now.
        sent_bytes: Bytes that one run hands to the backend for sending.

    Raises:
        ScheduleError: A rank sends a chunk that it doesn't hold.
    """

    def __init__(self, rank: int, schedule: Schedule, spec: OpSpec, device: str) -> None:
        self._rank, self._schedule, self._spec, self._device = rank, schedule, spec, device
        self.roles = tuple(roles(rank, schedule))
        self._allocate()
        self._combine = getattr(torch, REDUCTIONS[spec.reduce_op or "sum"].torch_combine)
        # Handles are kept until the next round has posted its own. Dropping one of gloo's right
        # after its wait() waits for gloo's thread again, which doubles a round's time on
        # oversubscribed cores.
        self._in_flight: list[Any] = []
        # If ranks forward the last message that they received, it must not be overwritten.
        self._forwards_last = any(t.content == "last" for role in self.roles for t in role.sends)
        self._last: Tensor | None = None
        self._buffers: list[Tensor] = []
        self._busy_buffers: list[Tensor] = []
        self.sent_bytes = 0
        self.rounds = [self._round(role) for role in self.roles]
        self.before, self.after = self._scaling()
        self.held = frozenset(schedule.given(rank))

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
        for each in self.rounds:
            if each is not None:
                self.post(each)
                self.wait()
                run_all(each.unpack)
        run_all(self.after)
        if self.roles:
            self.held = self.roles[-1].held

    def post(self, each: PreparedRound) -> None:
        """Pack and post all messages."""
        run_all(each.pack)
        self._in_flight = each.post()

    def wait(self) -> None:
        """Wait for all posted messages. Collective."""
        for work in self._in_flight:
            work.wait()

    def chunk(self, number: int) -> Tensor:
        """Return the memory of a chunk as a one-dimensional view."""
        return self._memory.of(number)

    def result(self) -> list[Tensor]:
        """Return the op's result as views, one per piece, in the order of ``expected``."""
        due, shape = self._schedule.due(self._rank), self._spec.shape
        if not due:
            return []
        if self._schedule.goal.whole:
            return [self._memory.flat.view(shape)]
        return [self._memory.of(chunk).view(shape) for chunk in due]

    # -------------------------------------------------------------------------- preparing a round
    #
    # Messages whose chunks are contiguous are sent without a copy; other messages are packed. A
    # message that isn't reduced is received in place unless the same round also sends or refills
    # that memory; a message that is reduced is received into a separate buffer.

    def _round(self, role: Role) -> PreparedRound | None:
        """Prepare a round; return None if this rank sends and receives nothing in it."""
        if not role.sends and not role.receives:
            return None
        self._busy_buffers = [] if self._last is None else [self._last]
        pack: list[Action] = []
        unpack: list[Action] = []
        unfilled = set(role.unfilled)
        out = [(transfer.dst, self._send_tensor(transfer, pack)) for transfer in role.sends]
        into = [
            (transfer.src, self._receive_tensor(transfer, role, unfilled, unpack))
            for transfer in role.receives
        ]
        if self._forwards_last and into:
            self._last = into[-1][1]
        self.sent_bytes += sum(tensor.nbytes for _, tensor in out)
        return PreparedRound(pack, self._posting(out, into), unpack)

    def _send_tensor(self, transfer: Transfer, pack: list[Action]) -> Tensor:
        if transfer.content == "last":
            if self._last is None:
                raise ScheduleError(f"Rank {transfer.src} forwards a message before it got one.")
            return self._last
        source = self._original if transfer.content == "original" else self._memory
        runs = source.runs(transfer.chunks)
        if len(runs) == 1:
            return runs[0]
        message = self._buffer(transfer.elements)
        pack.append(partial(torch.cat, runs, out=message))
        return message

    def _receive_tensor(
        self, transfer: Transfer, role: Role, unfilled: set[int], unpack: list[Action]
    ) -> Tensor:
        """Return the tensor to receive this message into.

        Args:
            transfer: Message to receive.
            role: This rank's part in the round.
            unfilled: Chunks with nothing to combine with yet. The message's chunks are removed.
            unpack: List to which the actions after the receive are appended.
        """
        runs = self._memory.runs(transfer.chunks)
        reduced = transfer.reduce and unfilled.isdisjoint(transfer.chunks)
        touching = [
            each
            for each in (*role.sends, *role.receives)
            if not set(each.chunks).isdisjoint(transfer.chunks)
        ]
        in_place = len(runs) == 1 and not transfer.reduce and len(touching) == 1
        if in_place and not self._forwards_last:
            return runs[0]
        message = self._buffer(transfer.elements)
        if reduced or not transfer.reduce:
            unpack += self._unpacking(runs, message, reduce=reduced)
        else:  # chunk by chunk: combine those already held, copy the rest
            chunks = [self._memory.of(chunk) for chunk in transfer.chunks]
            parts = torch.split(message, [chunk.numel() for chunk in chunks])
            for number, chunk, part in zip(transfer.chunks, chunks, parts, strict=True):
                unpack += self._unpacking([chunk], part, reduce=number not in unfilled)
        unfilled.difference_update(transfer.chunks)
        return message

    def _buffer(self, elements: int) -> Tensor:
        """Return a buffer for a message outside the chunks' memory; other rounds reuse it."""
        for buffer in self._buffers:
            if buffer.numel() == elements and not any(buffer is b for b in self._busy_buffers):
                break
        else:
            buffer = self._memory.flat.new_empty(elements)
            self._buffers.append(buffer)
        self._busy_buffers.append(buffer)
        return buffer

    def _unpacking(self, runs: Sequence[Tensor], message: Tensor, *, reduce: bool) -> list[Action]:
        parts = torch.split(message, [run.numel() for run in runs])
        return [
            partial(self._combine, run, part, out=run) if reduce else partial(run.copy_, part)
            for run, part in zip(runs, parts, strict=True)
        ]

    def _posting(
        self, out: Sequence[tuple[int, Tensor]], into: Sequence[tuple[int, Tensor]]
    ) -> Callable[[], list[Any]]:
        """Return a function that posts all receives, then all sends; on a GPU in one launch."""

        def as_bytes(tensor: Tensor) -> Tensor:
            return tensor if tensor.dtype in _NATIVE_DTYPES else tensor.view(torch.uint8)

        if self._device != "cpu":
            batch = [dist.P2POp(dist.irecv, as_bytes(tensor), peer) for peer, tensor in into]
            batch += [dist.P2POp(dist.isend, as_bytes(tensor), peer) for peer, tensor in out]
            return partial(dist.batch_isend_irecv, batch)
        calls = [partial(dist.irecv, as_bytes(tensor), peer) for peer, tensor in into]
        calls += [partial(dist.isend, as_bytes(tensor), peer) for peer, tensor in out]
        return lambda: [call() for call in calls]

    # ---------------------------------------------------------------------------- preparing memory

    def _allocate(self) -> None:
        """Allocate the memory of the chunks and of the inputs."""
        schedule, dtype = self._schedule, torch_dtype(self._spec)
        given = schedule.given(self._rank)
        self._memory = Memory(schedule.sizes, self._memory_order(), dtype, self._device)
        self._inputs = Memory(schedule.sizes, given, dtype, self._device)
        # premul_sum multiplies before sending, so the original chunks need separate memory.
        self._original = self._inputs
        if self._spec.reduce_op == "premul_sum":
            self._original = Memory(schedule.sizes, given, dtype, self._device)

    def _memory_order(self) -> Sequence[int]:
        """Return the memory order: a tensor's chunks in sequence, others to minimize packing."""
        schedule, rank = self._schedule, self._rank
        if schedule.goal.whole:
            return range(schedule.sizes.chunks)
        messages = [each for role in self.roles for each in (*role.sends, *role.receives)]
        needed = {*schedule.given(rank), *schedule.due(rank)}
        needed |= {chunk for role in self.roles for chunk in role.arrived}
        needed |= {chunk for each in messages for chunk in each.chunks}
        row = sorted(needed)

        def packed(order: Sequence[int]) -> int:
            """Return the number of elements in messages whose chunks aren't contiguous."""
            position = {chunk: index for index, chunk in enumerate(order)}
            return sum(
                each.elements
                for each in messages
                if any(position[b] != position[a] + 1 for a, b in pairwise(each.chunks))
            )

        cuts = (bisect_left(row, start) for start in (0, rank, schedule.root))
        return min(([*row[cut:], *row[:cut]] for cut in cuts), key=packed)

    def _scaling(self) -> tuple[list[Action], list[Action]]:
        """Return the multiplications of ``premul_sum`` and the divisions of ``avg``.

        The former precede the first round, the latter follow the last.
        """
        if self._spec.reduce_op == "premul_sum":
            factor, flat = self._spec.factor, self._memory.flat
            copies = (flat, flat), (self._inputs.flat, self._original.flat)
            return [partial(torch.mul, source, factor, out=out) for source, out in copies], []
        if self._spec.reduce_op == "avg" and self._schedule.n > 1:
            runs = self._memory.runs(self._schedule.due(self._rank))
            return [], [partial(run.div_, self._schedule.n) for run in runs]
        return [], []


def run_all(actions: Iterable[Action]) -> None:
    """Run prepared actions in this order."""
    for action in actions:
        action()
