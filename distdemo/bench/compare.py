"""Two recordings held against each other: is it the code that changed, or only the noise?

What is independent in a recording are its launches, not its iterations: within one world all
iterations have the same cores and the same neighbours. So ratios and intervals come from the
launches' medians (``shifts``). No interval of one run can know how the next one differs as a
whole: see ``DRIFT``. What the machine itself did meanwhile is taken into account: see ``machine``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean, median

from distdemo.bench.circumstances import blocks, differences, warnings
from distdemo.bench.comparing import (
    ComparedRow,
    ComparedSeries,
    Comparison,
    Judged,
    Lonely,
    Overall,
    Rule,
    Side,
)
from distdemo.bench.machine import Launches, Machine, lacking, reason_for, sentences
from distdemo.bench.recorded import RecordedRow, RecordedSeries, Recording, SeriesKey
from distdemo.bench.shifts import Block, Shift, blocked, critical_of, sizes_of
from distdemo.bench.verdicts import DRIFT, ERROR, MOST_ERROR, SERIES_DRIFT, error_of, judged
from distdemo.errors import UsageError


def compare(old: Recording, new: Recording, rule: Rule) -> Comparison:
    """What changed from the old to the new recording.

    Raises:
        UsageError: they have no size of any series in common.
    """
    pairs = _pairs(old, new)
    count = sum(len(_common(*pair)) for pair in pairs)
    if not count:
        raise _nothing_in_common(old, new)
    machine = Machine(old, new, rule)
    judge = _Judge(machine, count, len(pairs))
    series = tuple(judge.series(*pair) for pair in pairs)
    differ, gauges = differences(old, new), machine.whole()
    return Comparison(
        old=old.path,
        new=new.path,
        rule=rule,
        series=series,
        confidence=judge.confidence,
        each=judge.each,
        lonely=tuple(_lonely(old, new)),
        differences=differ,
        gauges=gauges,
        warnings=(*warnings(old, new, differ), *sentences(gauges, series, rule.threshold)),
        notes=tuple(_notes(machine, series)),
    )


def _notes(machine: Machine, series: Sequence[ComparedSeries]) -> Iterator[str]:
    old, new = machine.old, machine.new
    yield from (*old.notes, *new.notes)
    yield from blocks(old, new)
    yield from lacking(old, new)
    for backend in dict.fromkeys(each.key.backend for each in series):
        yield from machine.flips(backend)
    yield from _blind(series, machine.rule)


def _blind(series: Sequence[ComparedSeries], rule: Rule) -> Iterator[str]:
    """That a change of the threshold's size would hardly show."""
    rows = [row for each in series for row in each.rows]
    parts = [
        f"{len(wide)} of {len(found)} {what}"
        for what, found in (("series", [each.overall for each in series]), ("sizes", rows))
        if (wide := [each for each in found if _is_wide(each, rule)])
    ]
    if parts:
        yield (
            f"A change of {rule.threshold:.0%} could go unseen in {' and '.join(parts)}: their "
            "launches are few, or scatter widely. Measure both with more --launches."
        )


def _is_wide(found: Judged, rule: Rule) -> bool:
    if found.interval is None:
        return True
    low, high = found.interval
    return high / low > (1 + rule.threshold) ** 2


class _Judge:
    """Decides what is a change, with the probability of error that is left for each.

    Args:
        machine: what the machine itself did meanwhile, and what counts as a change.
        rows: that are judged, of all series.
        series: that are judged.
    """

    def __init__(self, machine: Machine, rows: int, series: int) -> None:
        self._machine = machine
        self._rule = machine.rule
        self._rows = rows
        self._series = series
        self._spent: list[float] = []

    @property
    def confidence(self) -> float | None:
        """With which all intervals of rows hold together, at least."""
        return max(0.0, 1 - sum(self._spent)) if self._spent else None

    @property
    def each(self) -> float | None:
        """With which each of them holds by itself, at least."""
        return 1 - max(self._spent) if self._spent else None

    def series(self, old: RecordedSeries, new: RecordedSeries) -> ComparedSeries:
        """One series that both have."""
        pairs = _common(old, new)
        rows = tuple(self._row(old.key.backend, *pair) for pair in pairs)
        return ComparedSeries(old.key, rows, self._overall(old.key.backend, pairs))

    def _row(self, backend: str, old: RecordedRow, new: RecordedRow) -> ComparedRow:
        sample = _Sample(backend, old.by_launch, new.by_launch)
        found, alike, error = self._shift(sample, self._rows, MOST_ERROR)
        if found.interval is not None:
            self._spent.append(error)
        gauge = reason_for(found, old.size, self._machine.shifts(backend, alike))
        fields = judged(found, self._rule, DRIFT, _counts(alike), gauge)
        return ComparedRow(**fields, size=old.size, old=old.seconds, new=new.seconds)

    def _overall(self, backend: str, pairs: Sequence[tuple[RecordedRow, RecordedRow]]) -> Overall:
        sample = _Sample(backend, *means(pairs))
        found, alike, _ = self._shift(sample, self._series, ERROR)
        gauge = reason_for(found, pairs[-1][0].size, self._machine.shifts(backend, alike))
        return Overall(**judged(found, self._rule, SERIES_DRIFT, _counts(alike), gauge))

    def _shift(
        self, sample: _Sample, count: int, most: float
    ) -> tuple[Shift, list[Launches], float]:
        """The ratio, the launches that it comes from, and the probability that it has to err.

        Launches of the same state of the machine are compared; all with all if these are too few.

        Args:
            sample: times.
            count: of the ratios that share ``most``.
            most: as ``error_of`` has it.
        """
        every = tuple(sample.old), tuple(sample.new)
        alike = self._machine.alike(sample.backend, every)
        error = error_of(sizes_of(sample.times(alike)), count, most)
        if not critical_of(sizes_of(sample.times(alike)), error):
            alike = [every]
            error = error_of(sizes_of(sample.times(alike)), count, most)
        return blocked(sample.times(alike), error), alike, error


