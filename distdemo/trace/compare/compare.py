"""Compare algorithms: on paper (``simulate``), or by running them in one world (``compare``).

If the world ends early (a rank dies, Ctrl-C, SIGTERM), the finished sizes are kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from distdemo import backends, ops, schedules
from distdemo.dtypes import DTYPES
from distdemo.errors import Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.environment import cpu_share
from distdemo.measure.statistics import interval, median
from distdemo.ops.spec import OpSpec
from distdemo.schedules.count import (
    CostModel,
    Crossover,
    by_formula,
    checks,
    cost,
    count,
    crossovers,
    infos,
    predicted,
)
from distdemo.trace.compare.records import (
    LINK,
    Candidate,
    ComparedSize,
    Comparison,
    ComparisonSpec,
    Timing,
)
from distdemo.versions import versions

if TYPE_CHECKING:
    from distdemo.trace.compare.rank import CandidateResult

MOST_COUNTED = 256  # ranks; counting every message of a ring of this size takes half a second
SMALL_MESSAGE_BYTES = 64  # of the small message that the link is measured with
MIN_LARGE_BYTES, MAX_LARGE_BYTES = 1 << 16, 1 << 22
"""Limits of the large message in bytes; otherwise it is as large as the largest payload."""


def simulate(spec: ComparisonSpec) -> Comparison:
    """Count all algorithms at all sizes, and predict their times if the link is known."""
    sizes = [_size(op, _on_paper(spec, op, spec.link)) for op in spec.ops]
    return _comparison(spec, sizes, spec.link)


def _size(op: OpSpec, candidates: Iterable[Candidate]) -> ComparedSize:
    collective = ops.REGISTRY[op.op]
    return ComparedSize(collective.call(op), collective.traffic(op), tuple(candidates))


def _comparison(
    spec: ComparisonSpec, sizes: Sequence[ComparedSize], link: CostModel | None
) -> Comparison:
    op, n = spec.ops[0].op, spec.ops[0].group_size
    changes: Sequence[Crossover] = ()
    if link is not None and n > 1:
        costs = [cost(op, name, n, spec.chunks) for name in spec.algorithms]
        changes = crossovers(costs, link.alpha_s, link.beta_s_per_byte)
    return Comparison(
        world_size=n,
        chunks=spec.chunks,
        algorithms=infos(schedules.find(op, name) for name in spec.algorithms),
        sizes=tuple(sizes),
        requested_sizes=len(spec.ops),
        link=link,
        crossovers=tuple(changes),
        versions=versions(),
    )


def _on_paper(spec: ComparisonSpec, op: OpSpec, link: CostModel | None) -> Iterator[Candidate]:
    """Count all algorithms at this size; beyond `MOST_COUNTED` ranks, evaluate their formulas."""
    for name in spec.algorithms:
        schedule = schedules.schedule(op, name, spec.chunks)
        few = schedule.n <= MOST_COUNTED
        if few:
            counts = count(schedule, DTYPES[op.dtype].itemsize).counts
        else:
            counts = by_formula(schedule, _payload(op))
        yield Candidate(
            name,
            counts=counts,
            checks=checks(schedule, counts, _payload(op)) if few else (),
            predicted_s=None if link is None else predicted(counts, link),
        )


# ------------------------------------------------------------------------------------ measurement


def compare(
    spec: ComparisonSpec,
    world: WorldSpec,
    start: Callable[..., WorldReport],
    on_progress: Callable[[int, str], object],
) -> Comparison:
    """Run all algorithms and the backend's own call, at all sizes, in one world.

    Args:
        spec: Comparison to run.
        world: World that runs it.
        start: Function that starts a world, such as ``Session.start``.
        on_progress: Callback that receives the number of finished sizes and the current one.
    """
    from distdemo.trace.compare.rank import SizeResult, compare_on_rank

    smallest, n = spec.ops[0], world.world_size
    backend, collective = backends.REGISTRY[world.backend], ops.REGISTRY[smallest.op]
    refused = backend.why_unsupported(collective, smallest, world.device) or ""
    messages: tuple[int, ...] = ()
    if spec.link is None and n > 1:
        largest = max(MIN_LARGE_BYTES, *map(_payload, spec.ops))
        messages = SMALL_MESSAGE_BYTES, min(MAX_LARGE_BYTES, largest)
    core_count = cpu_share().effective
    received: dict[int, dict[int, SizeResult]] = {}

    def on_message(rank: int, message: SizeResult | None) -> None:
        if message is not None:
            received.setdefault(message.index, {})[rank] = message
        done = sum(len(by_rank) == n for index, by_rank in received.items() if index != LINK)
        on_progress(done, f"{_payload(spec.ops[min(done, len(spec.ops) - 1)]):,} B")

    report, interrupted = None, False
    try:
        args = (spec, not refused, messages, world.device == "cpu" and n > core_count)
        report = start(world, compare_on_rank, args, on_message=on_message)
        interrupted = report.interrupted_by is not None
    except (KeyboardInterrupt, Terminated):
        interrupted = True
    finished = {
        index: list(zip(*(by_rank[rank].results for rank in range(n)), strict=True))
        for index, by_rank in received.items()
        if len(by_rank) == n
    }
    link = _measured_link(messages, finished[LINK]) if LINK in finished else spec.link
    sizes = [
        _size(op, _measured(spec, op, link, refused, finished[index]))
        for index, op in enumerate(spec.ops)
        if index in finished
    ]
    several_hosts = report is not None and len(set(report.hosts)) > 1
    method = world.start_method if report is None else report.start_method
    return replace(
        _comparison(spec, sizes, link),
        settings=replace(world, start_method=method),
        interrupted=interrupted,
        cores=None if several_hosts else core_count,
        world=None if interrupted else report,
        versions=versions() | backends.versions_of(world),
    )


def _slowest_times(results: Sequence[CandidateResult]) -> list[float]:
    """Return the slowest rank's time of each run, given one entry per rank."""
    return list(map(max, zip(*(array("d", each.times) for each in results), strict=True)))


def _measured_link(
    messages: Sequence[int], results: Sequence[Sequence[CandidateResult]]
) -> CostModel:
    """Return the line through the times of two messages, with α and β at least 0."""
    small, large = messages
    times = [_slowest_times(each) for each in results]
    first, second = map(median, times)
    beta = max(0.0, (second - first) / (large - small))
    return CostModel(
        max(0.0, first - beta * small), beta, "measured", (small, large), len(times[0])
    )


def _measured(
    spec: ComparisonSpec,
    op: OpSpec,
    link: CostModel | None,
    refused: str,
    results: Sequence[Sequence[CandidateResult]],
) -> Iterator[Candidate]:
    """Yield all candidates at this size, with the results of all ranks for those that ran."""
    candidates = [Candidate(op.op, own=True, refused=refused), *_on_paper(spec, op, link)]
    if refused:
        yield candidates.pop(0)
    for candidate, by_rank in zip(candidates, results, strict=True):
        times = _slowest_times(by_rank)
        low, high = interval(times) or (min(times), max(times))
        wrong = sum(each.wrong for each in by_rank)
        checked = sum(each.checked for each in by_rank)
        yield replace(
            candidate,
            timing=Timing(median(times), low, high, len(times), wrong, checked),
            handed_bytes=None if candidate.own else sum(each.sent_bytes for each in by_rank),
        )


def _payload(op: OpSpec) -> int:
    """Return S in bytes."""
    return ops.REGISTRY[op.op].traffic(op).payload_bytes
