"""Code that every rank of ``bench`` runs: time the sizes of a launch and send each result.

Each rank sends its own times; the launcher combines them.

Buffers have any size and are filled and verified in blocks that stay in cache. As everywhere, an
element's value depends on its label and its position (``ops.values``), but positions are counted
modulo a prime, the period. The values and the expected result of one period are computed by the
same plain arithmetic as in the demo; all other elements are copies of it and compared with it. An
element from a wrong rank, or from a position that is off by anything but a multiple of the period,
is still detected. Transports don't cut tensors at such multiples unless the tensor's length is
one, which ``values.period`` prevents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo import schedules
from distdemo.bench.records import BenchSpec, StreamLimit
from distdemo.bench.stream import stream_limit
from distdemo.launcher.local import sends
from distdemo.measure.machine import LaunchLoad, load_since, read_clocks
from distdemo.measure.timing import CommonStart, timed
from distdemo.ops.buffers import Expected, cuts_of, laid_out, poison, reduced, tensors, verify
from distdemo.ops.contract import Buffers, Slice, Undefined
from distdemo.ops.values import period
from distdemo.schedules.run import Runner

if TYPE_CHECKING:
    from distdemo.bench.records import SeriesSpec
    from distdemo.launcher.rank import Rank
    from distdemo.ops.contract import Op
    from distdemo.ops.spec import OpSpec

FEWEST_ITERS, MOST_ITERS = 3, 500  # timed iterations per size and launch
WARMUPS = ((1 << 16, 10), (1 << 20, 5), (1 << 24, 2))  # iterations up to this size; beyond it 1

Key = tuple[int, int]
"""Index of a series in the spec, and index of a size in the series."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Sizes to time, usually in a fresh world.

    Attributes:
        number: Number of the launch; 0 verifies every size.
        sizes: Sizes in order.
        iterations: Timed iterations per size; 0 to fill ``seconds``.
        seconds: Time for the iterations of each size; there are at least ``FEWEST_ITERS``.
        until_s: Seconds after rank 0's start, after which only the smallest sizes are timed.
    """

    number: int
    sizes: tuple[Key, ...]
    iterations: int
    seconds: float
    until_s: float


Launches = tuple[Launch, ...]
"""Launches that one world makes, in order."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Times and verification of one rank for one size in one launch.

    Attributes:
        took: Seconds of each call; an ``array("d")``.
        checked: Number of elements compared.
        wrong: Number of wrong elements among them.
    """

    launch: int
    key: Key
    took: bytes
    checked: int
    wrong: int


def _has_a_size(message: StreamLimit | Sample | LaunchLoad, spec: BenchSpec, _: Launches) -> bool:
    """Return True unless it is a sample of a size that isn't measured."""
    if not isinstance(message, Sample):
        return True
    number, point = message.key
    return number in range(len(spec.series)) and point in range(
        len(spec.series[number].sizes_bytes)
    )


@sends(StreamLimit | Sample | LaunchLoad, _has_a_size)
def bench(rank: Rank, spec: BenchSpec, launches: Launches) -> None:
    """Measure every size of these launches and send each result. Collective.

    Args:
        rank: This rank of the world.
        spec: Spec of the measurement.
        launches: Launches to make.
    """
    began_s = perf_counter()
    align = CommonStart(rank).align
    rank.report_phase("ready")
    if launches[0].number == 0 and rank.device == "cpu" and rank.world_size > 1:
        rank.send(stream_limit(rank))
    for launch in launches:
        align()
        before = read_clocks(launch.number)
        for key in launch.sizes:
            series, point = spec.series[key[0]], key[1]
            is_due = point == 0 or perf_counter() - began_s < launch.until_s
            if from_rank_0(rank, is_due):
                rank.report_phase(series.phase(point))
                rank.send(_measure(rank, series, key, launch, align))
        align()
        rank.send(load_since(before))
    rank.report_phase("done")
    align()


def from_rank_0(rank: Rank, number: int) -> int:
    """Return rank 0's number on every rank. Collective."""
    tensor = torch.tensor([number], dtype=torch.int64, device=rank.device)
    dist.broadcast(tensor, 0)
    return int(tensor)


def _measure(
    rank: Rank, series: SeriesSpec, key: Key, launch: Launch, align: Callable[[], None]
) -> Sample:
    """Verify in the first launch, warm up, time. Collective."""
    size = series.sizes_bytes[key[1]]
    op = series.operation
    spec = series.at(size)
    prepare, call, buffers = _prepared(rank, series, spec)
    checked = wrong = 0
    if launch.number == 0:
        refill(op, rank.rank, spec, buffers)
        prepare()
        align()
        call()
        rank.synchronize()
        checked, wrong = check(op, rank.rank, spec, buffers)
    fill_with_ones(buffers)
    prepare()
    for _ in range(next((count for most, count in WARMUPS if size <= most), 1)):
        align()
        call()
    began_s = perf_counter()
    took = timed(rank, call, launch.iterations or FEWEST_ITERS, align, on_host=op.is_barrier)
    elapsed_s = perf_counter() - began_s
    if not launch.iterations:
        fitting = int(FEWEST_ITERS * launch.seconds / elapsed_s)
        more = from_rank_0(rank, min(MOST_ITERS, fitting) - FEWEST_ITERS)
        if more > 0:
            took += timed(rank, call, more, align, on_host=op.is_barrier)
    return Sample(launch.number, key, took.tobytes(), checked, wrong)


def _prepared(
    rank: Rank, series: SeriesSpec, spec: OpSpec
) -> tuple[Callable[[], object], Callable[[], object], Buffers]:
    """Return what to do after the inputs were filled, the call to time, and its buffers."""
    if series.algorithm:
        schedule = schedules.schedule(spec, series.algorithm)
        runner = Runner(rank.rank, schedule, spec, rank.device)
        return runner.reset, runner.run, Buffers(runner.inputs(), runner.result())
    op = series.operation
    buffers = laid_out(op, rank.rank, spec, rank.device)
    return (lambda: None), op.bind(buffers, spec, None, async_op=False), buffers


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
    """Compare every element of this rank's output with plain arithmetic, as ``verify`` does.

    Returns:
        Number of elements compared and number of wrong ones; 0, 0 if the op leaves the rank's
        buffer undefined.
    """
    result = op.result(rank, spec)
    if isinstance(result, Undefined):
        return 0, 0
    checked = wrong = 0
    for source, tensor in zip(result, buffers.recv, strict=True):
        if not tensor.numel():
            continue
        expected = _period_values(op, cuts_of(op, source, spec), spec, reduce=source.reduced)
        checked += tensor.numel()
        for block in torch.split(tensor.view(-1), expected.tensor.numel()):
            numel = block.numel()
            bound = None if expected.bound is None else expected.bound[:numel]
            wrong += verify([block], [Expected(expected.tensor[:numel], bound)]).wrong
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
    start = cuts[0].start % whole
    length = min(cuts[0].numel, whole)
    is_wrapped = start + length > whole
    first, numel = (0, whole) if is_wrapped else (start, length)
    window = [Slice(cut.label, (numel,), first) for cut in cuts]
    values = reduced(op, window, spec) if reduce else Expected(tensors(op, window, spec)[0])
    if not is_wrapped:
        return values
    bound = None if values.bound is None else values.bound.roll(-start)[:length]
    return Expected(values.tensor.roll(-start)[:length], bound)
