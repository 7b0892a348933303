"""Launcher side of ``bench``: start worlds until every median is steady or the budget is spent.

The first world of each backend verifies every size and times it briefly; later worlds measure.
Results are collected as they arrive, so a measurement that ends early (a rank dies, Ctrl-C) keeps
everything measured before.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from distdemo import backends
from distdemo.bench.judge import judge
from distdemo.bench.rank import Key, Launch, Launches, Sample, bench
from distdemo.bench.records import BenchReport, BenchSpec, Series, Setup, SizeRow, StreamLimit
from distdemo.dtypes import DTYPES
from distdemo.errors import Terminated, UsageError
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.machine import LaunchLoad, available_cores, environment, taken_cores
from distdemo.measure.statistics import FEWEST_LAUNCHES, interval, median, quantile
from distdemo.versions import versions

OnProgress = Callable[[int, int, str], object]
"""Callback with the number of launches, the number of failures, and the current activity."""
MOST_LAUNCHES = 40  # per backend
FIRST_SHARE = 0.5  # of the budget that the first launch may take
START_S = 0.3  # of a world, until its ranks have met
LEAST_S = 0.01  # for the iterations of a size in a launch
ENDLESS_S = 1e9
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
    """
    began_s = monotonic()
    used = [world for world in worlds if keys_of(spec, world.backend)]
    sweeps = [
        Sweep(spec, world, start, began_s + world.deadline, on_progress, number)
        for number, world in enumerate(used)
    ]
    interrupted = False
    try:
        for sweep in sweeps:
            sweep.run(spec.budget_s / len(sweeps), one_world=one_world)
    except (KeyboardInterrupt, Terminated):
        interrupted = True
    libraries = versions()
    setups = [sweep.setup() for sweep in sweeps]
    results = [Series(series) for series in spec.series]
    for sweep, setup in zip(sweeps, setups, strict=True):
        libraries |= backends.versions_of(sweep.world)
        if interrupted and not sweep.error:
            sweep.error = "The measurement was interrupted."
        for number, series in enumerate(spec.series):
            if series.backend == setup.backend:
                results[number] = sweep.series(number, setup)
    return BenchReport(
        spec,
        tuple(results),
        tuple(setups),
        (ONE_WORLD_NOTE,) if one_world else (),
        world=next((sweep.failed for sweep in sweeps if sweep.failed), None),
        elapsed_s=monotonic() - began_s,
        interrupted=interrupted,
        environment=environment(gpu=any(sweep.world.device != "cpu" for sweep in sweeps)),
        versions=libraries,
    )


def keys_of(spec: BenchSpec, backend: str) -> tuple[Key, ...]:
    """Return every size of every series of this backend, the smallest sizes of all first.

    If the budget is too small, the largest sizes of all series are left out.
    """
    keys = [
        (number, point)
        for number, series in enumerate(spec.series)
        if series.backend == backend
        for point in range(len(series.sizes_bytes))
    ]
    return tuple(sorted(keys, key=lambda key: (key[1], key[0])))


