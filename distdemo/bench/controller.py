"""Launcher side of ``bench``: start worlds until every median is steady or the budget is spent.

The first world of each backend verifies every size and estimates durations; later worlds measure
them. Results are collected as they arrive, so a measurement that ends early (a rank dies, Ctrl-C)
keeps everything measured before.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import Any

from distdemo import backends
from distdemo.bench import plan
from distdemo.bench.judge import judge
from distdemo.bench.limits import bound_of, slowest
from distdemo.bench.plan import Key, Measurement, Measurements
from distdemo.bench.rank import Calibration, Sample, bench
from distdemo.dtypes import DTYPES
from distdemo.errors import DistdemoError, Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.environment import cpu_share, environment
from distdemo.measure.load import LaunchLoad, total_load
from distdemo.measure.records import (
    FEWEST_LAUNCHES,
    BenchReport,
    BenchSpec,
    Limit,
    Row,
    Series,
    Setup,
    Start,
)
from distdemo.measure.statistics import interval, median, quantile
from distdemo.versions import versions

OnProgress = Callable[[int, int, str], object]
"""Callback with the percentage done, the number of wrong elements and the current activity."""
MOST_LAUNCHES = 40  # per backend
START_S = 0.3  # seconds to start a world, assumed until one has been timed


def measure(
    spec: BenchSpec,
    worlds: Sequence[WorldSpec],
    start: Callable[..., WorldReport],
    on_progress: OnProgress | None = None,
    *,
    one_world: bool = False,
) -> BenchReport:
    """Measure all series, one backend after the other.

    Args:
        spec: Spec of the measurement.
        worlds: One per backend; the deadline applies to the whole measurement.
        start: Function that starts a world, such as ``Session.start``.
        on_progress: Callback on results; None to leave the cores to the ranks.
        one_world: True if only one world can be started.

    Raises:
        DistdemoError: A world can't be started and nothing has been measured yet.
    """
    measured = {series.backend for series in spec.series if series.sizes_bytes}
    worlds = [world for world in worlds if world.backend in measured]
    results = Results(spec, worlds, one_world=one_world)
    controller = _Controller(spec, worlds, start, on_progress, one_world, results)
    try:
        controller.run()
    except (KeyboardInterrupt, Terminated):
        results.interrupted = True
    return results.report()


@dataclass(slots=True)
class _Controller:
    """Controller of a measurement's worlds; its first fields are the arguments of ``measure``.

    Attributes:
        results: Results so far.
        began_s: Start time of this backend's first launch.
        budget_s: This backend's part of the budget; infinite with ``iters``.
        slot_s: Seconds per timed launch.
        overhead_s: Seconds of the last timed launch that were not timed iterations.
        activity: Description of the last measurement.
    """

    spec: BenchSpec
    worlds: Sequence[WorldSpec]
    start: Callable[..., WorldReport]
    on_progress: OnProgress | None
    one_world: bool
    results: Results
    began_s: float = 0.0
    budget_s: float = math.inf
    slot_s: float = 0.0
    overhead_s: float = START_S
    activity: str = ""

    def run(self) -> None:
        """Measure the backends in the given order; the failure of one doesn't stop the next."""
        end_s = self.results.began + self.spec.budget_s
        for number, world in enumerate(self.worlds):
            self.began_s, self.overhead_s = monotonic(), START_S
            # Every node plans the first world; the start times of their controllers differ.
            left = max(0.0, end_s - self.began_s) if number else self.spec.budget_s
            parts = [len(plan.keys_of(self.spec, each.backend)) for each in self.worlds]
            self.budget_s = left * parts[number] / sum(parts[number:])
            if self.spec.iters is not None:
                self.budget_s = math.inf
            try:
                self.measure_backend(world)
            except DistdemoError as error:
                if not any(point.times_s for point in self.results.samples.values()):
                    raise
                self.results.errors[world.backend] = f"{error.what} {error.why} It stopped"

    def measure_backend(self, world: WorldSpec) -> None:
        """Start worlds until all medians are known, the budget is spent, or a world fails."""
        spec, backend = self.spec, world.backend
        if self.one_world:
            self.launch(world, plan.single_world(spec, backend, self.budget_s))
            return
        first_s = plan.FIRST_SHARE * self.budget_s
        if not self.launch(world, plan.first_launch(spec, backend, first_s)):
            return
        fixed = plan.fixed_launches(spec)
        for number in range(1, (fixed or MOST_LAUNCHES) + 1):
            counts, began = self.counts(backend, number), monotonic()
            within_s = self.left_s() - self.overhead_s
            if not counts or not self.launch(
                world, plan.timed_launch(spec, number, counts, within_s)
            ):
                return
            timed = sum(count * self.results.samples[key].pace_s for key, count in counts.items())
            self.overhead_s = max(0.0, monotonic() - began - timed)

    def launch(self, world: WorldSpec, measurements: Measurements) -> bool:
        """Run one world and return True if it succeeded."""
        left = world.deadline - (monotonic() - self.results.began)
        if left <= 0:
            limit = f"The time limit of {world.deadline:g} s was reached"
            self.results.errors[world.backend] = limit
            return False
        report = self.start(
            replace(world, deadline=max(0.1, round(left, 1))),
            bench,
            (self.spec, measurements),
            on_message=partial(self.on_message, world),
        )
        self.results.add_world(world, report)
        return report.ok

    def counts(self, backend: str, launch: int) -> dict[Key, int]:
        """Return the iterations of each size in this launch; empty if no more are needed."""
        fixed = plan.fixed_launches(self.spec)
        samples = self.results.samples
        every = [key for key in plan.keys_of(self.spec, backend) if key in samples]
        if self.spec.iters is not None and fixed is not None:
            return {key: plan.share_of(self.spec.iters, launch, fixed) for key in every}
        left, wanted = self.left_s(), fixed or plan.DEFAULT_LAUNCHES
        if launch <= wanted:
            self.slot_s = left / (wanted - launch + 1)
        if left <= max(self.overhead_s, self.slot_s / 4):
            return {}
        chosen = every
        if fixed is None and launch > FEWEST_LAUNCHES:
            rows = {key: self.results.row(key) for key in every}
            chosen = [key for key, row in rows.items() if row is None or not row.steady]
        seconds = max(min(left, self.slot_s) - self.overhead_s, self.slot_s / 4)
        return {
            key: plan.iterations_in(seconds / len(every), samples[key].pace_s) for key in chosen
        }

    def left_s(self) -> float:
        """Return the seconds that are left of this backend's part of the budget."""
        return self.budget_s - (monotonic() - self.began_s)

    def on_message(
        self, world: WorldSpec, rank: int, message: Calibration | Sample | LaunchLoad | None
    ) -> None:
        """Handle a message of a rank; None is a heartbeat."""
        if isinstance(message, Calibration):
            self.results.add_calibration(world, rank, message)
        if isinstance(message, LaunchLoad):
            self.results.add_load(world, rank, message)
        if isinstance(message, Sample) and self.results.add_sample(rank, message):
            series = self.spec.series[message.measurement.series]
            self.activity = series.title(series.sizes_bytes[message.measurement.point])
        if self.on_progress is None:
            return
        share = 1 - self.left_s() / self.budget_s if math.isfinite(self.budget_s) else 0.0
        fixed = plan.fixed_launches(self.spec)
        if fixed is not None:
            share = self.results.setups[world.backend].launches / (fixed + 1)
        done = (self.worlds.index(world) + min(1.0, share)) / len(self.worlds)
        wrong = sum(point.wrong for point in self.results.samples.values())
        self.on_progress(int(100 * done), wrong, self.activity)


