"""Launcher side of ``bench``: start worlds until every median is steady or the budget is spent.

The first world of each backend verifies every size and estimates durations; later worlds measure
them. Results are collected as they arrive, so a measurement that ends early (a rank dies, Ctrl-C)
keeps everything measured before.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from distdemo import backends
from distdemo.bench.judge import judge
from distdemo.bench.limits import bound_of, slowest
from distdemo.bench.rank import (
    Calibration,
    Key,
    Measurement,
    Measurements,
    Sample,
    bench,
    iterations_in,
)
from distdemo.bench.records import (
    DEFAULT_LAUNCHES,
    BenchReport,
    BenchSpec,
    Series,
    SeriesSpec,
    Setup,
    SizeRow,
    TransportLimit,
)
from distdemo.dtypes import DTYPES
from distdemo.errors import DistdemoError, Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.machine import LaunchLoad, available_cores, environment, total_load
from distdemo.measure.statistics import FEWEST_LAUNCHES, interval, median, quantile
from distdemo.measure.timing import Start
from distdemo.versions import versions

OnProgress = Callable[[int, int, str], object]
"""Callback with the percentage done, the number of wrong elements and the current activity."""
MOST_LAUNCHES = 40  # per backend
CALIBRATION_ITERS = 3  # per size in the first launch, from which later ones are planned
FIRST_SHARE = 0.5  # of the budget that the first launch may take
WARMUPS = ((1 << 16, 10), (1 << 20, 5), (1 << 24, 2))  # iterations up to this size; beyond it 1
START_S = 0.3  # seconds to start a world, assumed until one has been timed
ONE_WORLD_NOTE = (
    "MPI can start only once per process here, so blocks of one world replace "
    "launches: the intervals miss differences between worlds and are too narrow."
)


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
    began_s = monotonic()
    worlds = [world for world in worlds if keys_of(spec, world.backend)]
    sweeps = [Sweep(spec, world, start, began_s + world.deadline) for world in worlds]
    interrupted = False
    try:
        for number, sweep in enumerate(sweeps):
            # Every node plans the first world; the start times of their processes differ.
            left_s = spec.budget_s - (monotonic() - began_s if number else 0.0)
            counts = [len(keys_of(spec, world.backend)) for world in worlds[number:]]

            def show(share: float, activity: str, number: int = number) -> None:
                if on_progress is not None:
                    wrong = sum(samples.wrong for one in sweeps for samples in one.samples())
                    on_progress(int(100 * (number + share) / len(sweeps)), wrong, activity)

            try:
                sweep.run(max(0.0, left_s) * counts[0] / sum(counts), show, one_world=one_world)
            except DistdemoError as error:
                if not any(samples.times_s for one in sweeps for samples in one.samples()):
                    raise
                sweep.error = f"{error.what} {error.why} It stopped"
    except (KeyboardInterrupt, Terminated):
        interrupted = True
    libraries = versions()
    for world in worlds:
        libraries |= backends.versions_of(world)
    setups = [sweep.complete_setup(interrupted=interrupted) for sweep in sweeps]
    results = [described(series) for series in spec.series]
    for number, series in enumerate(spec.series):
        for sweep in sweeps:
            if sweep.backend == series.backend:
                results[number] = sweep.series(number)
    return BenchReport(
        spec,
        tuple(results),
        tuple(setups),
        next((sweep.failed for sweep in sweeps if sweep.failed), None),
        monotonic() - began_s,
        interrupted,
        environment(gpu=any(setup.device != "cpu" for setup in setups)),
        libraries,
        (ONE_WORLD_NOTE,) if one_world else (),
    )


@dataclass(slots=True)
class CollectedTimes:
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


class Sweep:
    """Measurement of all sizes on one backend: its launches and what their ranks send.

    Args:
        spec: Spec of the measurement.
        world: World to start again and again.
        start: Function that starts it.
        end_s: Time at which the measurement must have ended.

    Attributes:
        backend: Name of the backend.
        failed: Report of the world that failed.
        error: Reason why the measurement stopped, as the beginning of a sentence.
    """

    def __init__(
        self, spec: BenchSpec, world: WorldSpec, start: Callable[..., WorldReport], end_s: float
    ) -> None:
        self.backend = world.backend
        self.failed: WorldReport | None = None
        self.error = ""
        self._spec = spec
        self._world = world
        self._start = start
        self._end_s = end_s
        self._began_s = self._budget_s = 0.0  # of this backend
        self._slot_s = 0.0  # seconds per timed launch
        self._overhead_s = START_S  # of the last timed launch, other than timed iterations
        self._setup = Setup(
            world.backend,
            world.device,
            world.world_size,
            cores=available_cores(),
            ranks_per_host=world.world_size,
            start_method=world.start_method,
        )
        self._samples: dict[Key, CollectedTimes] = {}
        self._pending: dict[Measurement, dict[int, Sample]] = {}  # by rank
        self._loads: dict[int, dict[int, LaunchLoad]] = {}  # by launch and rank
        self._limits: dict[int, tuple[TransportLimit, ...]] = {}  # by rank
        self._spreads = array("d")  # from the first to the last start
        self._activity = ""
        self._is_spent = True  # with the end of the budget, or of the plan

    def samples(self) -> Iterable[CollectedTimes]:
        """Return the samples of all sizes."""
        return self._samples.values()

    # ----------------------------------------------------------------------------------- launches

    def run(self, budget_s: float, show: Callable[[float, str], None], *, one_world: bool) -> None:
        """Start worlds until all medians are known, the budget is spent, or a world fails.

        Args:
            budget_s: Seconds for this backend; ignored with ``iters``.
            show: Callback on messages with the share that is done and the current activity.
            one_world: True if only one world can be started.
        """
        spec = self._spec
        self._show = show
        self._began_s = monotonic()
        self._budget_s = budget_s if spec.iters is None else math.inf
        if one_world:
            self._launch(single_world(spec, self.backend, self._budget_s))
            return
        succeeded = self._launch(first_launch(spec, self.backend, FIRST_SHARE * self._budget_s))
        launch = 1
        while succeeded and launch <= (spec.fixed_launches or MOST_LAUNCHES):
            counts = self._iterations(launch)
            if not counts:
                return
            began_s = monotonic()
            within_s = self._left_s() - self._overhead_s
            succeeded = self._launch(timed_launch(spec, launch, counts, within_s))
            timed_s = sum(count * self._samples[key].pace_s for key, count in counts.items())
            self._overhead_s = max(0.0, monotonic() - began_s - timed_s)
            launch += 1

    def _launch(self, measurements: Measurements) -> bool:
        """Run one world and return True if it succeeded."""
        left_s = self._end_s - monotonic()
        if left_s <= 0:
            self.error = f"The time limit of {self._world.deadline:g} s was reached"
            return False
        report = self._start(
            replace(self._world, deadline=max(0.1, round(left_s, 1))),
            bench,
            (self._spec, measurements),
            on_message=self._on_message,
        )
        hosts = report.hosts
        self._setup = replace(
            self._setup,
            launches=self._setup.launches + 1,
            start_method=report.start_method,
            engine=report.engine,
            hosts=hosts,
            ranks_per_host=max(map(hosts.count, hosts)) if hosts else self._world.world_size,
        )
        if not report.ok:
            self.failed = report
            self.error = "A world failed"
        return report.ok

    def _iterations(self, launch: int) -> dict[Key, int]:
        """Return the iterations of each size in this launch; empty if no more are needed."""
        spec = self._spec
        keys = [key for key in keys_of(spec, self.backend) if key in self._samples]
        if spec.iters is not None:
            return dict.fromkeys(keys, share_of(spec.iters, launch, spec.fixed_launches or 1))
        left_s = self._left_s()
        wanted = spec.launches or DEFAULT_LAUNCHES
        if launch <= wanted:
            self._slot_s = left_s / (wanted - launch + 1)
        if left_s <= max(self._overhead_s, self._slot_s / 4):
            return {}
        slot_s = max(min(left_s, self._slot_s) - self._overhead_s, self._slot_s / 4)
        seconds = slot_s / len(keys)
        if spec.launches is None and launch > FEWEST_LAUNCHES:
            rows = {key: self._row(key) for key in keys}
            keys = [key for key, row in rows.items() if row is None or not row.steady]
        return {key: iterations_in(seconds, self._samples[key].pace_s) for key in keys}

    def _left_s(self) -> float:
        return self._budget_s - (monotonic() - self._began_s)

    # ----------------------------------------------------------------------------------- messages

    def _on_message(self, rank: int, message: Calibration | Sample | LaunchLoad | None) -> None:
        """Record a message of a rank; None is a heartbeat."""
        size = self._world.world_size
        if isinstance(message, Calibration):
            self._limits[rank] = message.limits
            if rank == 0:
                alignment, overhead = message.alignment, message.harness
                self._setup = replace(self._setup, alignment=alignment, harness=overhead)
            if len(self._limits) == size:
                self._add_limits(one_host=message.alignment.way is Start.PAGE)
        elif isinstance(message, LaunchLoad):
            self._loads.setdefault(message.launch, {})[rank] = message
        elif isinstance(message, Sample):
            measurement = message.measurement
            by_rank = self._pending.setdefault(measurement, {})
            by_rank[rank] = message
            if len(by_rank) == size:
                del self._pending[measurement]
                self._add_samples(measurement, [by_rank[member] for member in range(size)])
                series = self._spec.series[measurement.series]
                self._activity = series.phase(series.sizes_bytes[measurement.point])
        share = 1 - self._left_s() / self._budget_s if math.isfinite(self._budget_s) else 0.0
        if self._spec.fixed_launches is not None:
            share = self._setup.launches / (self._spec.fixed_launches + 1)
        self._show(min(1.0, share), self._activity)

    def _add_limits(self, *, one_host: bool) -> None:
        limits = slowest([self._limits[rank] for rank in range(self._world.world_size)])
        transport = backends.REGISTRY[self.backend].transport
        bound = bound_of(limits, transport, one_host=one_host)
        self._setup = replace(self._setup, limits=limits, bound=bound)

    def _add_samples(self, measurement: Measurement, by_rank: Sequence[Sample]) -> None:
        """Record the samples of all ranks in one measurement."""
        series = self._spec.series[measurement.series]
        # One row per iteration, with one time per rank.
        starts = list(zip(*(array("d", sample.started) for sample in by_rank), strict=True))
        times = list(zip(*(array("d", sample.took) for sample in by_rank), strict=True))
        samples = self._samples.setdefault(measurement.key, CollectedTimes())
        samples.clock = by_rank[0].clock
        samples.checked += sum(sample.checked for sample in by_rank)
        samples.wrong += sum(sample.wrong for sample in by_rank)
        samples.timed += len(times)
        samples.timed_s += len(times) * max(sample.pace_s for sample in by_rank)
        aligned = self._setup.alignment
        one_clock = aligned is not None and aligned.way is Start.PAGE  # as on one machine
        if one_clock and series.operation.is_barrier and not series.groups:
            # A barrier moves no data: verify that no rank left before all had arrived.
            samples.checked += len(by_rank) * len(starts)
            samples.wrong += sum(
                start + time < max(arrivals)
                for arrivals, calls in zip(starts, times, strict=True)
                for start, time in zip(arrivals, calls, strict=True)
            )
        slowest_s = [max(calls) for calls in times]
        if measurement.launch == 0:
            samples.first_s = slowest_s
            return
        samples.times_s.setdefault(measurement.launch, []).extend(slowest_s)
        if one_clock:
            self._spreads.extend(max(arrivals) - min(arrivals) for arrivals in starts)

    # ------------------------------------------------------------------------------------- results

    def complete_setup(self, *, interrupted: bool) -> Setup:
        """Return the set-up at the end of the measurement.

        Args:
            interrupted: True if a signal ended the measurement.
        """
        self._is_spent = self._spec.iters is None and not self.error and not interrupted
        launches = [
            [loads[rank] for rank in range(self._world.world_size)]
            for _, loads in sorted(self._loads.items())
            if len(loads) == self._world.world_size
        ]
        self._setup = replace(self._setup, load=total_load(launches, self._setup.hosts))
        alignment = self._setup.alignment
        if alignment is not None and self._spreads:
            spreads = sorted(self._spreads)
            p99_s = quantile(spreads, 0.99)
            alignment = replace(alignment, spread_s=median(spreads), spread_p99_s=p99_s)
            self._setup = replace(self._setup, alignment=alignment)
        return self._setup

    def series(self, number: int) -> Series:
        """Return the judged rows of the series with this number, after ``complete_setup``."""
        spec = self._spec.series[number]
        keys = [(number, point) for point in range(len(spec.sizes_bytes))]
        rows = [row for row in map(self._row, keys) if row is not None]
        judged = rows
        if not spec.algorithm:
            judged = [
                replace(row, judgement=judge(row, rows, self._setup, spec.group_size))
                for row in rows
            ]
        missing = len(keys) - len(rows)
        error = ""
        if missing and not self._is_spent:
            why = self.error or "The measurement was interrupted"
            error = f"{why}: {missing} of {len(keys)} sizes are missing."
        clocks = {self._samples[key].clock for key in keys if key in self._samples}
        clock = ", ".join(sorted(clocks))
        return replace(described(spec), rows=tuple(judged), clock=clock, error=error)

    def _row(self, key: Key) -> SizeRow | None:
        """Return the row of this size; None until a launch has timed it.

        If the budget was spent before, the few times of the first launch are taken.
        """
        samples = self._samples.get(key)
        if samples is None or not (samples.times_s or self._is_spent):
            return None
        times_s = [samples.times_s[launch] for launch in sorted(samples.times_s)]
        series = self._spec.series[key[0]]
        size = series.sizes_bytes[key[1]]
        op = series.at(size)[0]
        return make_row(
            times_s or [samples.first_s],
            self._spec.precision,
            size_bytes=size,
            elements=size // DTYPES[op.dtype].itemsize,
            busbw_factor=series.operation.traffic(op).busbw_factor,
            checked=samples.checked,
            wrong=samples.wrong,
        )


def described(spec: SeriesSpec) -> Series:
    """Return a series without rows."""
    traffic = spec.operation.traffic(spec.smallest)
    return Series(spec, busbw_formula=traffic.busbw_formula, payload_is=traffic.payload_is)


def make_row(times_s: Sequence[Sequence[float]], precision: float, **known: Any) -> SizeRow:
    """Return a row with quantiles over all iterations and the interval over the launches.

    Args:
        times_s: Times, one sequence per launch; at least one time.
        precision: Largest half-width of a steady interval, as a share of the median.
        known: Other fields of the row.
    """
    launches = tuple(tuple(times) for times in times_s if len(times))
    ordered = sorted(time for times in launches for time in times)
    middle = quantile(ordered, 0.5)
    ends = interval([median(times) for times in launches])
    if ends is not None:  # with unequal launches it may miss the overall median
        ends = (min(ends[0], middle), max(ends[1], middle))
    row = SizeRow(
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


# ------------------------------------------------------------------ the measurements of each launch


def keys_of(spec: BenchSpec, backend: str) -> list[Key]:
    """Return every size of every series of this backend."""
    return [
        (number, point)
        for number, series in enumerate(spec.series)
        if series.backend == backend
        for point in range(len(series.sizes_bytes))
    ]


def first_launch(spec: BenchSpec, backend: str, within_s: float = math.inf) -> Measurements:
    """Return the first launch: verify every size, and time it to plan the later launches.

    All series start with their smallest size, which is measured in any case. If time runs out, the
    largest sizes of all are left out.

    Args:
        spec: Spec of the measurement.
        backend: Backend to measure.
        within_s: Seconds after rank 0's start, after which sizes are left out.
    """
    order = sorted(keys_of(spec, backend), key=lambda key: (key[1], key[0]))
    limits = [within_s if point else math.inf for _, point in order]
    return tuple(
        Measurement(*key, 0, CALIBRATION_ITERS, warmup(spec, key), within_s=limit)
        for key, limit in zip(order, limits, strict=True)
    )


def timed_launch(
    spec: BenchSpec,
    launch: int,
    counts: dict[Key, int],
    within_s: float = math.inf,
    seconds: float = 0.0,
) -> Measurements:
    """Return a timed launch; every second one takes the sizes in reverse order.

    Args:
        spec: Spec of the measurement.
        launch: Number of the launch, starting at 1.
        counts: Iterations of each size that needs more times.
        within_s: Seconds after rank 0's start, after which sizes are skipped.
        seconds: Time per size that the ranks fill, if its count is 0.
    """
    return tuple(
        Measurement(*key, launch, counts[key], warmup(spec, key), seconds, within_s)
        for key in sorted(counts, reverse=launch % 2 == 0)
    )


def single_world(spec: BenchSpec, backend: str, budget_s: float = math.inf) -> Measurements:
    """Return the measurements of a single world, in which blocks replace launches.

    Args:
        spec: Spec of the measurement.
        backend: Backend to measure.
        budget_s: Seconds for all of them; infinite with ``iters``.
    """
    measurements = first_launch(spec, backend, FIRST_SHARE * budget_s)
    keys = keys_of(spec, backend)
    launches = spec.fixed_launches or DEFAULT_LAUNCHES
    seconds = (1 - FIRST_SHARE) * budget_s / (launches * max(1, len(keys)))
    for launch in range(1, launches + 1):
        count = 0 if spec.iters is None else share_of(spec.iters, launch, launches)
        counts = dict.fromkeys(keys, count)
        measurements += timed_launch(spec, launch, counts, budget_s, 0.0 if count else seconds)
    return measurements


def warmup(spec: BenchSpec, key: Key) -> int:
    """Return the untimed iterations of a size: as requested, else fewer for larger sizes."""
    if spec.warmup is not None:
        return spec.warmup
    size = spec.series[key[0]].sizes_bytes[key[1]]
    return next((count for most, count in WARMUPS if size <= most), 1)


def share_of(total: int, launch: int, launches: int) -> int:
    """Return this launch's share of all iterations; the first launches may have one more."""
    equal_share, rest = divmod(total, launches)
    return equal_share + (launch <= rest)
