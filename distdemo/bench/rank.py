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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from distdemo import ops
from distdemo.bench.limits import measure_limits
from distdemo.bench.plan import Key, LaunchPlan, Visit, count_for
from distdemo.bench.records import BenchSpec, Harness, Limit, Overlap, Start
from distdemo.bench.statistics import median
from distdemo.bench.timing import Times, common_start, harness, timed
from distdemo.demo.part import Groups, Part, inference, part_of
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
COARSE = 1 << 19  # the same for a call that lasts so long that it would take too many of these
LONG_S = 0.02
PROBE = 200  # repetitions with which the speed of the computing is found
GPU_PERIODS = 256  # that a GPU compares at once; a core takes one, which stays in its cache
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}


@dataclass(frozen=True, slots=True)
class Ready:
    """What one rank found before the first visit.

    Attributes:
        start: how the ranks are brought to a common start.
        meeting_s: what that takes; None unless it was asked for, like the two below.
    """

    start: Start
    meeting_s: float | None = None
    harness: Harness | None = None
    limits: tuple[Limit, ...] = ()


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


def bench(rank: Rank, spec: BenchSpec, plan: LaunchPlan) -> None:
    """Collective: carry out the plan, and tell what came of each visit.

    Args:
        rank: this rank of the world.
        spec: what is measured.
        plan: of this launch.
    """
    start = common_start(rank)
    rank.reach("ready")
    ready = Ready(start.way)
    found = measure_limits(rank) if plan.limits else ()
    rank.reach("measured the machine")
    if plan.harness:
        began = perf_counter()
        for _ in range(MEETINGS):
            start.meet()
        meeting = (perf_counter() - began) / MEETINGS
        ready = Ready(start.way, meeting, harness(), found)
    rank.tell(ready)
    bench_rank = _BenchRank(rank, spec, start.meet)
    for visit in plan.visits:
        series = spec.series[visit.series]
        rank.reach(series.named(series.sizes_bytes[visit.point]))
        rank.tell(bench_rank.measure(visit))
    rank.reach("done")
    start.meet()


class _BenchRank:
    """What all visits of a launch have in common.

    Args:
        meet: brings the ranks to a common start.
    """

    def __init__(self, rank: Rank, spec: BenchSpec, meet: Callable[[], None]) -> None:
        self._rank = rank
        self._spec = spec
        self._meet = meet
        self._groups = Groups(rank.backend)
        self._paces: dict[Key, float] = {}  # seconds of an iteration at the last visit

    def measure(self, visit: Visit) -> Sample:
        """Collective: verify if that is due, warm up, time."""
        series = self._spec.series[visit.series]
        specs = series.at(series.sizes_bytes[visit.point])
        place = f"visit {visit.launch} {visit.series} {visit.point}"
        part = part_of(self._rank.rank, ops.REGISTRY[series.op], specs, place)
        group = self._groups.of(specs, part)
        with inference(part.spec):
            check = _Check(part, first_seed=visit.launch * 1000)
            verifies = visit.verify or bool(self._spec.check_every)
            buffers = laid_out(part.op, part.rank, part.spec, self._rank.device)
            if verifies:
                check.refill(buffers)
            else:
                fill_with_ones(part.op, part.spec, buffers)
            begin = part.op.bind(buffers, part.spec, group, async_op=part.spec.async_op)
            call = _waited(begin) if part.spec.async_op else begin
            if visit.verify:
                self._verify(check, buffers, call)
            for _ in range(visit.warmup):
                self._meet()
                call()
            times = self._timed(visit, check, buffers, call)
            overlap = None
            if self._spec.overlap and series.async_op:  # also where this rank has no part in it
                found = measure_overlap(self._rank, begin, times.took, self._meet)
                overlap = found if part.group is not None else None
        self._paces[visit.series, visit.point] = times.pace_s
        return Sample(
            visit,
            times.arrived.tobytes(),
            times.started.tobytes(),
            times.took.tobytes(),
            times.clock,
            check.checked,
            check.wrong,
            overlap,
        )

    def _timed(
        self, visit: Visit, check: _Check, buffers: Buffers, call: Callable[[], object]
    ) -> Times:
        """Collective: all iterations, verified in between if that was asked for."""
        left, every = self._count(visit), self._spec.check_every
        on_host = ops.REGISTRY[self._spec.series[visit.series].op].meets
        arrived, started, took = array("d"), array("d"), array("d")
        clock = HOST
        while left:
            count = min(left, every or left)
            times = timed(self._rank, call, count, self._meet, on_host=on_host)
            arrived += times.arrived
            started += times.started
            took += times.took
            clock = times.clock
            left -= count
            if every and visit.launch:
                check.refill(buffers)
                self._verify(check, buffers, call)
        return Times(arrived, started, took, clock)

    def _verify(self, check: _Check, buffers: Buffers, call: Callable[[], object]) -> None:
        """Collective: one call on the fresh data that the buffers hold, and compare."""
        self._meet()
        call()
        self._rank.synchronize()
        check.compare(buffers)

    def _count(self, visit: Visit) -> int:
        """Collective: how many iterations are timed; rank 0 decides where the plan does not."""
        if visit.iterations:
            return visit.iterations
        store, place = self._rank.store("counts"), str(visit)
        if self._rank.rank == 0:
            pace = self._paces.get((visit.series, visit.point), 0.0)
            store.set(place, str(count_for(pace, visit.seconds)))
        return int(store.get(place))


