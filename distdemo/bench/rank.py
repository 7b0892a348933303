"""What every rank of ``bench`` runs: the visits of a launch, each told when it is done.

What a rank tells is its own part; the controller puts the ranks' parts together.

The data of a visit are buffers of any size, filled and verified in blocks that stay in cache. What
an element holds follows from its label and its position as everywhere (``ops.values``), with
positions counted modulo a prime, the period. So the values of one period are computed, and what a
period of the result should be, by the same plain arithmetic as in the demo; all the rest is copied
from it and compared with it. An element that comes from another rank, or from a position that is
off by anything but a multiple of the period, shows as before; and no transport cuts a tensor at
such multiples, unless its own length is one, which ``values.period`` sees to.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from distdemo import ops
from distdemo.bench.limits import measure_limits
from distdemo.bench.plan import Key, Visit, Visits, count_for
from distdemo.bench.records import Alignment, BenchSpec, Harness, Limit, Overlap
from distdemo.bench.statistics import median
from distdemo.bench.timing import Times, common_start, harness, timed
from distdemo.demo.part import Groups, inference, part_of
from distdemo.demo.verify import verify
from distdemo.launcher.clock import HOST
from distdemo.ops.buffers import Expected, cuts_of, laid_out, poison, reduced, tensors
from distdemo.ops.contract import Cut, Undefined, handles
from distdemo.ops.values import period

if TYPE_CHECKING:
    from torch import Tensor

    from distdemo.launcher.rank import Rank
    from distdemo.ops.contract import Buffers, Op
    from distdemo.ops.spec import OpSpec

MEETINGS = 100  # with which the cost of a common start is found
TRIALS = 7  # iterations of each kind for the overlap
GRAIN = 2048  # elements of the tensor that is computed on: it stays in the first cache
PROBE = 200  # repetitions with which the speed of the computing is found
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


@dataclass(frozen=True, slots=True)
class Ready:
    """What one rank found before the first visit of a launch that calibrates."""

    alignment: Alignment
    harness: Harness
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one rank found in one visit.

    Attributes:
        arrived: when it came to each start; an ``array("d")``, as are the next two.
        started: when it was let go.
        took: how long each call took.
        clock: what timed the calls.
        checked: elements that were compared.
        wrong: how many of them were wrong.
        overlap: what computing hides of the call; None unless that was asked for.
    """

    visit: Visit
    arrived: bytes
    started: bytes
    took: bytes
    clock: str = HOST
    checked: int = 0
    wrong: int = 0
    overlap: Overlap | None = None


def bench(rank: Rank, spec: BenchSpec, visits: Visits) -> None:
    """Collective: make the visits, and tell what came of each visit.

    Args:
        rank: this rank of the world.
        spec: what is measured.
        visits: of this launch.
    """
    start = common_start(rank)
    rank.reach("ready")
    if visits[0].launch == 0:
        limits = measure_limits(rank) if spec.limits else ()
        rank.reach("measured the machine")
        began = perf_counter()
        for _ in range(MEETINGS):
            start.meet()
        meeting = (perf_counter() - began) / MEETINGS
        rank.tell(Ready(Alignment(start.way, meeting), harness(), limits))
    groups = Groups(rank.backend)
    paces: dict[Key, float] = {}
    for visit in visits:
        series = spec.series[visit.series]
        rank.reach(series.named(series.sizes_bytes[visit.point]))
        rank.tell(_measure(rank, spec, visit, start.meet, groups, paces))
    rank.reach("done")
    start.meet()


