"""Code that every rank of ``bench`` runs: time the sizes of a launch and send each result.

Each rank sends its own times; the controller combines them.

Buffers have any size and are filled and verified in blocks that stay in cache. As everywhere, an
element's value depends on its label and its position (``ops.values``), but positions are counted
modulo a prime, the period. The values and the expected result of one period are computed by the
same plain arithmetic as in the demo; all other elements are copies of it and compared with it. An
element from a wrong rank, or from a position that is off by anything but a multiple of the period,
is still detected. Transports don't cut tensors at such multiples unless the tensor's length is
one, which ``values.period`` prevents.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from time import perf_counter
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo import schedules
from distdemo.bench.limits import measure_limits
from distdemo.bench.records import Alignment, BenchSpec, TransportLimit
from distdemo.launcher.clock import HOST
from distdemo.launcher.local import sends
from distdemo.measure.machine import LaunchLoad, copy_for_a_moment, load_since, read_clocks
from distdemo.measure.timing import CommonStart, Harness, Times, common_start, harness, timed
from distdemo.ops.buffers import Expected, cuts_of, laid_out, poison, reduced, tensors
from distdemo.ops.contract import Buffers, Slice, Undefined, handles
from distdemo.ops.run import Groups, inference, role_of
from distdemo.ops.values import period
from distdemo.ops.verify import verify
from distdemo.schedules.run import Runner

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from distdemo.bench.records import SeriesSpec
    from distdemo.launcher.rank import Rank
    from distdemo.ops.contract import Op
    from distdemo.ops.run import GroupRole
    from distdemo.ops.spec import OpSpec

START_TRIALS = 100  # common starts that measure the cost of one
FEWEST_ITERS, MOST_ITERS = 3, 500  # timed iterations per size and launch
ENOUGH_ITERS = 15
"""Timed iterations of a quick size in any launch. gloo's threads now and then wait for a scheduler
turn of 4 ms, and the median of three iterations is sometimes one of these."""
QUICK_S = 0.03  # seconds that such iterations may take
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}

Key = tuple[int, int]
"""Index of a series, and index of a size in it."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One size of one series in one launch.

    Attributes:
        series: Index of the series in the spec.
        point: Index of the size in the series.
        launch: Launch that the times belong to; 0 calibrates and verifies.
        iterations: Timed iterations; 0: the ranks fill ``seconds``.
        warmup: Untimed iterations before them.
        seconds: Time limit of the timed iterations.
        within_s: Seconds after rank 0's start, after which it is skipped.
    """

    series: int
    point: int
    launch: int
    iterations: int
    warmup: int
    seconds: float = 0.0
    within_s: float = math.inf

    @property
    def key(self) -> Key:
        """Index of the series, and index of the size in it."""
        return self.series, self.point


Measurements = tuple[Measurement, ...]
"""Measurements of one world, in order."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measurements of a rank before the first size of the first launch."""

    alignment: Alignment
    harness: Harness
    limits: tuple[TransportLimit, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """Times and verification of one rank in one `Measurement`.

    Attributes:
        pace_s: Seconds per iteration, including the common start.
        started: Times of its release from each start; an ``array("d")``, as is the next one.
        took: Duration of each call.
        clock: Clock that timed the calls.
        checked: Number of elements compared.
        wrong: Number of wrong elements among them.
    """

    measurement: Measurement
    pace_s: float
    started: bytes
    took: bytes
    clock: str = HOST
    checked: int = 0
    wrong: int = 0


@sends(Calibration | Sample | LaunchLoad)
def bench(rank: Rank, spec: BenchSpec, measurements: Measurements) -> None:
    """Measure every size of this launch and send each result. Collective.

    Args:
        rank: This rank of the world.
        spec: Spec of the measurement.
        measurements: Sizes to measure in this launch.
    """
    began = perf_counter()
    start = common_start(rank)
    align = start.align
    rank.report_phase("ready")
    if measurements[0].launch == 0:
        left_s = min(measurement.within_s for measurement in measurements)
        rank.send(_calibrate(rank, spec, start, left_s))
    groups = Groups()
    paces: dict[Key, float] = {}
    for launch, block in groupby(measurements, key=lambda measurement: measurement.launch):
        align()
        before = read_clocks()
        first_copy = copy_for_a_moment(rank.world_size)
        for measurement in block:
            is_due = perf_counter() - began < measurement.within_s
            if not from_rank_0(rank, is_due):
                continue
            series = spec.series[measurement.series]
            rank.report_phase(series.phase(series.sizes_bytes[measurement.point]))
            rank.send(_measure(rank, spec, measurement, align, groups, paces))
        align()
        copies = (first_copy, copy_for_a_moment(rank.world_size))
        rank.send(load_since(before, launch, copies))
    rank.report_phase("done")
    align()


def _calibrate(rank: Rank, spec: BenchSpec, start: CommonStart, left_s: float) -> Calibration:
    """Measure the machine, the cost of a common start and that of the loop. Collective."""
    limits = measure_limits(rank, left_s) if spec.limits else ()
    rank.report_phase("measured the machine")
    began = perf_counter()
    for _ in range(START_TRIALS):
        start.align()
    cost_s = (perf_counter() - began) / START_TRIALS
    return Calibration(Alignment(start.way, cost_s), harness(), limits)


def from_rank_0(rank: Rank, number: int) -> int:
    """Return rank 0's number on every rank. Collective."""
    tensor = torch.tensor([number], dtype=torch.int64, device=rank.device)
    dist.broadcast(tensor, 0)
    return int(tensor)


def iterations_in(seconds: float, pace_s: float) -> int:
    """Return the number of iterations in this time, at these seconds per iteration."""
    if pace_s <= 0:
        return FEWEST_ITERS
    fewest = max(FEWEST_ITERS, min(ENOUGH_ITERS, int(QUICK_S / pace_s)))
    return min(MOST_ITERS, max(fewest, int(seconds / pace_s)))


def _measure(
    rank: Rank,
    spec: BenchSpec,
    measurement: Measurement,
    align: Callable[[], None],
    groups: Groups,
    paces: dict[Key, float],
) -> Sample:
    """Verify if due, warm up, time. Collective.

    Args:
        rank: This rank of the world.
        spec: Spec of the measurement.
        measurement: Size to measure and its number of iterations.
        align: Common start of all ranks.
        groups: Groups created so far.
        paces: Seconds per iteration in the last measurement of each size.
    """
    key = measurement.key
    series = spec.series[measurement.series]
    specs = series.at(series.sizes_bytes[measurement.point])
    role = role_of(rank.rank, series.operation, specs, f"launch {measurement.launch} {key}")
    group = groups.of(specs, role)
    seeds = count(measurement.launch * 1000)  # every launch verifies different data
    checked = wrong = 0
    times = Times(array("d"), array("d"), 0.0)
    with inference(role.spec):
        prepare, call, buffers = _prepared(rank, series, role, group)
        fill_with_ones(buffers)
        prepare()

        def verify_new_data() -> None:
            """Call the op on new data and compare the result. Collective."""
            nonlocal checked, wrong
            seeded = replace(role.spec, seed=next(seeds))
            refill(role.op, role.rank, seeded, buffers)
            prepare()
            align()
            call()
            rank.synchronize()
            if role.group is not None:  # else this rank is in no group
                compared, different = check(role.op, role.rank, seeded, buffers)
                checked += compared
                wrong += different

        if measurement.launch == 0:
            verify_new_data()
        for _ in range(measurement.warmup):
            align()
            call()
        left = measurement.iterations or from_rank_0(
            rank, iterations_in(measurement.seconds, paces.get(key, 0.0))
        )
        while left:
            turns = min(left, spec.check_every or left)
            times += timed(rank, call, turns, align, on_host=series.operation.is_barrier)
            left -= turns
            if spec.check_every and measurement.launch:
                verify_new_data()
    paces[key] = times.elapsed_s / len(times.took)
    raw = (times.started.tobytes(), times.took.tobytes())
    return Sample(measurement, paces[key], *raw, times.clock, checked, wrong)


def _prepared(
    rank: Rank, series: SeriesSpec, role: GroupRole, group: ProcessGroup | None
) -> tuple[Callable[[], object], Callable[[], object], Buffers]:
    """Return what to do after the inputs were filled, the call to time, and its buffers."""
    if series.algorithm:
        schedule = schedules.schedule(role.spec, series.algorithm)
        runner = Runner(rank.rank, schedule, role.spec, rank.device)
        return runner.reset, runner.run, Buffers(runner.inputs(), runner.result())
    buffers = laid_out(role.op, role.rank, role.spec, rank.device)
    issue = role.op.bind(buffers, role.spec, group, async_op=role.spec.async_op)

    def wait_for_call() -> None:
        for work in handles(issue()):
            work.wait()

    return (lambda: None), wait_for_call if role.spec.async_op else issue, buffers


# ------------------------------------------------------------------------------------ the data


def refill(op: Op, rank: int, spec: OpSpec, buffers: Buffers) -> None:
    """Refill the inputs by the spec's seed and poison the outputs."""
    if buffers.recv is not buffers.send:
        for tensor in buffers.recv:
            poison(tensor)
    for piece, tensor in enumerate(buffers.send):  # in place it overwrites the poison
        cut = op.cut(rank, piece, spec)
        if not cut.numel:
            continue
        values = _period_values(op, [cut], spec, reduce=False).tensor.to(tensor.device)
        for block in torch.split(tensor.view(-1), values.numel()):
            block.copy_(values[: block.numel()])


def fill_with_ones(buffers: Buffers) -> None:
    """Fill all buffers with ones, for a launch that only times and can't be verified."""
    in_place = buffers.recv is buffers.send
    for tensor in buffers.recv if in_place else (*buffers.send, *buffers.recv):
        tensor.fill_(1)


def check(op: Op, rank: int, spec: OpSpec, buffers: Buffers) -> tuple[int, int]:
    """Compare every element of this rank's output with plain arithmetic.

    Moved data must match bit for bit. Reductions follow ``ops.verify``: exact where the sums are
    exact, otherwise within the dtype's bound.

    Returns:
        Number of elements compared and number of wrong ones; 0, 0 if the op leaves the rank's
        buffer undefined.
    """
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return 0, 0
    checked = wrong = 0
    for source, tensor in zip(result, buffers.recv, strict=True):
        if tensor.numel():
            expected = _period_values(op, cuts_of(op, source, spec), spec, reduce=source.reduced)
            checked += tensor.numel()
            wrong += _wrong(tensor.view(-1), expected, bitwise=not source.reduced)
    return checked, wrong


def _period_values(op: Op, cuts: Sequence[Slice], spec: OpSpec, *, reduce: bool) -> Expected:
    """Return the values of one period of a piece, or of all of it if it is shorter.

    Args:
        op: Op that the values belong to.
        cuts: Slice of the piece, or all slices that are reduced to it, with equal start and length.
        spec: Spec whose dtype, seed and reduce op are used.
        reduce: True to apply the reduce op, even over a single rank.
    """
    whole = period(spec)
    first = cuts[0].start % whole
    length = min(cuts[0].numel, whole)
    before = min(length, whole - first)  # up to the end of the row's period
    parts = []
    for start, numel in ((first, before), (0, length - before)):
        if numel:
            window = [Slice(cut.label, (numel,), start) for cut in cuts]
            parts.append(
                reduced(op, window, spec) if reduce else Expected(tensors(op, window, spec)[0])
            )
    if len(parts) == 1:
        return parts[0]
    values = torch.cat([part.tensor for part in parts])
    if all(part.bound is None for part in parts):
        return Expected(values)
    bounds = [  # if only one part is exact, both get a bound
        torch.zeros(part.tensor.shape, dtype=torch.float64) if part.bound is None else part.bound
        for part in parts
    ]
    return Expected(values, torch.cat(bounds))


def _wrong(flat: Tensor, expected: Expected, *, bitwise: bool) -> int:
    """Return the number of elements that differ from the repeated period."""
    period_values = expected.tensor.to(flat.device)
    wrong = 0
    for block in torch.split(flat, period_values.numel()):
        numel = block.numel()
        actual = _bits(block)
        right = _bits(period_values[:numel])
        if torch.equal(actual, right):
            continue
        if bitwise:
            wrong += int((actual != right).view(numel, -1).any(dim=1).sum())
        else:
            bound = None if expected.bound is None else expected.bound[:numel]
            wrong += verify([block], [Expected(expected.tensor[:numel], bound)]).wrong
    return wrong


def _bits(tensor: Tensor) -> Tensor:
    """Return the elements' bits as integers, so that NaN equals itself and −0 differs from 0."""
    return tensor.view(_BITS[tensor.element_size()])
