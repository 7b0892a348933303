"""Two recordings held against each other: is it the code that changed, or only the noise?

What is independent in a recording are its launches, not its iterations: within one world all
iterations have the same cores and the same neighbours. So ratios and intervals come from the
launches' medians (``shifts``). No interval of one run can know how the next one differs as a
whole: see ``DRIFT``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from statistics import fmean, median
from typing import Any

from distdemo.comparing import (
    ComparedRow,
    ComparedSeries,
    Comparison,
    Judged,
    Lonely,
    Overall,
    Rule,
    Side,
    Verdict,
)
from distdemo.errors import UsageError
from distdemo.programs.bench.circumstances import blocks, differences, warnings
from distdemo.programs.bench.shifts import Shift, least_error, shift
from distdemo.recorded import RecordedRow, RecordedSeries, Recording, SeriesKey

ERROR = 0.05
"""The probability that one of all rows' intervals misses its ratio; parted among the rows."""
MOST_ERROR = 0.10
"""The same at most, where the launches are too few for less, ..."""
OWN_ERROR = 0.01
"""... but for this much for each interval. Samples of 6 and 6 launches know no other than the
widest, which misses with 2/924: without it nothing could be told of more than 46 rows. How often
all intervals hold together is then less, and is said."""
DRIFT = 0.05
"""A row's interval has to stay so far away from 1 for a change: as much do two runs on one machine
differ in all rows at once, by what was in its caches, its heat and its neighbours."""
SERIES_DRIFT = 0.02
"""The same for the ratio over all sizes; more would miss changes of 20 %."""


def compare(old: Recording, new: Recording, rule: Rule) -> Comparison:
    """What changed from the old to the new recording.

    Raises:
        UsageError: they have no size of any series in common.
    """
    pairs = _pairs(old, new)
    count = sum(len(_common(*pair)) for pair in pairs)
    if not count:
        raise _nothing_in_common(old, new)
    judge = _Judge(rule, count, len(pairs))
    series = tuple(judge.series(*pair) for pair in pairs)
    differ = differences(old, new)
    return Comparison(
        old=old.path,
        new=new.path,
        rule=rule,
        series=series,
        confidence=judge.confidence,
        each=judge.each,
        lonely=tuple(_lonely(old, new)),
        differences=differ,
        warnings=warnings(old, new, differ),
        notes=(*old.notes, *new.notes, *blocks(old, new), *_blind(series, rule)),
    )


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
        rule: what counts as one.
        rows: that are judged, of all series.
        series: that are judged.
    """

    def __init__(self, rule: Rule, rows: int, series: int) -> None:
        self._rule = rule
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
        rows = tuple(self._row(before, after) for before, after in pairs)
        return ComparedSeries(old.key, rows, self._overall(pairs))

    def _row(self, old: RecordedRow, new: RecordedRow) -> ComparedRow:
        before, after = old.launches, new.launches
        error = _error(len(before), len(after), self._rows, MOST_ERROR)
        found = shift(before, after, error)
        if found.interval is not None:
            self._spent.append(error)
        judged = self._judged(found, DRIFT, (len(before), len(after)))
        return ComparedRow(**judged, size=old.size, old=old.seconds, new=new.seconds)

    def _overall(self, pairs: Sequence[tuple[RecordedRow, RecordedRow]]) -> Overall:
        before, after = means(pairs)
        found = shift(before, after, _error(len(before), len(after), self._series, ERROR))
        return Overall(**self._judged(found, SERIES_DRIFT, (len(before), len(after))))

    def _judged(self, found: Shift, drift: float, launches: tuple[int, int]) -> dict[str, Any]:
        """The fields of what is judged."""
        limit = self._rule.fail_over
        fails = limit is not None and _verdict(found, limit, drift) == "slower"
        return {
            "ratio": found.ratio,
            "interval": found.interval,
            "verdict": _verdict(found, self._rule.threshold, drift),
            "fails": fails,
            "launches": launches,
            "suspect": limit is not None and not fails and found.ratio > 1 + limit,
        }


def _error(old: int, new: int, count: int, most: float) -> float:
    """The probability of missing that one of so many intervals gets.

    Args:
        old: launches.
        new: likewise.
        count: of the intervals.
        most: for all of them together, unless ``OWN_ERROR`` for each is more.
    """
    fewest = least_error(old, new)
    return max(ERROR / count, min(fewest, max(most / count, OWN_ERROR)))


def _verdict(found: Shift, threshold: float, drift: float) -> Verdict:
    """A change is beyond the threshold, and its interval beyond what runs differ by anyway.

    A ratio beyond the threshold whose interval is not is neither a change nor none.
    """
    if found.interval is None:
        return "cannot be told"
    low, high = found.interval
    if found.ratio > 1 + threshold:
        return "slower" if low > 1 + drift else "cannot be told"
    if found.ratio < 1 / (1 + threshold):
        return "faster" if high < 1 / (1 + drift) else "cannot be told"
    return "no change"


def means(
    pairs: Sequence[tuple[RecordedRow, RecordedRow]],
) -> tuple[list[float], list[float]]:
    """Each launch's geometric mean over the sizes, of the old and of the new recording.

    A time counts as a multiple of what is usual at its size, so that a launch that left out some
    sizes, steady by then, compares with one that has them all. One that has less than half of them
    is left out.
    """
    usual = [median(old.launches) for old, _ in pairs]
    old, new = (_means([pair[side] for pair in pairs], usual) for side in (0, 1))
    return old, new


def _means(rows: Sequence[RecordedRow], usual: Sequence[float]) -> list[float]:
    found = []
    for launch in zip_longest(*(row.times for row in rows), fillvalue=()):
        parts = [
            math.log(median(times) / each)
            for times, each in zip(launch, usual, strict=True)
            if times
        ]
        if parts and 2 * len(parts) >= len(rows):
            found.append(math.exp(fmean(parts)))
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
