"""Compare algorithms: on paper (``simulate``), or by running them in one world (``compare``).

If the world ends early (a rank dies, Ctrl-C, SIGTERM), the finished sizes are kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distdemo import backends, ops
from distdemo.bench.environment import cores
from distdemo.bench.statistics import interval, median
from distdemo.dtypes import DTYPES
from distdemo.errors import Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.ops.contract import Traffic
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.compare.records import (
    Candidate,
    ComparedSize,
    Comparison,
    ComparisonSpec,
    Timing,
)
from distdemo.trace.count import by_formula, checks, cost, count, crossovers, infos, predicted
from distdemo.trace.records import CostModel
from distdemo.versions import versions

if TYPE_CHECKING:
    from distdemo.trace.compare.rank import Entry

MOST_COUNTED = 256  # ranks; counting every message of a ring of this size takes half a second
SMALL = 64  # bytes of the small message that the link is measured with
LEAST, MOST = 1 << 16, 1 << 22
"""Limits of the large message in bytes; otherwise it is as large as the largest payload."""
LINK = -1
"""Index of the link's measurement among the sizes that ranks report."""


def simulate(spec: ComparisonSpec) -> Comparison:
    """Count all algorithms at all sizes, and predict their times if the link is known."""
    return _comparison(
        spec,
        [ComparedSize(op, _traffic(op), _on_paper(spec, op, spec.link)) for op in spec.ops],
        spec.link,
    )


def _comparison(
    spec: ComparisonSpec, sizes: Sequence[ComparedSize], link: CostModel | None
) -> Comparison:
    op, n = spec.ops[0].op, spec.ops[0].group_size
    lines = [cost(op, name, n, spec.chunks) for name in spec.algorithms]
    changes = (
        [] if link is None or n == 1 else crossovers(lines, link.alpha_s, link.beta_s_per_byte)
    )
    return Comparison(
        world_size=n,
        simulated=True,
        chunks=spec.chunks,
        algorithms=infos(algorithms.find(op, name) for name in spec.algorithms),
        sizes=tuple(sizes),
        sizes_asked=len(spec.ops),
        link=link,
        crossovers=tuple(changes),
        versions=versions(),
    )


def _on_paper(spec: ComparisonSpec, op: OpSpec, link: CostModel | None) -> tuple[Candidate, ...]:
    """Count all algorithms at this size; beyond `MOST_COUNTED` ranks, evaluate their formulas."""
    found = []
    for name in spec.algorithms:
        schedule = algorithms.schedule(op, name, spec.chunks)
        few = schedule.n <= MOST_COUNTED
        if few:
            counts = count(schedule, DTYPES[op.dtype].itemsize).counts
        else:
            counts = by_formula(schedule, _payload(op))
        found.append(
            Candidate(
                name,
                counts=counts,
                checks=checks(schedule, counts, _payload(op)) if few else (),
                predicted_s=None if link is None else predicted(counts, link),
            )
        )
    return tuple(found)


def _traffic(op: OpSpec) -> Traffic:
    return ops.REGISTRY[op.op].traffic(op)


# ------------------------------------------------------------------------------------ measurement


