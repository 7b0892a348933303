"""What the ranks told, put together: by size and launch, the slowest rank's times."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from distdemo import ops
from distdemo.bench.loop import Times
from distdemo.bench.old_records import BenchSpec, Row, Series
from distdemo.bench.plan import Key, Visit
from distdemo.bench.samples import Sample
from distdemo.bench.skew import SkewLog
from distdemo.bench.summary import row
from distdemo.bench.yardsticks import Overlap
from distdemo.dtypes import DTYPES
from distdemo.ops.spec import OpSpec


@dataclass(slots=True)
class Plot:
    """All that is known of one size of one series.

    Attributes:
        pace: seconds of an iteration of the last launch, the common start and stalls included.
        times: by launch, an entry an iteration: the slowest rank's.
        hidden: what computing hides, by launch.
    """

    pace: float = 0.0
    times: dict[int, list[float]] = field(default_factory=dict)
    hidden: list[Overlap] = field(default_factory=list)
    clock: str = ""
    checked: int = 0
    wrong: int = 0
    made: Row | None = None


class Harvest:
    """Collects samples, and makes rows of them.

    Args:
        spec: what is measured.
    """

    def __init__(self, spec: BenchSpec) -> None:
        self._spec = spec
        self._plots: dict[Key, Plot] = {}
        self._open: dict[Visit, dict[int, Sample]] = {}
        self._skews: dict[int, SkewLog] = {}
        self.starts: dict[str, array[float]] = {}
        """By backend: between the first and the last rank's start, an entry an iteration."""

    def add(self, rank: int, sample: Sample, *, comparable: bool) -> bool:
        """Take what a rank told; whether that completed its visit.

        Args:
            rank: who told it.
            sample: what.
            comparable: all ranks' moments are on one clock.
        """
        visit = sample.visit
        told = self._open.setdefault(visit, {})
        told[rank] = sample
        world_size = self._spec.series[visit.series].world.world_size
        if len(told) < world_size:
            return False
        del self._open[visit]
        self._complete(visit, [told[each] for each in range(world_size)], comparable=comparable)
        return True

    def row(self, key: Key) -> Row | None:
        """Of this size; None until a launch has timed it."""
        plot = self._plots.get(key)
        if plot is None or not plot.times:
            return None
        if plot.made is None:
            plot.made = self._made(key, plot)
        return plot.made

    def pace(self, key: Key) -> float:
        """How long an iteration takes with all that belongs to it, as it went last; seconds."""
        plot = self._plots.get(key)
        return 0.0 if plot is None else plot.pace

    def series(self, number: int, *, whole: bool = False) -> Series:
        """What is known of a series; its rows are not judged yet.

        Args:
            number: its place in the spec.
            whole: with what it takes a while to work out: which rank comes late.
        """
        asked = self._spec.series[number]
        keys = [(number, point) for point in range(len(asked.points))]
        rows = tuple(made for made in map(self.row, keys) if made is not None)
        log = self._skews.get(number)
        clocks = {self._plots[key].clock for key in keys if key in self._plots}
        traffic = _traffic(asked.points[-1].specs[0]) if asked.points else ("", "")
        return Series(
            asked,
            rows,
            ", ".join(sorted(clocks)),
            *traffic,
            skew=log.summary() if whole and log is not None else (),
        )

    # ------------------------------------------------------------------------------- one visit

    def _complete(self, visit: Visit, samples: Sequence[Sample], *, comparable: bool) -> None:
        """All ranks have told what they found."""
        plot = self._plots.setdefault((visit.series, visit.point), Plot())
        took, started, arrived = (
            [array("d", each) for each in column]
            for column in zip(*((s.took, s.started, s.arrived) for s in samples), strict=True)
        )
        slowest = list(map(max, zip(*took, strict=True)))
        plot.checked += sum(sample.checked for sample in samples)
        plot.wrong += sum(sample.wrong for sample in samples)
        plot.clock = samples[0].clock
        plot.made = None
        if comparable:
            self._check_meeting(visit, plot, started, took)
        told = zip(arrived, started, took, strict=True)
        plot.pace = max((Times(*each).pace for each in told), default=0.0)
        if visit.launch == 0:
            return
        plot.times.setdefault(visit.launch, []).extend(slowest)
        plot.hidden += _hidden(samples)
        if comparable:
            apart = (max(each) - min(each) for each in zip(*started, strict=True))
            backend = self._spec.series[visit.series].backend
            self.starts.setdefault(backend, array("d")).extend(apart)
            if self._spec.skew:
                self._skew(visit).add(arrived, took)

    def _check_meeting(
        self,
        visit: Visit,
        plot: Plot,
        started: Sequence[Sequence[float]],
        took: Sequence[Sequence[float]],
    ) -> None:
        """A barrier moves no data; what is verified is that nobody left before all had come."""
        spec = self._spec.series[visit.series].points[visit.point].specs[0]
        if not ops.REGISTRY[spec.op].meets or spec.members is not None:
            return
        for turn in range(len(started[0])):
            latest = max(each[turn] for each in started)
            left = [began[turn] + t[turn] for began, t in zip(started, took, strict=True)]
            plot.checked += len(left)
            plot.wrong += sum(moment < latest for moment in left)

    def _skew(self, visit: Visit) -> SkewLog:
        """Of this series, over the ranks that take part in it."""
        if visit.series not in self._skews:
            series = self._spec.series[visit.series]
            specs = series.points[visit.point].specs
            everybody = range(series.world.world_size)
            inside = [rank for spec in specs for rank in spec.members or everybody]
            lopsided = bool(ops.REGISTRY[specs[0].op].takes & {"root", "src"})
            self._skews[visit.series] = SkewLog(sorted(inside), lopsided=lopsided)
        return self._skews[visit.series]

    def _made(self, key: Key, plot: Plot) -> Row:
        series = self._spec.series[key[0]]
        point = series.points[key[1]]
        spec = point.specs[0]
        traffic = ops.REGISTRY[spec.op].traffic(spec)
        made = row(
            [plot.times[launch] for launch in sorted(plot.times)],
            size=point.size,
            elements=_elements(point.size, spec.dtype),
            factor=traffic.busbw_factor,
            precision=self._spec.precision,
            checked=plot.checked,
            wrong=plot.wrong,
        )
        return replace(made, overlap=_middle(plot.hidden))


def _traffic(spec: OpSpec) -> tuple[str, str]:
    """The formula of the busbw factor, and what S is."""
    traffic = ops.REGISTRY[spec.op].traffic(spec)
    return traffic.busbw_formula, traffic.payload_is


def _elements(size: int, dtype: str) -> int:
    return size // DTYPES[dtype].itemsize


def _hidden(samples: Sequence[Sample]) -> list[Overlap]:
    """The slowest rank's three times, of those that take part; none if they were not measured."""
    found = [sample.hidden for sample in samples if sample.hidden is not None]
    if not found:
        return []
    return [
        Overlap(
            max(each.alone for each in found),
            max(each.compute for each in found),
            max(each.together for each in found),
        )
    ]


def _middle(launches: Sequence[Overlap]) -> Overlap | None:
    """The launch in which the median share was hidden."""
    if not launches:
        return None
    return sorted(launches, key=lambda each: each.hidden)[len(launches) // 2]
