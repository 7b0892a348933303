"""What every rank of a traced run does: play the schedule, and keep what is there in between."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
import torch.distributed

from distdemo import ops
from distdemo.demo.records import Verification
from distdemo.demo.verify import verify
from distdemo.ops.buffers import Expected, expected
from distdemo.trace.memory import Numbers, first_numbers
from distdemo.trace.plans import divides, plan_for, steps_of
from distdemo.trace.runner import Runner
from distdemo.trace.tracing import Moment, RankTrace, TraceSpec, WrongChunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distdemo.launcher.rank import Rank
    from distdemo.trace.algorithms.plan import Plan

SIGN_OF_LIFE = 0.5  # seconds between two of them


def trace(rank: Rank, spec: TraceSpec) -> RankTrace:
    """Collective: run the schedule on this rank, and say what it held after each round.

    It is run twice. The second time is kept: in the first the connections are made and memory is
    touched for the first time, and the picture is not to be one of that.

    Args:
        rank: this rank of the world; all of the world take part.
        spec: the same on all ranks.
    """
    plan = plan_for(spec)
    runner = Runner(rank.rank, plan, spec.op, rank.device, steps=steps_of(spec, plan))
    name = f"{spec.algorithm} {spec.op.op}"
    rank.reach(f"entered {name}")
    _connect(rank)
    runner.reset()
    runner.run()
    record = Record(rank, runner, plan, spec)
    runner.reset()
    rank.synchronize()
    rank.meet(f"the start of {name}")
    runner.run(record)
    rank.reach(f"left {name}")
    return record.finished()


def _connect(rank: Rank) -> None:
    """Collective: NCCL wants all ranks in the first call; in a round there may be only some."""
    if rank.device != "cpu":
        torch.distributed.all_reduce(torch.zeros(1, device=rank.device))


class Record:
    """Notes of one rank; called by its runner at the start and after each round.

    Args:
        rank: this rank.
        runner: what runs.
        plan: of it.
        spec: of the run.
    """

    def __init__(self, rank: Rank, runner: Runner, plan: Plan, spec: TraceSpec) -> None:
        self._rank, self._runner, self._plan, self._spec = rank, runner, plan, spec
        self._start: dict[int, Numbers] = {}
        self._values: list[dict[int, Numbers]] = []
        self._moments: list[Moment] = []
        self._began = self._told = time.perf_counter()

    def __call__(self, number: int) -> None:
        """Round ``number`` has ended; 0: the first one is about to begin."""
        self._rank.synchronize()
        now = time.perf_counter()
        if now - self._told > SIGN_OF_LIFE:
            self._rank.tell(None)
            self._told = now
        if number == 0:
            self._start = self._numbers(self._runner.chunks())
        else:
            self._keep(number, now)
        self._began = time.perf_counter()

    def _keep(self, number: int, now: float) -> None:
        role = self._runner.roles[number - 1]
        busy = bool(role.sends or role.receives)
        self._moments.append(Moment(self._began if busy else now, now))
        changed = set(role.arrived)
        if number == len(self._runner.roles) and divides(self._spec.op):
            changed |= set(self._plan.due(self._rank.rank))
        self._values.append(self._numbers(sorted(changed & set(self._runner.chunks()))))

    def _numbers(self, chunks: Iterable[int]) -> dict[int, Numbers]:
        return {chunk: first_numbers(self._runner.place(chunk)) for chunk in chunks}

    def finished(self) -> RankTrace:
        """All of it, with the result verified."""
        rank, runner, spec = self._rank.rank, self._runner, self._spec.op
        wanted = expected(ops.REGISTRY[spec.op], rank, spec)
        verification = verify(runner.result(), wanted)
        return RankTrace(
            rank,
            self._start,
            tuple(self._values),
            tuple(self._moments),
            runner.sent,
            runner.received,
            runner.messages,
            verification,
            tuple(wrong_chunks(rank, self._plan, runner, wanted or [], verification)),
        )


def wrong_chunks(
    rank: int, plan: Plan, runner: Runner, wanted: list[Expected], verification: Verification
) -> Iterator[WrongChunk]:
    """Each chunk that this rank has to have and has not, or that holds something else.

    Args:
        rank: this one.
        plan: says which.
        runner: has run.
        wanted: the pieces of the result.
        verification: of the result; where it is right, nothing is compared again.
    """
    here = runner.chunks()
    for chunk, right in _by_chunk(rank, plan, wanted):
        if not right.tensor.numel():
            continue
        if chunk not in here:
            yield WrongChunk(rank, chunk, None, None, first_numbers(right.tensor)[0])
        elif not verification.ok:
            for miss in verify([here[chunk]], [right]).mismatches[:1]:
                yield WrongChunk(rank, chunk, miss.index[0], miss.got, miss.expected)


def _by_chunk(rank: int, plan: Plan, wanted: list[Expected]) -> Iterator[tuple[int, Expected]]:
    """What each due chunk should hold: of one dimension, with its bound."""
    for place, chunk in enumerate(plan.due(rank)):
        whole = wanted[0 if plan.task.whole else place]
        tensor, bound = whole.tensor.reshape(-1), whole.bound
        first, end = 0, tensor.numel()
        if plan.task.whole:
            first, end = plan.sizes.before(chunk), plan.sizes.before(chunk + 1)
        cut = None if bound is None else bound.reshape(-1)[first:end]
        yield chunk, Expected(tensor[first:end], cut)