def _measure(  # noqa: PLR0913, PLR0917 - what all visits of a launch have in common
    rank: Rank,
    spec: BenchSpec,
    visit: Visit,
    meet: Callable[[], None],
    groups: Groups,
    paces: dict[Key, float],
) -> Sample:
    """Collective: verify if that is due, warm up, time.

    Args:
        rank: this rank of the world.
        spec: what is measured.
        visit: which size of it, and how often.
        meet: brings the ranks to a common start.
        groups: that were made so far.
        paces: seconds of an iteration at the last visit of each size.
    """
    series, key = spec.series[visit.series], (visit.series, visit.point)
    specs = series.at(series.sizes_bytes[visit.point])
    part = part_of(rank.rank, ops.REGISTRY[series.op], specs, f"visit {visit.launch} {key}")
    group = groups.of(specs, part)
    with inference(part.spec):
        buffers = laid_out(part.op, part.rank, part.spec, rank.device)
        fill_with_ones(part.op, part.spec, buffers)
        begin = part.op.bind(buffers, part.spec, group, async_op=part.spec.async_op)
        call = _waited(begin) if part.spec.async_op else begin
        seeds = count(visit.launch * 1000)  # no launch verifies what another has
        checked = wrong = 0

        def verify() -> None:
            """Collective: one call on fresh data, and compare."""
            nonlocal checked, wrong
            fresh = replace(part.spec, seed=next(seeds))
            refill(part.op, part.rank, fresh, buffers)
            meet()
            call()
            rank.synchronize()
            if part.group is not None:  # else it has no part in any group
                counts = check(part.op, part.rank, fresh, buffers)
                checked, wrong = checked + counts[0], wrong + counts[1]

        if not visit.launch:
            verify()
        for _ in range(visit.warmup):
            meet()
            call()
        left = visit.iterations
        if not left:  # rank 0 decides
            store = rank.store("counts")
            if rank.rank == 0:
                store.set(str(visit), str(count_for(paces.get(key, 0.0), visit.seconds)))
            left = int(store.get(str(visit)))
        times = Times(array("d"), array("d"), array("d"))
        while left:
            number = min(left, spec.check_every or left)
            on_host = ops.REGISTRY[series.op].meets
            times += timed(rank, call, number, meet, on_host=on_host)
            left -= number
            if spec.check_every and visit.launch:
                verify()
        overlap = None
        if spec.overlap and series.async_op:  # also where this rank has no part in it
            found = measure_overlap(rank, begin, times.took, meet)
            overlap = found if part.group is not None else None
    paces[key] = times.pace_s
    arrived, started, took = (each.tobytes() for each in (times.arrived, times.started, times.took))
    return Sample(visit, arrived, started, took, times.clock, checked, wrong, overlap)


def _waited(begin: Callable[[], object]) -> Callable[[], object]:
    """The non-blocking call that returns when the operation is done."""

    def call() -> None:
        for work in handles(begin()):
            work.wait()

    return call


# ------------------------------------------------------------------------------------ the data


def refill(op: Op, rank: int, spec: OpSpec, buffers: Buffers) -> None:
    """Fresh data in the same buffers: inputs anew, as the spec's seed says, outputs poisoned."""
    if buffers.recv is not buffers.send:
        for tensor in buffers.recv:
            poison(tensor)
    for piece, tensor in enumerate(buffers.send):  # in place it takes the poison's place
        cut = op.cut(rank, piece, spec)
        if not cut.numel:
            continue
        once = _period(op, [cut], spec, reduce=False).tensor.to(tensor.device)
        for block in torch.split(tensor.view(-1), once.numel()):
            block.copy_(once[: block.numel()])


def fill_with_ones(op: Op, spec: OpSpec, buffers: Buffers) -> None:
    """For a launch that only times: it can't be checked."""
    for tensor in buffers.recv if op.is_in_place(spec) else (*buffers.send, *buffers.recv):
        tensor.fill_(1)


def check(op: Op, rank: int, spec: OpSpec, buffers: Buffers) -> tuple[int, int]:
    """Compare every element that this rank got with plain arithmetic.

    Data movement has to match bit for bit, a reduction by the rules of ``demo.verify``: exactly
    where the sums are exact, else within the dtype's bound.

    Returns:
        How many were compared, and how many of them were wrong. None where the op leaves the
        rank's buffer undefined.
    """
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return 0, 0
    checked = wrong = 0
    for source, tensor in zip(result, buffers.recv, strict=True):
        if tensor.numel():
            wanted = _period(op, cuts_of(op, source, spec), spec, reduce=source.reduced)
            checked += tensor.numel()
            wrong += _wrong(tensor.view(-1), wanted, bitwise=not source.reduced)
    return checked, wrong


