"""What every rank of ``trace compare`` runs: all candidates in turn, size after size.

A rank tells its own part when a size is done; the launcher (``compare``) puts the parts together.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from distdemo import ops
from distdemo.bench.timing import CommonStart, common_start, undisturbed
from distdemo.demo.verify import verify
from distdemo.ops.buffers import expected, make_buffers
from distdemo.trace import algorithms
from distdemo.trace.compare.compare import LINK
from distdemo.trace.rank import Runner

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank
    from distdemo.ops.spec import OpSpec
    from distdemo.trace.compare.records import ComparisonSpec

Call = Callable[[], object]
FEWEST = 5  # turns, also where the budget does not reach
LONGEST = 5.0  # times the budget, beyond which even the fewest end
MOST = 10_000  # turns


@dataclass(frozen=True, slots=True)
class Entry:
    """One candidate, as one rank saw it.

    Attributes:
        times: seconds, one a run; of an ``array("d")``.
        checked: elements that were compared.
        wrong: of these.
        sent_bytes: that one run handed to the backend to be sent.
    """

    times: bytes
    checked: int = 0
    wrong: int = 0
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SizeDone:
    """What a rank found at one size: of the backend's own call if it runs, and each algorithm.

    At the place ``LINK`` of the small and the large message.
    """

    place: int
    entries: tuple[Entry, ...]


def compare_on_rank(
    rank: Rank, spec: ComparisonSpec, own: bool, messages: Sequence[int], crowded: bool
) -> None:
    """Collective: the link where it is to be measured, then size after size.

    Args:
        rank: this rank of the world.
        spec: what is compared.
        own: the backend's own call runs, too.
        messages: bytes of the two messages that the link is measured with; none: it is not.
        crowded: there are more ranks than cores.
    """
    # Where ranks share cores they meet at the group's barrier, in which a rank sleeps. To look and
    # offer the core between two looks makes the scheduler pass over a rank later: with 4 ranks on 2
    # cores (Linux 6.18) an all_reduce of 1 KiB by doubling took 4.0 ms then, a slice of the
    # scheduler's, and 0.4 ms after a barrier.
    start = CommonStart(rank, None) if crowded else common_start(rank)
    rank.reach("ready")
    if messages:
        calls = [_exchange(rank, size) for size in messages]
        times = time_in_turn(rank, start, "link", calls, spec.budget_s / 2)
        rank.tell(SizeDone(LINK, tuple(Entry(each.tobytes()) for each in times)))
    for place, op in enumerate(spec.ops):
        rank.reach(f"size {place + 1} of {len(spec.ops)}")
        rank.tell(SizeDone(place, _at_size(rank, start, place, op, spec, own=own)))
    rank.reach("done")
    start.meet()


def _at_size(  # noqa: PLR0913 - what it depends on
    rank: Rank, start: CommonStart, place: int, op: OpSpec, spec: ComparisonSpec, *, own: bool
) -> tuple[Entry, ...]:
    """Collective: verify, warm up, time.

    All candidates have their memory before any has run, and each is verified after its first run:
    nothing that it had to write was ever right before.
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
        runner = Runner(rank.rank, algorithms.schedule(op, name, spec.chunks), op, rank.device)
        runner.reset()
        calls.append(runner.run)
        results.append(runner.result)
        sent.append(runner.sent_bytes)
    for call in calls:
        start.meet()
        call()
        rank.synchronize()
    wanted = expected(ops.REGISTRY[op.op], rank.rank, op)  # once for all candidates
    found = [verify(result(), wanted) for result in results]
    del wanted
    times = time_in_turn(rank, start, str(place), calls, spec.budget_s)
    columns = zip(times, found, sent, strict=True)
    return tuple(
        Entry(each.tobytes(), check.checked, check.wrong, handed) for each, check, handed in columns
    )


def _exchange(rank: Rank, size: int) -> Call:
    """Ranks 0 and 1 send each other a message of this many bytes; the others are still."""
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


def time_in_turn(
    rank: Rank, start: CommonStart, name: str, calls: Sequence[Call], budget_s: float
) -> list[array[float]]:
    """Collective: run all calls in turn until time is up: A B C, B C A, C A B, ...

    So all of them meet the same machine, whatever else it does meanwhile, and none always comes
    after the slowest. How often is not fixed: rank 0 looks at the clock now and then, and tells
    all. Each is run once before, to warm up.

    Args:
        rank: this rank.
        start: brings the ranks to a common start.
        name: that no other measurement of the world has.
        calls: the same ones in the same order on every rank.
        budget_s: seconds.

    Returns:
        Seconds that this rank needed, an entry a turn, of each call.
    """

    def timed(call: Call) -> float:
        rank.synchronize()
        start.meet()
        began = perf_counter()
        call()
        rank.synchronize()
        return perf_counter() - began

    took = [array("d") for _ in calls]
    for call in calls:
        timed(call)
    store = rank.store("turns")
    began, turn = perf_counter(), 0
    while True:
        if rank.rank == 0:
            store.set(f"{name}/{turn}", str(more_turns(turn, perf_counter() - began, budget_s)))
        count = int(store.get(f"{name}/{turn}"))
        if not count:
            return took
        with undisturbed():
            for each in range(turn, turn + count):
                for place in range(len(calls)):
                    number = (each + place) % len(calls)
                    took[number].append(timed(calls[number]))
        turn += count


def more_turns(turns: int, seconds: float, budget_s: float) -> int:
    """How many turns to run before the next look at the clock; 0: none.

    Args:
        turns: run by now.
        seconds: that they took.
        budget_s: seconds.
    """
    if not turns:
        return 1
    pace = max(seconds / turns, 1e-9)
    if turns < FEWEST:
        return max(0, min(FEWEST - turns, int((LONGEST * budget_s - seconds) / pace)))
    return max(0, min(turns, MOST - turns, int((budget_s - seconds) / pace)))