@dataclass(slots=True)
class Samples:
    """Collected times of one size of one series.

    Attributes:
        timed_s: Seconds of all timed iterations, including the common starts and stalls.
        timed: Number of these iterations.
        first_s: Times of the slowest rank in the first launch; used only without others.
        times_s: Times of the slowest rank by launch, one per iteration.
    """

    timed_s: float = 0.0
    timed: int = 0
    first_s: list[float] = field(default_factory=list)
    times_s: dict[int, list[float]] = field(default_factory=dict)
    clock: str = ""
    checked: int = 0
    wrong: int = 0

    @property
    def pace_s(self) -> float:
        """Seconds per iteration, a mean over all launches: one stall doesn't change it much."""
        return self.timed_s / self.timed if self.timed else 0.0


class Results:
    """Collector of the ranks' messages and the worlds' reports; it builds the final report.

    Attributes:
        setups: Set-up by backend.
        errors: Reason why a backend stopped, by backend, as the beginning of a sentence.
        interrupted: True if a signal ended the measurement.
    """

    def __init__(
        self, spec: BenchSpec, worlds: Sequence[WorldSpec], *, one_world: bool = False
    ) -> None:
        self.setups = {
            world.backend: Setup(
                world.backend,
                world.device,
                world.world_size,
                cores=cpu_share().effective,
                ranks_per_host=world.world_size,
                start_method=world.start_method,
            )
            for world in worlds
        }
        self.errors: dict[str, str] = {}
        self.interrupted = False
        self.began = monotonic()
        self.samples: dict[Key, Samples] = {}
        self._spec = spec
        self._one_world = one_world
        self._worlds = worlds
        self._failed: WorldReport | None = None
        self._loads: dict[str, dict[int, dict[int, LaunchLoad]]] = {}  # by backend, launch, rank
        self._limits: dict[str, dict[int, tuple[Limit, ...]]] = {}  # by backend and rank
        self._pending: dict[Measurement, dict[int, Sample]] = {}
        self._spreads: dict[str, array[float]] = {}  # from first to last start

    def add_world(self, world: WorldSpec, report: WorldReport) -> None:
        """Record that a world has ended."""
        before, hosts = self.setups[world.backend], report.hosts
        self.setups[world.backend] = replace(
            before,
            launches=before.launches + 1,
            start_method=report.start_method,
            engine=report.engine,
            hosts=hosts,
            ranks_per_host=max(map(hosts.count, hosts)) if hosts else world.world_size,
        )
        if not report.ok:
            self._failed = self._failed or report
            self.errors[world.backend] = "A world failed"

    def add_calibration(self, world: WorldSpec, rank: int, calibration: Calibration) -> None:
        """Record what a rank measured before the first size; the overheads are those of rank 0."""
        by_rank = self._limits.setdefault(world.backend, {})
        by_rank[rank] = calibration.limits
        setup = self.setups[world.backend]
        if rank == 0:
            setup = replace(setup, alignment=calibration.alignment, harness=calibration.harness)
        if len(by_rank) == world.world_size:
            limits = slowest([by_rank[each] for each in range(world.world_size)])
            transport = backends.REGISTRY[world.backend].transport
            one_host = calibration.alignment.way is Start.PAGE
            bound = bound_of(limits, transport, one_host=one_host)
            setup = replace(setup, limits=limits, bound=bound)
        self.setups[world.backend] = setup

    def add_load(self, world: WorldSpec, rank: int, load: LaunchLoad) -> None:
        """Record what a rank measured about the machine during a launch."""
        launches = self._loads.setdefault(world.backend, {})
        launches.setdefault(load.launch, {})[rank] = load

    def add_sample(self, rank: int, sample: Sample) -> bool:
        """Record a rank's sample and return True if every rank's has arrived."""
        measurement = sample.measurement
        series = self._spec.series[measurement.series]
        by_rank = self._pending.setdefault(measurement, {})
        by_rank[rank] = sample
        if len(by_rank) < series.world_size:
            return False
        del self._pending[measurement]
        samples = [by_rank[each] for each in range(series.world_size)]
        started = [array("d", sample.started) for sample in samples]
        took = [array("d", sample.took) for sample in samples]
        point = self.samples.setdefault((measurement.series, measurement.point), Samples())
        point.clock = samples[0].clock
        point.checked += sum(each.checked for each in samples)
        point.wrong += sum(each.wrong for each in samples)
        point.timed += len(took[0])
        point.timed_s += len(took[0]) * max(sample.pace_s for sample in samples)
        one_clock = self._share_clock(series.backend)
        if one_clock and series.operation.is_barrier and not series.groups:
            # A barrier moves no data: verify that no rank left before all had arrived.
            for starts, times in zip(
                zip(*started, strict=True), zip(*took, strict=True), strict=True
            ):
                point.checked += len(starts)
                point.wrong += sum(s + t < max(starts) for s, t in zip(starts, times, strict=True))
        slowest = list(map(max, zip(*took, strict=True)))
        if measurement.launch == 0:
            point.first_s = slowest
            return True
        point.times_s.setdefault(measurement.launch, []).extend(slowest)
        if one_clock:
            spreads = (max(each) - min(each) for each in zip(*started, strict=True))
            self._spreads.setdefault(series.backend, array("d")).extend(spreads)
        return True

    def _share_clock(self, backend: str) -> bool:
        """Return True if all ranks of the backend share a clock, being on one machine."""
        aligned = self.setups[backend].alignment
        return aligned is not None and aligned.way is Start.PAGE

    # -------------------------------------------------------------------------------- reporting

    def row(self, key: Key) -> Row | None:
        """Return the row of this size; None until a launch has timed it.

        If the budget was spent before, the few times of the first launch are taken.
        """
        point = self.samples.get(key)
        if point is None or not (point.times_s or self._spent()):
            return None
        times = [point.times_s[launch] for launch in sorted(point.times_s)] or [point.first_s]
        series = self._spec.series[key[0]]
        size = series.sizes_bytes[key[1]]
        op = series.at(size)[0]
        return make_row(
            times,
            self._spec.precision,
            size_bytes=size,
            elements=size // DTYPES[op.dtype].itemsize,
            busbw_factor=series.operation.traffic(op).busbw_factor,
            checked=point.checked,
            wrong=point.wrong,
        )

    def _spent(self) -> bool:
        """Return True if the measurement ended because the budget was spent."""
        return self._spec.iters is None and not self.errors and not self.interrupted

    def report(self) -> BenchReport:
        """Return the report on everything measured so far."""
        libraries = versions()
        for world in self._worlds:
            libraries |= backends.versions_of(world)
        return BenchReport(
            self._spec,
            tuple(map(self._series, range(len(self._spec.series)))),
            tuple(map(self._complete, self.setups.values())),
            self._failed,
            monotonic() - self.began,
            self.interrupted,
            environment(gpu=any(s.device != "cpu" for s in self.setups.values())),
            libraries,
            tuple(self._notes()),
        )

    def _series(self, number: int) -> Series:
        spec = self._spec.series[number]
        keys = [(number, point) for point in range(len(spec.sizes_bytes))]
        rows = tuple(row for row in map(self.row, keys) if row is not None)
        setup = self.setups.get(spec.backend)
        if setup is not None:
            setup = self._complete(setup)
            if not spec.algorithm:
                rows = tuple(
                    replace(row, judgement=judge(row, rows, setup, spec.group_size)) for row in rows
                )
        error, missing = "", len(keys) - len(rows)
        if missing and not self._spent():
            why = self.errors.get(spec.backend, "The measurement was interrupted")
            error = f"{why}: {missing} of {len(keys)} sizes are missing."
        traffic = spec.operation.traffic(spec.smallest)
        clocks = {self.samples[key].clock for key in keys if key in self.samples}
        return Series(
            spec,
            rows,
            ", ".join(sorted(clocks)),
            traffic.busbw_formula,
            traffic.payload_is,
            error,
        )

    def _complete(self, setup: Setup) -> Setup:
        """Return the set-up with what is known only at the end."""
        by_launch = self._loads.get(setup.backend, {})
        launches = [
            [loads[rank] for rank in range(setup.world_size)]
            for _, loads in sorted(by_launch.items())
            if len(loads) == setup.world_size
        ]
        setup = replace(setup, load=total_load(launches, setup.hosts))
        starts = sorted(self._spreads.get(setup.backend, ()))
        if setup.alignment is None or not starts:
            return setup
        p99 = quantile(starts, 0.99)
        aligned = replace(setup.alignment, spread_s=median(starts), spread_p99_s=p99)
        return replace(setup, alignment=aligned)

    def _notes(self) -> Iterator[str]:
        """Yield remarks for the reader."""
        if self._one_world:
            yield (
                "MPI can start only once per process here, so blocks of one world replace "
                "launches: the intervals miss differences between worlds and are too narrow."
            )


def make_row(times_s: Sequence[Sequence[float]], precision: float, **known: Any) -> Row:
    """Return a row with quantiles over all iterations and the interval over the launches.

    Args:
        times_s: Times, one sequence per launch; at least one time.
        precision: Largest half-width of a steady interval, as a share of the median.
        known: Other fields of the row.
    """
    launches = tuple(tuple(launch) for launch in times_s if len(launch))
    ordered = sorted(each for launch in launches for each in launch)
    middle = quantile(ordered, 0.5)
    ends = interval([median(launch) for launch in launches])
    if ends is not None:  # with unequal launches it may miss the overall median
        ends = min(ends[0], middle), max(ends[1], middle)
    row = Row(
        times_s=launches,
        median_s=middle,
        p10_s=quantile(ordered, 0.1),
        p90_s=quantile(ordered, 0.9),
        p99_s=quantile(ordered, 0.99),
        min_s=ordered[0],
        max_s=ordered[-1],
        interval_s=ends,
        **known,
    )
    spread = row.spread_share
    return replace(row, steady=spread is not None and spread <= precision)