class Sweep:
    """Measurement of all sizes on one backend: its launches and what their ranks send.

    Args:
        spec: Spec of the measurement.
        world: World to start again and again.
        start: Function that starts it.
        end_s: Time at which the measurement must have ended.
        on_progress: As in `measure`.
        backends_before: Number of backends measured before.

    Attributes:
        error: Reason why the measurement stopped; empty if it is complete or the budget is spent.
        last: Report of the last world; None before the first has ended.
        failed: Report of a world that failed; None for one that was only out of time.
    """

    def __init__(
        self,
        spec: BenchSpec,
        world: WorldSpec,
        start: Callable[..., WorldReport],
        end_s: float,
        on_progress: OnProgress | None,
        backends_before: int,
    ) -> None:
        self.world = world
        self.error = ""
        self.last: WorldReport | None = None
        self.failed: WorldReport | None = None
        self._spec = spec
        self._start = start
        self._end_s = end_s
        self._on_progress = on_progress
        self._sizes = keys_of(spec, world.backend)
        self._launches_before = backends_before * (1 + spec.launches)
        self._launches = 0  # worlds started
        self._has_advanced = False  # a world has sent something
        self._samples: dict[Key, dict[int, list[Sample]]] = {}  # of each rank, by size and launch
        self._loads: dict[int, dict[int, LaunchLoad]] = {}  # by launch and rank
        self._limits: list[StreamLimit] = []

    # ----------------------------------------------------------------------------------- launches

    def run(self, budget_s: float, *, one_world: bool) -> None:
        """Start worlds until all medians are steady, the budget is spent, or a world fails.

        The budget is the only limit of a launch: it is divided among its sizes, and once it is
        spent, a launch leaves out all but the smallest sizes.

        Args:
            budget_s: Seconds for this backend; ignored with ``iters``.
            one_world: True if only one world can be started.
        """
        spec = self._spec
        budget_s = budget_s if spec.iters is None else ENDLESS_S
        end_s = monotonic() + budget_s
        first = Launch(0, self._sizes, 0, 0.0, FIRST_SHARE * budget_s)
        if one_world:
            slot_s = (1 - FIRST_SHARE) * budget_s / spec.launches
            numbers = range(1, spec.launches + 1)
            blocks = (self._launch(number, self._sizes, slot_s, budget_s) for number in numbers)
            self._run_world((first, *blocks))
            return
        self._run_world((first,))
        slot_s = (end_s - monotonic()) / spec.launches - START_S
        most = MOST_LAUNCHES if spec.iters is None else spec.launches
        for number in range(1, most + 1):
            sizes = self._unsteady(number)
            left_s = end_s - monotonic() - START_S
            if self.error or not sizes or left_s < 0:
                return
            self._run_world((self._launch(number, sizes, slot_s, left_s),))

    def _launch(self, number: int, sizes: tuple[Key, ...], slot_s: float, until_s: float) -> Launch:
        """Return a launch that times these sizes; every second one takes them in reverse order."""
        iters = self._spec.iters or 0
        launches = self._spec.launches
        iterations = iters // launches + (number <= iters % launches)
        order = sizes if number % 2 else sizes[::-1]
        return Launch(number, order, iterations, max(LEAST_S, slot_s / len(sizes)), until_s)

    def _unsteady(self, number: int) -> tuple[Key, ...]:
        """Return the sizes to time in this launch; steady ones are left out after six launches."""
        keys = tuple(key for key in self._sizes if self._times(key))
        if self._spec.iters is not None or number <= FEWEST_LAUNCHES:
            return keys
        return tuple(key for key in keys if not self._row(key).steady)

    def _run_world(self, launches: Launches) -> None:
        """Run one world; set ``error`` if it doesn't succeed."""
        left_s = self._end_s - monotonic()
        out_of_time = f"The time limit of {self.world.deadline:g} s was reached."
        if left_s <= 0:
            self.error = out_of_time
            return
        world = replace(self.world, deadline=max(0.1, round(left_s, 1)))
        arguments = (self._spec, launches)
        try:
            self.last = self._start(world, bench, arguments, on_message=self._on_message)
        except UsageError as refusal:  # the system has no room for its ranks
            if not self._launches_before and not self._launches:
                raise
            self.error = f"{refusal.what} {refusal.why}"
            return
        self._launches += 1
        if self.last.ok:
            return
        if self._has_advanced and monotonic() > self._end_s:
            self.error = out_of_time
        else:
            self.error = "A world failed."
            self.failed = self.last

    def _on_message(self, rank: int, message: StreamLimit | Sample | LaunchLoad | None) -> None:
        """Record a message of a rank; None is a heartbeat."""
        self._has_advanced = True
        if isinstance(message, StreamLimit):
            self._limits.append(message)
        elif isinstance(message, LaunchLoad):
            self._loads.setdefault(message.launch, {})[rank] = message
        elif isinstance(message, Sample):
            launches = self._samples.setdefault(message.key, {})
            launches.setdefault(message.launch, []).append(message)
            if self._on_progress is not None:
                done = self._launches_before + min(self._launches, self._spec.launches)
                number, point = message.key
                self._on_progress(done, 0, self._spec.series[number].phase(point))

    # ------------------------------------------------------------------------------------- results

    def setup(self) -> Setup:
        """Return the set-up at the end of the measurement."""
        size = self.world.world_size
        hosts = self.last.hosts if self.last else ()
        loads = [
            [ranks[rank] for rank in range(size)]
            for _, ranks in sorted(self._loads.items())
            if len(ranks) == size
        ]
        limit = None
        if len(self._limits) == size:
            bandwidth = min(limit.bandwidth_bytes_per_s for limit in self._limits)
            limit = StreamLimit(bandwidth, max(limit.latency_s for limit in self._limits))
        return Setup(
            self.world.backend,
            self.world.device,
            size,
            self._launches,
            limit,
            taken_cores(loads, hosts),
            available_cores(),
            max(map(hosts.count, hosts), default=size),
        )

    def series(self, number: int, setup: Setup) -> Series:
        """Return the series with this number, judged for this set-up."""
        spec = self._spec.series[number]
        keys = [(number, point) for point in range(len(spec.sizes_bytes))]
        # If the budget was spent, the few times of the first launch count.
        fewest = 2 if self.error else 1
        rows = [self._row(key) for key in keys if len(self._times(key)) >= fewest]
        if not spec.algorithm:
            rows = [judge(row, setup) for row in rows]
        missing = len(keys) - len(rows)
        error = ""
        if self.error and missing:
            error = f"{self.error} {missing} of {len(keys)} sizes are missing."
        elif self.error and not {*keys}.isdisjoint(self._unsteady(self._launches)):
            goal = "medians are steady" if self._spec.iters is None else "iterations were timed"
            error = f"{self.error} Not all {goal}."
        return Series(spec, tuple(rows), error)

    def _times(self, key: Key) -> list[list[float]]:
        """Return the times of this size, those of the slowest rank, for each complete launch."""
        return [
            list(map(max, zip(*(array("d", sample.took) for sample in samples), strict=True)))
            for _, samples in sorted(self._samples.get(key, {}).items())
            if len(samples) == self.world.world_size
        ]

    def _row(self, key: Key) -> SizeRow:
        """Return the row of this size; the first launch counts only if there is no other."""
        launches = self._times(key)
        series = self._spec.series[key[0]]
        size = series.sizes_bytes[key[1]]
        spec = series.at(size)
        verified = self._samples[key].get(0, ())
        return make_row(
            launches[1:] or launches,
            size_bytes=size,
            elements=size // DTYPES[spec.dtype].itemsize,
            busbw_factor=series.operation.traffic(spec).busbw_factor,
            checked=sum(sample.checked for sample in verified),
            wrong=sum(sample.wrong for sample in verified),
        )


def make_row(times_s: Sequence[Sequence[float]], **known: Any) -> SizeRow:
    """Return a row with quantiles over all iterations and the interval over the launches.

    Args:
        times_s: Times, one sequence per launch; at least one time.
        known: Other fields of the row.
    """
    launches = tuple(tuple(times) for times in times_s if len(times))
    ordered = sorted(time for times in launches for time in times)
    middle = quantile(ordered, 0.5)
    ends = interval([median(times) for times in launches])
    if ends is not None:  # with unequal launches it may miss the overall median
        ends = (min(ends[0], middle), max(ends[1], middle))
    return SizeRow(
        times_s=launches,
        median_s=middle,
        min_s=ordered[0],
        p99_s=quantile(ordered, 0.99),
        max_s=ordered[-1],
        interval_s=ends,
        **known,
    )