def _period(op: Op, cuts: Sequence[Cut], spec: OpSpec, *, reduce: bool) -> Expected:
    """What the first elements of such a piece hold, as many as there are before it repeats.

    Args:
        op: whose values they are.
        cuts: of the piece; of all pieces that are reduced to it, which have one start and length.
        spec: dtype, seed and reduce op matter.
        reduce: apply the reduce op, even over a single rank.
    """
    whole = period(spec)
    first = cuts[0].start % whole
    length = min(cuts[0].numel, whole)
    before = min(length, whole - first)  # as far as the row's own period lasts
    parts = []
    for start, numel in ((first, before), (0, length - before)):
        if numel:
            window = [Cut(cut.label, (numel,), start) for cut in cuts]
            parts.append(
                reduced(op, window, spec) if reduce else Expected(tensors(op, window, spec)[0])
            )
    if len(parts) == 1:
        return parts[0]
    together = torch.cat([part.tensor for part in parts])
    if all(part.bound is None for part in parts):
        return Expected(together)
    bounds = [  # where one part is exact and the other not, all get a bound
        torch.zeros(part.tensor.shape, dtype=torch.float64) if part.bound is None else part.bound
        for part in parts
    ]
    return Expected(together, torch.cat(bounds))


def _wrong(flat: Tensor, wanted: Expected, *, bitwise: bool) -> int:
    """How many elements are not a period's, again and again."""
    once, wrong = wanted.tensor.to(flat.device), 0
    for block in torch.split(flat, once.numel()):
        numel = block.numel()
        found, should = _bits(block), _bits(once[:numel])
        if torch.equal(found, should):
            continue
        if bitwise:
            wrong += int((found != should).view(numel, -1).any(dim=1).sum())
        else:
            bound = None if wanted.bound is None else wanted.bound[:numel]
            wrong += verify([block], [Expected(wanted.tensor[:numel], bound)]).wrong
    return wrong


def _bits(tensor: Tensor) -> Tensor:
    """The same memory as whole numbers, that neither NaN nor −0 confuses."""
    return tensor.view(_BITS[tensor.element_size()])


# --------------------------------------------------------------------------------- overlap


def measure_overlap(
    rank: Rank,
    begin: Callable[[], object],
    took: Sequence[float],
    meet: Callable[[], None],
) -> Overlap:
    """Collective: how much of a non-blocking call hides behind computing that lasts as long.

    The measure of the OSU benchmarks for non-blocking collectives: the call alone, the computing
    alone, and the call with the computing between it and its wait; what the third takes beyond the
    second was not hidden (OSU Micro-Benchmarks, README, osu_iallreduce and its like).

    Args:
        rank: this rank.
        begin: makes the call and gives its handles back.
        took: how long the call took alone, seconds each.
        meet: brings all ranks to a common start.
    """
    alone = median(took)
    tensor = torch.ones(GRAIN, device=rank.device)

    def computing(repetitions: int) -> None:
        for _ in range(repetitions):
            tensor.mul_(1.0)

    computing(PROBE)
    rank.synchronize()
    began = perf_counter()
    computing(PROBE)
    rank.synchronize()
    each = (perf_counter() - began) / PROBE  # on this rank, as the others compute too
    repetitions = max(1, round(alone / each))

    def both() -> None:
        works = handles(begin())
        computing(repetitions)
        for work in works:
            work.wait()

    compute = timed(rank, lambda: computing(repetitions), TRIALS, meet)
    together = timed(rank, both, TRIALS, meet)
    return Overlap(alone, median(compute.took), median(together.took))