def _waited(begin: Callable[[], object]) -> Callable[[], object]:
    """The non-blocking call that returns when the operation is done."""

    def call() -> None:
        for work in handles(begin()):
            work.wait()

    return call


# ------------------------------------------------------------------------------------ the data


class _Check:
    """Fresh data for one rank's part, and what came of comparing it."""

    def __init__(self, part: Part, first_seed: int) -> None:
        self._part = part
        self._seed = first_seed  # no launch verifies what another has
        self.checked = self.wrong = 0

    def refill(self, buffers: Buffers) -> None:
        """Fill with values that the buffers have not held before."""
        self._seed += 1
        refill(self._part.op, self._part.rank, self._spec(), buffers)

    def compare(self, buffers: Buffers) -> None:
        """Count the elements that are not what they should be after one call."""
        if self._part.group is not None:  # else it has no part in any group
            checked, wrong = check(self._part.op, self._part.rank, self._spec(), buffers)
            self.checked += checked
            self.wrong += wrong

    def _spec(self) -> OpSpec:
        return replace(self._part.spec, seed=self._seed)


def refill(op: Op, rank: int, spec: OpSpec, buffers: Buffers) -> None:
    """Fresh data in the same buffers: inputs anew, as the spec's seed says, outputs poisoned."""
    if buffers.recv is not buffers.send:
        for tensor in buffers.recv:
            poison(tensor)
    for piece, tensor in enumerate(buffers.send):  # in place it takes the poison's place
        cut = op.cut(rank, piece, spec)
        if not cut.numel:
            continue
        flat, once = tensor.view(-1), _period(op, [cut], spec, reduce=False).tensor
        once = once.to(flat.device)
        whole = flat.numel() // once.numel() * once.numel()
        flat[:whole].view(-1, once.numel()).copy_(once)
        flat[whole:].copy_(once[: flat.numel() - whole])


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
    bits = _bits(wanted.tensor.to(flat.device))
    wrong = 0
    for block in _blocks(flat, wanted.tensor.numel()):
        found = _bits(block)
        if not torch.equal(found, bits[: found.shape[1]].expand(found.shape)):
            wrong += _differing(block, wanted, bitwise=bitwise)
    return wrong


def _blocks(flat: Tensor, length: int) -> Iterator[Tensor]:
    """Some periods at a time, as (periods, elements); at the end what is left of one."""
    whole = flat.numel() // length * length
    rows = flat[:whole].view(-1, length)
    yield from torch.split(rows, 1 if flat.device.type == "cpu" else GPU_PERIODS)
    if whole < flat.numel():
        yield flat[whole:].unsqueeze(0)


def _differing(block: Tensor, wanted: Expected, *, bitwise: bool) -> int:
    """How many elements of a block are wrong, if not all its bits are as they should be."""
    numel = block.shape[1]
    tensor, bound = wanted.tensor[:numel].expand(block.shape), wanted.bound
    if bitwise:
        width = block.element_size()
        one, other = (
            each.cpu().contiguous().view(torch.uint8).view(-1, width) for each in (block, tensor)
        )
        return int((one != other).any(dim=1).sum())
    limit = None if bound is None else bound[:numel].expand(block.shape)
    return verify([block], [Expected(tensor, limit)]).wrong


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
    tensor = torch.ones(GRAIN if alone < LONG_S else COARSE, device=rank.device)

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
