"""Launcher side of ``bench``: start worlds until every median is steady or the budget is spent.

The first world of each backend verifies every size and times it briefly; later worlds measure.
Results are collected as they arrive, so a measurement that ends early (a rank dies, Ctrl-C) keeps
everything measured before.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from distdemo import backends
from distdemo.bench.judge import judge
from distdemo.bench.rank import Key, Launch, Launches, Sample, bench
from distdemo.bench.records import BenchReport, BenchSpec, Series, Setup, SizeRow, StreamLimit
from distdemo.dtypes import DTYPES
from distdemo.errors import Terminated
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.measure.machine import LaunchLoad, available_cores, environment, taken_cores
from distdemo.measure.statistics import FEWEST_LAUNCHES, interval, median, quantile
from distdemo.versions import versions

OnProgress = Callable[[int, int, str], object]
"""Callback with the percentage done, the number of wrong elements and the current activity."""
LAUNCHES = 12
"""Launches that the budget is divided among. The interval of 12 medians leaves out the two smallest
and the two largest; that of 8 leaves out none."""
LAUNCHES_OF_FIXED = 6  # that a fixed number of iterations is divided among
MOST_LAUNCHES = 40  # per backend
FIRST_SHARE = 0.5  # of the budget that the first launch may take
START_S = 0.3  # of a launch that aren't spent on iterations
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
    sweeps = [
        Sweep(spec, world, start, began_s + world.deadline)
        for world in worlds
        if keys_of(spec, world.backend)
    ]
    interrupted = False
    try:
        for number, sweep in enumerate(sweeps):
            # Every node plans the first world; the start times of their processes differ.
            left_s = max(0.0, spec.budget_s - (monotonic() - began_s if number else 0.0))
            sizes = [len(keys_of(spec, other.world.backend)) for other in sweeps[number:]]

            def show(share: float, activity: str, number: int = number) -> None:
                if on_progress is not None:
                    wrong = sum(times.wrong for other in sweeps for times in other.times.values())
                    on_progress(int(100 * (number + share) / len(sweeps)), wrong, activity)

            sweep.run(left_s * sizes[0] / sum(sizes), show, one_world=one_world)
    except (KeyboardInterrupt, Terminated):
        interrupted = True
    libraries = versions()
    results = [Series(series) for series in spec.series]
    for sweep in sweeps:
        libraries |= backends.versions_of(sweep.world)
        sweep.complete(interrupted=interrupted)
        for number, series in enumerate(spec.series):
            if series.backend == sweep.world.backend:
                results[number] = sweep.series(number)
    return BenchReport(
        spec,
        tuple(results),
        tuple(sweep.setup for sweep in sweeps),
        next((sweep.failed for sweep in sweeps if sweep.failed), None),
        monotonic() - began_s,
        interrupted,
        environment(gpu=any(sweep.world.device != "cpu" for sweep in sweeps)),
        libraries,
        (ONE_WORLD_NOTE,) if one_world else (),
    )


def keys_of(spec: BenchSpec, backend: str) -> list[Key]:
    """Return every size of every series of this backend, the smallest sizes of all first.

    If the budget is too small, the largest sizes of all series are left out.
    """
    keys = [
        (number, point)
        for number, series in enumerate(spec.series)
        if series.backend == backend
        for point in range(len(series.sizes_bytes))
    ]
    return sorted(keys, key=lambda key: (key[1], key[0]))


@dataclass(slots=True)
class SizeTimes:
    """Times of one size of one series.

    Attributes:
        by_launch: Times of the slowest rank by launch, one per iteration.
    """

    by_launch: dict[int, list[float]] = field(default_factory=dict)
    checked: int = 0
    wrong: int = 0


class Sweep:
    """Measurement of all sizes on one backend: its launches and what their ranks send.

    Args:
        spec: Spec of the measurement.
        world: World to start again and again.
        start: Function that starts it.
        end_s: Time at which the measurement must have ended.

    Attributes:
        times: Times of the measured sizes.
        failed: Report of the world that failed.
        error: Reason why the measurement stopped; empty if it is complete or the budget is spent.
    """

    def __init__(
        self, spec: BenchSpec, world: WorldSpec, start: Callable[..., WorldReport], end_s: float
    ) -> None:
        self.world = world
        self.times: dict[Key, SizeTimes] = {}
        self.failed: WorldReport | None = None
        self.error = ""
        size = world.world_size
        self.setup = Setup(
            world.backend, world.device, size, cores=available_cores(), ranks_per_host=size
        )
        self._spec = spec
        self._start = start
        self._end_s = end_s
        self._hosts: Sequence[str] = ()
        self._pending: dict[tuple[int, Key], dict[int, Sample]] = {}  # by launch, size and rank
        self._loads: dict[int, dict[int, LaunchLoad]] = {}  # by launch and rank
        self._limits: list[StreamLimit] = []

    # ----------------------------------------------------------------------------------- launches

    def run(self, budget_s: float, show: Callable[[float, str], None], *, one_world: bool) -> None:
        """Start worlds until all medians are steady, the budget is spent, or a world fails.

        Args:
            budget_s: Seconds for this backend; ignored with ``iters``.
            show: Callback on messages with the share that is done and the current activity.
            one_world: True if only one world can be started.
        """
        iters = self._spec.iters
        launches = LAUNCHES if iters is None else min(LAUNCHES_OF_FIXED, iters)
        self._planned_launches = launches + 1
        self._show = show
        budget_s = budget_s if iters is None else ENDLESS_S
        began_s = monotonic()
        sizes = tuple(keys_of(self._spec, self.world.backend))
        plan = [Launch(0, sizes, 0, 0.0, FIRST_SHARE * budget_s)]
        if one_world:
            seconds = (1 - FIRST_SHARE) * budget_s / (launches * len(sizes))
            plan += [
                _timed_launch(number, sizes, iters, launches, seconds, budget_s)
                for number in range(1, launches + 1)
            ]
            self._run_world(tuple(plan))
            return
        succeeded = self._run_world(tuple(plan))
        slot_s = (budget_s - (monotonic() - began_s)) / launches
        last_s = min(slot_s, START_S)  # of the last launch, as long as the next one
        for number in range(1, 1 + (MOST_LAUNCHES if iters is None else launches)):
            left_s = budget_s - (monotonic() - began_s)
            sizes = self._unsteady(number)
            if not succeeded or not sizes or left_s < last_s:
                return
            seconds = (slot_s - START_S) / len(sizes)
            launch = _timed_launch(number, sizes, iters, launches, seconds, left_s)
            started_s = monotonic()
            succeeded = self._run_world((launch,))
            last_s = monotonic() - started_s

    def _unsteady(self, number: int) -> tuple[Key, ...]:
        """Return the sizes to time in this launch; steady ones are left out after six launches."""
        keys = tuple(key for key in keys_of(self._spec, self.world.backend) if key in self.times)
        if self._spec.iters is not None or number <= FEWEST_LAUNCHES:
            return keys
        return tuple(key for key in keys if not self._row(key).steady)

    def _run_world(self, launches: Launches) -> bool:
        """Run one world and return True if it succeeded."""
        left_s = self._end_s - monotonic()
        if left_s <= 0:
            self.error = f"The time limit of {self.world.deadline:g} s was reached."
            return False
        report = self._start(
            replace(self.world, deadline=max(0.1, round(left_s, 1))),
            bench,
            (self._spec, launches),
            on_message=self._on_message,
        )
        self._hosts = report.hosts
        self.setup = replace(
            self.setup,
            launches=self.setup.launches + 1,
            start_method=report.start_method,
            engine=report.engine,
            ranks_per_host=max(
                map(report.hosts.count, report.hosts), default=self.world.world_size
            ),
        )
        if not report.ok:
            self.failed = report
            self.error = "A world failed."
        return report.ok

    # ----------------------------------------------------------------------------------- messages

    def _on_message(self, rank: int, message: StreamLimit | Sample | LaunchLoad | None) -> None:
        """Record a message of a rank; None is a heartbeat."""
        if isinstance(message, StreamLimit):
            self._limits.append(message)
        elif isinstance(message, LaunchLoad):
            self._loads.setdefault(message.launch, {})[rank] = message
        elif isinstance(message, Sample):
            place = message.launch, message.key
            samples = self._pending.setdefault(place, {})
            samples[rank] = message
            if len(samples) == self.world.world_size:
                self._add(message.launch, message.key, list(self._pending.pop(place).values()))

    def _add(self, launch: int, key: Key, samples: Sequence[Sample]) -> None:
        """Record the samples of all ranks: the time of an iteration is that of the slowest one."""
        by_rank = [array("d", sample.took) for sample in samples]
        times = self.times.setdefault(key, SizeTimes())
        times.by_launch.setdefault(launch, []).extend(map(max, zip(*by_rank, strict=True)))
        times.checked += sum(sample.checked for sample in samples)
        times.wrong += sum(sample.wrong for sample in samples)
        share = min(1.0, self.setup.launches / self._planned_launches)
        self._show(share, self._spec.series[key[0]].phase(key[1]))

    # ------------------------------------------------------------------------------------- results

    def complete(self, *, interrupted: bool) -> None:
        """Complete the set-up at the end of the measurement.

        Args:
            interrupted: True if a signal ended the measurement.
        """
        size = self.world.world_size
        if interrupted and not self.error:
            self.error = "The measurement was interrupted."
        loads = [
            [ranks[rank] for rank in range(size)]
            for _, ranks in sorted(self._loads.items())
            if len(ranks) == size
        ]
        self.setup = replace(self.setup, taken_cores=taken_cores(loads, self._hosts))
        if len(self._limits) == size:
            limit = StreamLimit(
                min(limit.bandwidth_bytes_per_s for limit in self._limits),
                max(limit.latency_s for limit in self._limits),
            )
            self.setup = replace(self.setup, limit=limit)

    def series(self, number: int) -> Series:
        """Return the judged rows of the series with this number, after ``complete``."""
        spec = self._spec.series[number]
        keys = [(number, point) for point in range(len(spec.sizes_bytes))]
        rows = [self._row(key) for key in keys if key in self.times and self._is_timed(key)]
        if not spec.algorithm:
            rows = [judge(row, self.setup) for row in rows]
        missing = len(keys) - len(rows)
        is_cut = missing and self.error
        error = f"{self.error} {missing} of {len(keys)} sizes are missing." if is_cut else ""
        return Series(spec, tuple(rows), error)

    def _is_timed(self, key: Key) -> bool:
        """Return True if a launch has timed it, or if the budget was spent before one could."""
        return len(self.times[key].by_launch) > 1 or not self.error

    def _row(self, key: Key) -> SizeRow:
        """Return the row of this size; the first launch counts only if there is no other."""
        times = self.times[key]
        launches = sorted(times.by_launch)
        series = self._spec.series[key[0]]
        size = series.sizes_bytes[key[1]]
        spec = series.at(size)
        return make_row(
            [times.by_launch[launch] for launch in launches[1:] or launches],
            size_bytes=size,
            elements=size // DTYPES[spec.dtype].itemsize,
            busbw_factor=series.operation.traffic(spec).busbw_factor,
            checked=times.checked,
            wrong=times.wrong,
        )


def _timed_launch(
    number: int,
    sizes: tuple[Key, ...],
    iters: int | None,
    launches: int,
    seconds: float,
    until_s: float,
) -> Launch:
    """Return a launch that times these sizes; every second one takes them in reverse order.

    Args:
        number: Number of the launch, starting at 1.
        sizes: Sizes to time.
        iters: Iterations in all launches together; None to fill ``seconds``.
        launches: Number of launches.
        seconds: Time for each size.
        until_s: Seconds after rank 0's start, after which larger sizes are skipped.
    """
    iterations = 0 if iters is None else iters // launches + (number <= iters % launches)
    order = sizes[::-1] if number % 2 == 0 else sizes
    return Launch(number, order, iterations, max(LEAST_S, seconds), until_s)


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
