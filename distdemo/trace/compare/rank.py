"""Function that every rank of ``trace compare`` runs: time all candidates, size by size.

After each size a rank sends its results; the launcher (``compare``) combines those of all ranks.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from distdemo import ops, schedules
from distdemo.measure.timing import CommonStart, common_start, undisturbed
from distdemo.ops.buffers import expected, make_buffers
from distdemo.ops.verify import verify
from distdemo.trace.compare.records import LINK
from distdemo.trace.runner import Runner

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank
    from distdemo.ops.spec import OpSpec
    from distdemo.trace.compare.records import ComparisonSpec

Call = Callable[[], object]
LEAST_TURNS = 5  # turns that run even if they exceed the budget
MOST_BUDGETS = 5.0  # multiple of the budget after which even these stop
MOST_TURNS = 10_000


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """Results of one candidate, or of one message that measures the link, on one rank.

    Attributes:
        times: Seconds of each run, as bytes of an ``array("d")``.
        checked: Number of elements compared.
        wrong: Number of wrong elements among them.
        sent_bytes: Bytes that one run handed to the backend for sending.
    """

    times: bytes
    checked: int = 0
    wrong: int = 0
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SizeResult:
    """Results of a rank at one size.

    Attributes:
        index: Index of the size, or ``LINK``.
        results: Results of the backend's own call, if it runs, and of each algorithm; for ``LINK``,
            of the small and the large message.
    """

    index: int
    results: tuple[CandidateResult, ...]


def compare_on_rank(
    rank: Rank, spec: ComparisonSpec, own: bool, messages: Sequence[int], oversubscribed: bool
) -> None:
    """Measure the link if requested, then all sizes. Collective.

    Args:
        rank: Handle of this rank.
        spec: Comparison to run.
        own: True if the backend's own call runs too.
        messages: Sizes in bytes of the two messages that measure the link; empty if it is known.
        oversubscribed: True if there are more ranks than cores.
    """
    # If ranks share cores, they start from the group's barrier, in which a rank sleeps. Polling
    # with yields makes the scheduler skip a rank later: with 4 ranks on 2 cores (Linux 6.18) an
    # all_reduce of 1 KiB by doubling then took 4.0 ms, a time slice of the scheduler, compared with
    # 0.4 ms after a barrier.
    start = CommonStart(rank, None) if oversubscribed else common_start(rank)
    rank.report_phase("ready")
    if messages:
        calls = [_exchange(rank, size) for size in messages]
        times = time_interleaved(rank, start, "link", calls, spec.budget_s / 2)
        rank.send(SizeResult(LINK, tuple(CandidateResult(each.tobytes()) for each in times)))
    for index, op in enumerate(spec.ops):
        rank.report_phase(f"size {index + 1} of {len(spec.ops)}")
        rank.send(SizeResult(index, _at_size(rank, start, index, op, spec, own=own)))
    rank.report_phase("done")
    start.align()


def _at_size(  # noqa: PLR0913 - the parts of one measurement
    rank: Rank, start: CommonStart, index: int, op: OpSpec, spec: ComparisonSpec, *, own: bool
) -> tuple[CandidateResult, ...]:
    """Verify, warm up and time all candidates at one size. Collective.

    Memory of all candidates is allocated before the first one runs. Each is verified after its
    first run, when no earlier run can have left correct results in its memory.
    """
    calls: list[Call] = []
    results: list[Callable[[], list[Tensor]]] = []
    sent: list[int] = []
    if own:
        collective = ops.REGISTRY[op.op]
        buffers = make_buffers(collective, rank.rank, op, rank.device)
        calls.append(collective.bind(buffers, op, None, async_op=False))
        results.append(lambda: buffers.recv)
        sent.append(0)
    for name in spec.algorithms:
        runner = Runner(rank.rank, schedules.schedule(op, name, spec.chunks), op, rank.device)
        runner.reset()
        calls.append(runner.run)
        results.append(runner.result)
        sent.append(runner.sent_bytes)
    for call in calls:
        start.align()
        call()
        rank.synchronize()
    wanted = expected(ops.REGISTRY[op.op], rank.rank, op)  # once for all candidates
    checks = [verify(result(), wanted) for result in results]
    del wanted
    times = time_interleaved(rank, start, str(index), calls, spec.budget_s)
    columns = zip(times, checks, sent, strict=True)
    return tuple(
        CandidateResult(each.tobytes(), check.checked, check.wrong, handed)
        for each, check, handed in columns
    )


def _exchange(rank: Rank, size: int) -> Call:
    """Return a call in which ranks 0 and 1 exchange messages of this size; other ranks are idle."""
    import torch
    import torch.distributed as dist

    if rank.rank > 1:
        return lambda: None
    send, recv = (torch.zeros(size, dtype=torch.uint8, device=rank.device) for _ in range(2))
    peer = 1 - rank.rank
    both = [dist.P2POp(dist.isend, send, peer), dist.P2POp(dist.irecv, recv, peer)]

    def exchange() -> None:
        for work in dist.batch_isend_irecv(both):
            work.wait()

    return exchange


# ------------------------------------------------------------------------------------------ timing


def time_interleaved(
    rank: Rank, start: CommonStart, name: str, calls: Sequence[Call], budget_s: float
) -> list[array[float]]:
    """Run all calls interleaved until the budget is spent: A B C, B C A, C A B, ... Collective.

    Interleaving exposes all calls to the same other load on the machine, and rotation avoids that
    one of them always follows the slowest. Rank 0 checks the clock and sets the number of turns.

    Args:
        rank: Handle of this rank.
        start: Common start of the ranks.
        name: Name of the measurement, unique in the world.
        calls: Calls to time, in the same order on every rank.
        budget_s: Seconds to spend.

    Returns:
        Seconds of each call on this rank, one entry per turn.
    """
    times = [array("d") for _ in calls]
    store = rank.store("turns")

    def run(turns: int) -> float:
        """Run this number of turns, and return the seconds per turn."""
        first, began = len(times[0]), perf_counter()
        with undisturbed():
            for turn in range(first, first + turns):
                for offset in range(len(calls)):
                    index = (turn + offset) % len(calls)
                    rank.synchronize()
                    start.align()
                    called = perf_counter()
                    calls[index]()
                    rank.synchronize()
                    times[index].append(perf_counter() - called)
        return (perf_counter() - began) / max(turns, 1)

    def from_rank_0(key: str, turns: float) -> int:
        """Return rank 0's number of turns on every rank."""
        if rank.rank == 0:
            store.set(f"{name}/{key}", str(max(0, min(MOST_TURNS, int(turns)))))
        return int(store.get(f"{name}/{key}"))

    pace_s = run(1)
    for each in times:
        each.pop()  # the warm-up
    least = from_rank_0("least", max(1, min(LEAST_TURNS, MOST_BUDGETS * budget_s / pace_s)))
    pace_s = run(least)
    run(from_rank_0("rest", budget_s / pace_s - least))
    return times