@dataclass(frozen=True, slots=True)
class _Sample:
    """Times of an old and a new recording, by the places of their launches."""

    backend: str
    old: Mapping[int, float]
    new: Mapping[int, float]

    def times(self, alike: Sequence[Launches]) -> list[Block]:
        """Of these launches."""
        return [
            ([self.old[place] for place in old], [self.new[place] for place in new])
            for old, new in alike
        ]


def _counts(alike: Sequence[Launches]) -> tuple[int, int]:
    """How many launches are in them."""
    return sum(len(old) for old, _ in alike), sum(len(new) for _, new in alike)


def means(
    pairs: Sequence[tuple[RecordedRow, RecordedRow]],
) -> tuple[dict[int, float], dict[int, float]]:
    """Each launch's geometric mean over the sizes, of the old and of the new recording.

    A time counts as a multiple of what is usual at its size, so that a launch that left out some
    sizes, steady by then, compares with one that has them all. One that has less than half of them
    is left out.
    """
    usual = [median(old.launches) for old, _ in pairs]
    old, new = (_means([pair[side] for pair in pairs], usual) for side in (0, 1))
    return old, new


def _means(rows: Sequence[RecordedRow], usual: Sequence[float]) -> dict[int, float]:
    found = {}
    for place, launch in enumerate(zip_longest(*(row.times for row in rows), fillvalue=())):
        parts = [
            math.log(median(times) / each)
            for times, each in zip(launch, usual, strict=True)
            if times
        ]
        if parts and 2 * len(parts) >= len(rows):
            found[place] = math.exp(fmean(parts))
    return found


# ---------------------------------------------------------------------------------------- matching


def _pairs(old: Recording, new: Recording) -> list[tuple[RecordedSeries, RecordedSeries]]:
    """The series that both have with a size in common, in the new one's order."""
    before = {series.key: series for series in old.series}
    both = [(before[series.key], series) for series in new.series if series.key in before]
    return [pair for pair in both if _common(*pair)]


def _common(old: RecordedSeries, new: RecordedSeries) -> list[tuple[RecordedRow, RecordedRow]]:
    before = {row.size: row for row in old.rows}
    return [(before[row.size], row) for row in new.rows if row.size in before]


def _lonely(old: Recording, new: Recording) -> Iterator[Lonely]:
    """What one of them alone has."""
    sides: tuple[tuple[Side, Recording, Recording], ...] = (("old", old, new), ("new", new, old))
    for where, here, there in sides:
        others = {each.key: {row.size for row in each.rows} for each in there.series}
        for series in here.series:
            known = others.get(series.key, set())
            sizes = tuple(row.size for row in series.rows if row.size not in known)
            if sizes:
                yield Lonely(where, series.key, sizes, whole=series.key not in others)


def _nothing_in_common(old: Recording, new: Recording) -> UsageError:
    first, second = (_words(each.series[0].key) for each in (old, new))
    if first == second:
        first, second = (_sizes(each.series[0]) for each in (old, new))
    return UsageError(
        f"{old.path} and {new.path} have no row in common.",
        f"The old one has {first}, the new one {second}.",
        "Measure the same op, backend, ranks, dtype and sizes in both.",
    )


def _words(key: SeriesKey) -> str:
    waits = " async" if key.asynchronous else ""
    how = " in place" if key.in_place else " out of place"
    data = f" in {key.dtype}" if key.dtype else ""
    who = f" from rank {key.src} to {key.dst}" if key.src is not None else ""
    what = f"{key.command}{f' {key.pattern}' if key.pattern not in (None, 'pair') else ''}"
    return f"{key.backend} {what}{waits}{how if data else ''} on {key.n} ranks{who}{data}"


def _sizes(series: RecordedSeries) -> str:
    return f"{series.rows[0].size} to {series.rows[-1].size} bytes"
