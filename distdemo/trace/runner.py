"""A schedule on one real rank: isend and irecv of torch.distributed, and reductions of what came.

All memory, and every message, is prepared beforehand. What is then done in a round is what a loop
that somebody wrote by hand would do: pack what does not lie in a row, post all receives and sends,
wait for all of them, reduce. All are posted before any is waited for, so no size can deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from distdemo import ops
from distdemo.ops.buffers import held_before, make_buffers, poison, torch_dtype
from distdemo.ops.reduction import REDUCTIONS
from distdemo.trace.memory import Memory, ordered
from distdemo.trace.plans import divides
from distdemo.trace.roles import roles
from distdemo.trace.rounds import Act, Rounds

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from distdemo.ops.spec import OpSpec
    from distdemo.trace.algorithms.plan import Plan
    from distdemo.trace.scheduling import Step


class Runner:
    """One rank, ready to run a schedule as often as one likes.

    ``reset`` has to come before the first run. A run goes on from what the memory holds by then.

    Args:
        rank: this one, in the group.
        plan: what all ranks have to do.
        spec: the op, with dtype, shape, reduce op and root.
        device: where the tensors are.
        group: of the ranks; None: the whole world.
        steps: others than the plan's own, as with a fault: then also what was never filled is sent.

    Attributes:
        roles: what this rank does in each round.
        sent: bytes that one run hands to the backend to be sent.
        received: bytes of the room that it hands over to be filled.
        messages: how many of them are sent.

    Raises:
        ScheduleError: a rank sends a chunk that it does not have.
    """

    def __init__(  # noqa: PLR0913 - what the run depends on
        self,
        rank: int,
        plan: Plan,
        spec: OpSpec,
        device: str,
        *,
        group: ProcessGroup | None = None,
        steps: Iterable[Step] | None = None,
    ) -> None:
        self._rank, self._plan, self._spec, self._device = rank, plan, spec, device
        self.roles = tuple(roles(rank, plan, steps))
        self._load()
        combine = getattr(torch, REDUCTIONS[spec.reduce_op or "sum"].torch_combine)
        rounds = Rounds(self._memory, self._original, combine, group)
        self._rounds = [rounds.add(role) for role in self.roles]
        self._busy = [play for play in self._rounds if play is not None]
        self._before, self._after = self._multiplying(), self._dividing()
        self.sent, self.received = rounds.sent, rounds.received
        self.messages = rounds.messages
        self._in_the_end = self._after_rounds(len(self.roles))
        self._held: frozenset[int] = frozenset(plan.given(rank))

    # ------------------------------------------------------------------------------ running it

    def reset(self) -> None:
        """Hold again what was held at the start; all else is poison. Not to be timed."""
        given = self._plan.given(self._rank)
        poison(self._memory.flat)
        for chunk, content in self._blank.items():
            self._memory.of(chunk).copy_(content)
        for chunk in given:
            self._memory.of(chunk).copy_(self._given.of(chunk))
        self._held = frozenset(given)

    def run(self, note: Callable[[int], None] | None = None) -> None:
        """Collective: all rounds.

        Args:
            note: called when the first round begins, with 0, and after each with its number, when
                its data is in place; on a device, when that is under way.
        """
        for act in self._before:
            act()
        if note is None:
            for play in self._busy:
                play()
        else:
            self._play_each(note)
        for act in self._after:
            act()
        self._held = self._in_the_end
        if note is not None and self._rounds:
            note(len(self._rounds))

    def _play_each(self, note: Callable[[int], None]) -> None:
        self._held = self._after_rounds(0)
        note(0)
        for number, (role, play) in enumerate(zip(self.roles, self._rounds, strict=True), 1):
            if play is not None:
                play()
            self._held = self._held.difference(role.gone).union(role.arrived)
            if number < len(self._rounds):  # the last one ends with what comes after it
                note(number)

    # ------------------------------------------------------------------------- looking at it

    def chunks(self) -> dict[int, Tensor]:
        """The chunks that are here now, as they are: views of one dimension."""
        return {chunk: self._memory.of(chunk) for chunk in sorted(self._held)}

    def place(self, chunk: int) -> Tensor:
        """Where a chunk lies that this rank has to have at any time, whatever is there now."""
        return self._memory.of(chunk)

    def result(self) -> list[Tensor]:
        """The pieces of the op's result, as its ``expected`` has them: views."""
        due, shape = self._plan.due(self._rank), self._spec.shape
        if not due:
            return []
        if self._plan.task.whole:
            return [self._memory.flat.view(shape)]
        return [self._memory.of(chunk).view(shape) for chunk in due]

    # -------------------------------------------------------------------------- preparing it

    def _load(self) -> None:
        """The memory, and what was held at the start."""
        plan, rank, spec = self._plan, self._rank, self._spec
        order, given, dtype = self._order(), plan.given(rank), torch_dtype(spec)
        self._memory = Memory(plan.sizes, order, dtype, self._device)
        self._given = Memory(plan.sizes, given, dtype, self._device)
        if given:
            pieces = held_before(ops.REGISTRY[spec.op], rank, spec)
            torch.cat(
                [piece.reshape(-1).to(self._device) for piece in pieces], out=self._given.flat
            )
        self._original = self._originals()
        self._blank = self._blanks()

    def _order(self) -> Sequence[int]:
        """How chunks lie: those of one tensor in a row, others so that little needs packing."""
        plan, rank = self._plan, self._rank
        if plan.task.whole:
            return range(plan.sizes.chunks)
        messages = [each for role in self.roles for each in (*role.sends, *role.receives)]
        there = {*plan.given(rank), *plan.due(rank)}
        there |= {chunk for role in self.roles for chunk in role.arrived}
        there |= {chunk for each in messages for chunk in each.chunks}
        sizes = [(each.chunks, each.elements) for each in messages]
        return ordered(there, sizes, (0, rank, plan.root))

    def _originals(self) -> Memory:
        """What is sent of the start; memory of its own where that is multiplied first."""
        sent = any(each.original for role in self.roles for each in role.sends)
        if not sent or self._spec.reduce_op != "premul_sum":
            return self._given
        given = self._plan.given(self._rank)
        return Memory(self._plan.sizes, given, self._given.flat.dtype, self._device)

    def _blanks(self) -> dict[int, Tensor]:
        """What lies where results come to, so that a gap shows beside data of the user's own."""
        op, spec = ops.REGISTRY[self._spec.op], self._spec
        if op.is_in_place(spec) or (spec.values is None and spec.fill is None):
            return {}
        due = self._plan.due(self._rank)
        pieces = make_buffers(op, self._rank, spec, self._device).recv if due else []
        return {chunk: piece.reshape(-1) for chunk, piece in zip(due, pieces, strict=True)}

    def _multiplying(self) -> list[Act]:
        """Before the first round: ``premul_sum`` multiplies."""
        if self._spec.reduce_op != "premul_sum":
            return []
        flat, factor = self._memory.flat, self._spec.factor
        acts: list[Act] = [partial(torch.mul, flat, factor, out=flat)]
        if self._original is not self._given:
            source = self._given.flat
            acts.append(partial(torch.mul, source, factor, out=self._original.flat))
        return acts

    def _dividing(self) -> list[Act]:
        """After the last round: ``avg`` divides what this rank has to hold."""
        if not divides(self._spec):
            return []
        runs = self._memory.runs(self._plan.due(self._rank))
        return [partial(run.div_, self._plan.n) for run in runs]

    def _after_rounds(self, count: int) -> frozenset[int]:
        held = frozenset(self._plan.given(self._rank))
        for role in self.roles[:count]:
            held = held.difference(role.gone).union(role.arrived)
        return held
