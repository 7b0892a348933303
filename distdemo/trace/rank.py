"""A schedule on one real rank: isend and irecv of torch.distributed, and reductions of what came.

All memory, and every message, is prepared beforehand. What is then done in a round is what a loop
that somebody wrote by hand would do: pack what does not lie in a row, post all receives and sends,
wait for all of them, reduce. All are posted before any is waited for, so no size can deadlock.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distdemo import ops
from distdemo.demo.verify import verify
from distdemo.ops.buffers import (
    Expected,
    expected,
    held_before,
    make_buffers,
    poison,
    torch_dtype,
)
from distdemo.ops.reduction import REDUCTIONS
from distdemo.trace import algorithms
from distdemo.trace.play import steps
from distdemo.trace.records import Fault, Moment, RankTrace, TraceSpec, Transfer, WrongChunk
from distdemo.trace.schedule import ChunkSizes, Schedule, ScheduleError

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.demo.records import Verification
    from distdemo.launcher.rank import Rank
    from distdemo.ops.spec import Number, OpSpec

Act = Callable[[], Any]
Numbers = tuple["Number | str", ...]
"""The first numbers of a chunk."""
SHOWN = 4  # of them are kept
SIGN_OF_LIFE = 0.5  # seconds between two of them
_SENT_AS_IT_IS = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64}
    | {torch.int8, torch.uint8, torch.int32, torch.int64}
)
"""What every backend sends; other elements go as their bytes."""


def trace(rank: Rank, spec: TraceSpec) -> RankTrace:
    """Collective: run the schedule on this rank, and say what it held after each round.

    It is run twice. The second time is kept: in the first the connections are made and memory is
    touched for the first time, and the picture is not to be one of that.

    Args:
        rank: this rank of the world; all of the world take part.
        spec: the same on all ranks.
    """
    schedule = algorithms.schedule(spec.op, spec.algorithm, spec.chunks)
    runner = Runner(rank.rank, schedule, spec.op, rank.device, spec.fault)
    name = f"{spec.algorithm} {spec.op.op}"
    rank.reach(f"entered {name}")
    if rank.device != "cpu":  # NCCL wants all ranks in its first call; a round may have only some
        dist.all_reduce(torch.zeros(1, device=rank.device))
    runner.reset()
    runner.run()
    runner.reset()
    rank.synchronize()
    rank.meet(f"the start of {name}")
    start, values, moments = runner.run_recorded(rank)
    rank.reach(f"left {name}")
    wanted = expected(ops.REGISTRY[spec.op.op], rank.rank, spec.op)
    verification = verify(runner.result(), wanted)
    return RankTrace(
        rank.rank,
        start,
        tuple(values),
        tuple(moments),
        runner.sent_bytes,
        verification,
        tuple(_wrong_chunks(rank.rank, schedule, runner, wanted or [], verification)),
    )


def _wrong_chunks(
    rank: int,
    schedule: Schedule,
    runner: Runner,
    wanted: list[Expected],
    verification: Verification,
) -> Iterator[WrongChunk]:
    """Each chunk that this rank must have and has not, or that holds something else."""
    here = runner.chunks()
    for place, chunk in enumerate(schedule.due(rank)):
        whole = wanted[0 if schedule.goal.whole else place]
        tensor, bound = whole.tensor.reshape(-1), whole.bound
        first, end = 0, tensor.numel()
        if schedule.goal.whole:
            first, end = schedule.sizes.before(chunk), schedule.sizes.before(chunk + 1)
        if first == end:
            continue
        right = tensor[first:end]
        if chunk not in here:
            yield WrongChunk(rank, chunk, None, None, first_numbers(right)[0])
        elif not verification.ok:
            cut = None if bound is None else bound.reshape(-1)[first:end]
            for miss in verify([here[chunk]], [Expected(right, cut)]).mismatches[:1]:
                yield WrongChunk(rank, chunk, miss.index[0], miss.got, miss.expected)


def first_numbers(chunk: Tensor) -> Numbers:
    """The first numbers of a chunk; a bool whose byte is neither 0 nor 1 is that byte, in words."""
    head = chunk[:SHOWN].cpu()
    if head.dtype != torch.bool:
        return tuple(head.tolist())
    return tuple(
        bool(byte) if byte < 2 else f"byte {byte}" for byte in head.view(torch.uint8).tolist()
    )


# -------------------------------------------------------------------------------- what a rank does


@dataclass(frozen=True, slots=True)
class Role:
    """One rank in one round.

    Attributes:
        sends: its messages that carry anything.
        receives: likewise.
        fresh: chunks that it gets and did not have: there is nothing to combine them with.
        arrived: chunks that are new or changed afterwards; also empty ones.
        held: all chunks that it has afterwards.
    """

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]
    fresh: frozenset[int]
    arrived: frozenset[int]
    held: frozenset[int]


def roles(rank: int, schedule: Schedule, fault: Fault | None = None) -> Iterator[Role]:
    """What this rank does in each round.

    Raises:
        ScheduleError: without a fault, a rank sends a chunk that it does not have.
    """
    held = set(schedule.given(rank))
    for step in steps(schedule, fault):
        out = [each for each in step.transfers if each.src == rank]
        into = [each for each in step.transfers if each.dst == rank]
        sent = {chunk for each in out for chunk in each.chunks}
        if fault is None and not sent <= held:
            raise ScheduleError(
                f"In round {step.number} rank {rank} sends chunk {min(sent - held)}, "
                "which it does not have."
            )
        if schedule.goal.moved:
            held -= sent
        arrived = frozenset(chunk for each in into for chunk in each.chunks)
        fresh = arrived - held
        held |= arrived
        yield Role(
            tuple(each for each in out if each.elements),
            tuple(each for each in into if each.elements),
            fresh,
            arrived,
            frozenset(held),
        )


# -------------------------------------------------------------------------------------- its memory


class Memory:
    """Chunks of one rank, one after the other in one tensor.

    Args:
        sizes: of the chunks.
        order: the chunks that have a place, as they lie.
        dtype: of the elements.
        device: where.

    Attributes:
        flat: all of them.
    """

    def __init__(
        self, sizes: ChunkSizes, order: Sequence[int], dtype: torch.dtype, device: str
    ) -> None:
        self._places: dict[int, tuple[int, int]] = {}
        end = 0
        for chunk in order:
            start, end = end, end + sizes.of(chunk)
            self._places[chunk] = (start, end)
        self.flat: Tensor = torch.empty(end, dtype=dtype, device=device)

    def of(self, chunk: int) -> Tensor:
        """The chunk itself."""
        start, end = self._places[chunk]
        return self.flat[start:end]

    def runs(self, chunks: Iterable[int]) -> list[Tensor]:
        """These chunks, in this order, in as few pieces as they lie in; empty ones are nowhere."""
        found: list[tuple[int, int]] = []
        for chunk in chunks:
            start, end = self._places[chunk]
            if start == end:
                continue
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return [self.flat[start:end] for start, end in found]


# ------------------------------------------------------------------------------------- its rounds


@dataclass(slots=True)
class RankRound:
    """One round of one rank, ready to be run as often as one likes.

    Attributes:
        packing: what is done before.
        post: posts all messages, and gives their handles.
        settling: what is done after: what came is reduced, or unpacked.
    """

    packing: list[Act]
    post: Callable[[], list[Any]]
    settling: list[Act]


class Runner:
    """One rank, ready to run a schedule as often as one likes.

    ``reset`` has to come before the first run. A run goes on from what the memory holds by then.

    Args:
        rank: this one.
        schedule: what all ranks have to do.
        spec: the op, with dtype, shape, reduce op and root.
        device: where the tensors are.
        fault: what goes wrong on purpose: then also what was never filled is sent.

    Attributes:
        sent_bytes: that one run hands to the backend to be sent.

    Raises:
        ScheduleError: a rank sends a chunk that it does not have.
    """

    def __init__(
        self, rank: int, schedule: Schedule, spec: OpSpec, device: str, fault: Fault | None = None
    ) -> None:
        self._rank, self._schedule, self._spec, self._device = rank, schedule, spec, device
        self._roles = tuple(roles(rank, schedule, fault))
        self._load()
        self._combine = getattr(torch, REDUCTIONS[spec.reduce_op or "sum"].torch_combine)
        # Keeps the handles until the next round has posted its own. To let go of one of gloo's as
        # soon as it has been waited for means to wait for gloo's thread once more: on crowded cores
        # a round takes twice as long then.
        self._under_way: list[Any] = []
        # Where ranks pass on the message that they got last, it must not be written over.
        self._passes_on = any(t.content == "last" for role in self._roles for t in role.sends)
        self._last: Tensor | None = None
        self._rooms: list[Tensor] = []
        self._taken: list[Tensor] = []
        self.sent_bytes = 0
        self._rounds = [self._round(role) for role in self._roles]
        self._before, self._after = self._multiplying(), self._dividing()
        self._held = frozenset(schedule.given(rank))

    # --------------------------------------------------------------------------------- running it

    def reset(self) -> None:
        """Hold again what was held at the start; all else is poison. Not to be timed."""
        given = self._schedule.given(self._rank)
        poison(self._memory.flat)
        for chunk, content in self._blank.items():
            self._memory.of(chunk).copy_(content)
        for chunk in given:
            self._memory.of(chunk).copy_(self._given.of(chunk))
        self._held = frozenset(given)

    def run(self) -> None:
        """Collective: all rounds."""
        _all(self._before)
        for each in self._rounds:
            if each is not None:
                self._post(each)
                self._wait()
                _all(each.settling)
        _all(self._after)
        if self._roles:
            self._held = self._roles[-1].held

    def _post(self, each: RankRound) -> None:
        """Pack, and post all messages."""
        _all(each.packing)
        self._under_way = each.post()

    def _wait(self) -> None:
        """Collective: until all of them are done."""
        for work in self._under_way:
            work.wait()

    def run_recorded(
        self, rank: Rank
    ) -> tuple[dict[int, Numbers], list[dict[int, Numbers]], list[Moment]]:
        """Collective: all rounds, and notes of what changed in each and when.

        Args:
            rank: tells the launcher that it still moves.

        Returns:
            The first numbers of all chunks before the first round; after each round those of the
            chunks that it changed; when it was on this rank, by this machine's clock.
        """
        _all(self._before)
        rank.synchronize()
        start = self._numbers(self._held)
        values, moments = [], []
        last_sign = time.perf_counter()
        for role, each in zip(self._roles, self._rounds, strict=True):
            changed = role.arrived
            began = posted = arrived = time.perf_counter()
            if each is not None:
                self._post(each)
                posted = time.perf_counter()
                self._wait()
                rank.synchronize()
                arrived = time.perf_counter()
                _all(each.settling)
            if role is self._roles[-1] and self._after:
                _all(self._after)
                changed |= frozenset(self._schedule.due(self._rank))
            rank.synchronize()
            ended = time.perf_counter()
            times = (began, posted, arrived, ended)
            moments.append(Moment(*times) if each is not None else Moment(*[ended] * 4))
            self._held = role.held
            values.append(self._numbers(changed & self._held))
            if ended - last_sign > SIGN_OF_LIFE:
                rank.tell(None)
                last_sign = ended
        return start, values, moments

    def _numbers(self, chunks: Iterable[int]) -> dict[int, Numbers]:
        return {chunk: first_numbers(self._memory.of(chunk)) for chunk in sorted(chunks)}

    def chunks(self) -> dict[int, Tensor]:
        """The chunks that are here now, as they are: views of one dimension."""
        return {chunk: self._memory.of(chunk) for chunk in sorted(self._held)}

    def result(self) -> list[Tensor]:
        """The pieces of the op's result, as its ``expected`` has them: views."""
        due, shape = self._schedule.due(self._rank), self._spec.shape
        if not due:
            return []
        if self._schedule.goal.whole:
            return [self._memory.flat.view(shape)]
        return [self._memory.of(chunk).view(shape) for chunk in due]

    # -------------------------------------------------------------------------- preparing a round
    #
    # A message whose chunks lie in a row is sent from where they lie, others are packed. What only
    # takes a place is received right there, unless that is sent, or filled twice, in the same
    # round; what is reduced comes in beside it.

    def _round(self, role: Role) -> RankRound | None:
        """The next round; None where this rank has no part in it."""
        if not role.sends and not role.receives:
            return None
        self._taken = [] if self._last is None else [self._last]
        packing: list[Act] = []
        settling: list[Act] = []
        fresh = set(role.fresh)
        out = [(each.dst, self._outgoing(each, packing)) for each in role.sends]
        into = [(each.src, self._incoming(each, role, fresh, settling)) for each in role.receives]
        if self._passes_on and into:
            self._last = into[-1][1]
        self.sent_bytes += sum(tensor.nbytes for _, tensor in out)
        return RankRound(packing, self._posting(out, into), settling)

    def _outgoing(self, transfer: Transfer, packing: list[Act]) -> Tensor:
        if transfer.content == "last":
            if self._last is None or self._last.numel() != transfer.elements:
                self._last = self._room(transfer.elements)
                poison(self._last)
            return self._last
        source = self._original if transfer.content == "original" else self._memory
        runs = source.runs(transfer.chunks)
        if len(runs) == 1:
            return runs[0]
        message = self._room(transfer.elements)
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
        touching = [
            each
            for each in (*role.sends, *role.receives)
            if not set(each.chunks).isdisjoint(transfer.chunks)
        ]
        alone = len(runs) == 1 and not transfer.reduce and len(touching) == 1
        if alone and not self._passes_on:
            return runs[0]
        message = self._room(transfer.elements)
        if reduced or not transfer.reduce:
            settling += self._settle(runs, message, reduce=reduced)
        else:  # chunk by chunk: some are there already, others take their place
            chunks = [self._memory.of(chunk) for chunk in transfer.chunks]
            parts = torch.split(message, [chunk.numel() for chunk in chunks])
            for number, chunk, part in zip(transfer.chunks, chunks, parts, strict=True):
                settling += self._settle([chunk], part, reduce=number not in fresh)
        fresh.difference_update(transfer.chunks)
        return message

    def _room(self, elements: int) -> Tensor:
        """Room for a message that can't lie where its chunks do, used anew in other rounds."""
        for room in self._rooms:
            if room.numel() == elements and not any(room is each for each in self._taken):
                break
        else:
            room = self._memory.flat.new_empty(elements)
            self._rooms.append(room)
        self._taken.append(room)
        return room

    def _settle(self, runs: Sequence[Tensor], message: Tensor, *, reduce: bool) -> list[Act]:
        parts = torch.split(message, [run.numel() for run in runs])
        return [
            partial(self._combine, run, part, out=run) if reduce else partial(run.copy_, part)
            for run, part in zip(runs, parts, strict=True)
        ]

    def _posting(
        self, out: Sequence[tuple[int, Tensor]], into: Sequence[tuple[int, Tensor]]
    ) -> Callable[[], list[Any]]:
        """Posts all receives, then all sends; on a GPU as one launch."""

        def wire(tensor: Tensor) -> Tensor:
            return tensor if tensor.dtype in _SENT_AS_IT_IS else tensor.view(torch.uint8)

        if self._device != "cpu":
            batch = [dist.P2POp(dist.irecv, wire(tensor), peer) for peer, tensor in into]
            batch += [dist.P2POp(dist.isend, wire(tensor), peer) for peer, tensor in out]
            return partial(dist.batch_isend_irecv, batch)
        calls = [partial(dist.irecv, wire(tensor), peer) for peer, tensor in into]
        calls += [partial(dist.isend, wire(tensor), peer) for peer, tensor in out]
        return lambda: [call() for call in calls]

    # ------------------------------------------------------------------------ preparing its memory

    def _load(self) -> None:
        """The memory, and what was held at the start."""
        schedule, rank, spec = self._schedule, self._rank, self._spec
        op, given, dtype = ops.REGISTRY[spec.op], schedule.given(rank), torch_dtype(spec)
        self._memory = Memory(schedule.sizes, self._order(), dtype, self._device)
        self._given = Memory(schedule.sizes, given, dtype, self._device)
        if given:
            pieces = held_before(op, rank, spec)
            flat = [piece.reshape(-1).to(self._device) for piece in pieces]
            torch.cat(flat, out=self._given.flat)
        # What is sent of the start has memory of its own where that is multiplied first.
        self._original = self._given
        if spec.reduce_op == "premul_sum":
            self._original = Memory(schedule.sizes, given, dtype, self._device)
        # What lies where results come to, so that a gap shows beside data of the user's own.
        self._blank: dict[int, Tensor] = {}
        due = schedule.due(rank)
        if due and not op.is_in_place(spec) and (spec.values, spec.fill) != (None, None):
            recv = make_buffers(op, rank, spec, self._device).recv
            self._blank = {chunk: each.reshape(-1) for chunk, each in zip(due, recv, strict=True)}

    def _order(self) -> Sequence[int]:
        """How chunks lie: those of one tensor in a row, others so that little needs packing."""
        schedule, rank = self._schedule, self._rank
        if schedule.goal.whole:
            return range(schedule.sizes.chunks)
        messages = [each for role in self._roles for each in (*role.sends, *role.receives)]
        there = {*schedule.given(rank), *schedule.due(rank)}
        there |= {chunk for role in self._roles for chunk in role.arrived}
        there |= {chunk for each in messages for chunk in each.chunks}
        row = sorted(there)

        def packed(order: Sequence[int]) -> int:
            """Elements of the messages whose chunks don't lie in a row."""
            place = {chunk: at for at, chunk in enumerate(order)}
            return sum(
                each.elements
                for each in messages
                if any(place[b] != place[a] + 1 for a, b in pairwise(each.chunks))
            )

        cuts = (bisect_left(row, start) for start in (0, rank, schedule.root))
        return min(([*row[cut:], *row[:cut]] for cut in cuts), key=packed)

    def _multiplying(self) -> list[Act]:
        """Before the first round: ``premul_sum`` multiplies."""
        if self._spec.reduce_op != "premul_sum":
            return []
        factor, flat = self._spec.factor, self._memory.flat
        return [
            partial(torch.mul, flat, factor, out=flat),
            partial(torch.mul, self._given.flat, factor, out=self._original.flat),
        ]

    def _dividing(self) -> list[Act]:
        """After the last round: ``avg`` divides what this rank must hold."""
        if self._spec.reduce_op != "avg" or self._schedule.n == 1:
            return []
        runs = self._memory.runs(self._schedule.due(self._rank))
        return [partial(run.div_, self._schedule.n) for run in runs]


def _all(acts: Iterable[Act]) -> None:
    for act in acts:
        act()