def compare(
    spec: ComparisonSpec,
    world: WorldSpec,
    start: Callable[..., WorldReport],
    watch: Callable[[int, str], object],
) -> Comparison:
    """Run all algorithms and the backend's own call, at all sizes, in one world.

    Args:
        spec: Comparison to run.
        world: World that runs it.
        start: Function that starts a world, such as ``Session.start``.
        watch: Callback that receives the number of finished sizes and the current one.
    """
    from distdemo.trace.compare.rank import SizeDone, compare_on_rank

    op, n = spec.ops[0], world.world_size
    refused = backends.REGISTRY[world.backend].refuses(ops.REGISTRY[op.op], op, world.device) or ""
    messages: tuple[int, ...] = ()
    if spec.link is None and n > 1:
        messages = SMALL, min(MOST, max(LEAST, *map(_payload, spec.ops)))
    shared = cores().effective
    oversubscribed = world.device == "cpu" and n > shared
    found: dict[int, dict[int, SizeDone]] = {}

    def on_message(rank: int, message: SizeDone | None) -> bool:
        if message is not None:
            found.setdefault(message.index, {})[rank] = message
        done = sum(len(each) == n for index, each in found.items() if index != LINK)
        watch(done, f"{_payload(spec.ops[min(done, len(spec.ops) - 1)]):,} B")
        return False

    report, interrupted = None, False
    try:
        settings = (spec, not refused, messages, oversubscribed)
        report = start(world, compare_on_rank, settings, on_message=on_message)
        interrupted = report.interrupted_by is not None
    except (KeyboardInterrupt, Terminated):
        interrupted = True
    complete = {
        index: [each[rank] for rank in sorted(each)]
        for index, each in found.items()
        if len(each) == n
    }
    link = spec.link
    if LINK in complete:
        times = [_slowest([each.entries[i].times for each in complete[LINK]]) for i in (0, 1)]
        link = _link_through(messages, times)
    sizes = []
    for index, each in enumerate(spec.ops):
        if index not in complete:
            continue
        entries = iter(zip(*(rank.entries for rank in complete[index]), strict=True))
        own = Candidate(op.op, own=True, refused=refused)
        waiting = [*([] if refused else [own]), *_on_paper(spec, each, link)]
        ran = [_with_times(candidate, next(entries)) for candidate in waiting]
        sizes.append(ComparedSize(each, _traffic(each), tuple([own, *ran] if refused else ran)))
    several_hosts = report is not None and len(set(report.hosts)) > 1
    method = world.start_method if report is None else report.start_method
    return replace(
        _comparison(spec, sizes, link),
        simulated=False,
        settings=replace(world, start_method=method),
        interrupted=interrupted,
        cores=None if several_hosts else shared,
        world=None if interrupted else report,
        versions=versions() | backends.versions_of(world),
    )


def _slowest(times: Sequence[bytes]) -> list[float]:
    """Return the slowest rank's time of each run."""
    return list(map(max, zip(*(array("d", each) for each in times), strict=True)))


def _link_through(messages: Sequence[int], times: Sequence[Sequence[float]]) -> CostModel:
    """Return the line through two points, with α and β at least 0."""
    small, large = messages
    first, second = map(median, times)
    beta = max(0.0, (second - first) / (large - small))
    return CostModel(
        max(0.0, first - beta * small), beta, "measured", (small, large), len(times[0])
    )


def _with_times(candidate: Candidate, entries: Sequence[Entry]) -> Candidate:
    """Return the candidate with the results of its runs, given one entry per rank."""
    times = _slowest([each.times for each in entries])
    low, high = interval(times) or (min(times), max(times))
    wrong, checked = (sum(getattr(each, name) for each in entries) for name in ("wrong", "checked"))
    return replace(
        candidate,
        timing=Timing(median(times), low, high, len(times), wrong, checked),
        handed_bytes=None if candidate.own else sum(each.sent_bytes for each in entries),
    )


def link_of_files(paths: Sequence[Path], op: str) -> CostModel:
    """Return α and β as ``bench fit`` fits them to files of ``bench``.

    If the files have several operations, this one is used, else point-to-point, else the first.

    Args:
        paths: Paths of the files.
        op: torch's name of the op to predict.

    Raises:
        UsageError: A file can't be read, or nothing in them can be fitted.
    """
    from distdemo.bench.fit.fit import fit
    from distdemo.bench.recording import read

    fitted, _ = fit([read(path) for path in paths])
    wanted = (op, "p2p")
    best = min(fitted, key=lambda each: wanted.index(each.spec.op) if each.spec.op in wanted else 2)
    worlds = " and ".join(map(str, best.ranks))
    spec, link = best.spec, best.best
    series = f"{spec.command} over {spec.backend} on {worlds} ranks, taken for {best.chosen}"
    names = tuple(map(str, paths))
    return CostModel(link.alpha_s, link.beta_s_per_byte, "fitted", files=names, series=series)


def _payload(op: OpSpec) -> int:
    """Return B in bytes."""
    return _traffic(op).payload_bytes
