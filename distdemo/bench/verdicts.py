"""Which ratio of two recordings is a change: the rules, and the chances of error."""

from __future__ import annotations

import math
from typing import Any

from distdemo.bench.comparing import GaugeShift, Rule, Verdict
from distdemo.bench.machine import without
from distdemo.bench.shifts import Shift, Sizes, least_error_of

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
REACH = 3
"""Times the threshold that the interval of "no change" may reach, either way: beyond that a change
hides in it that nobody would call none."""


def judged(
    found: Shift, rule: Rule, drift: float, launches: tuple[int, int], gauge: GaugeShift | None
) -> dict[str, Any]:
    """The fields of ``comparing.Judged``.

    Args:
        found: the ratio.
        rule: what counts as a change.
        drift: by so much runs differ anyway.
        launches: that it comes from, old and new.
        gauge: what of the machine may explain it; None: the machine was the same.
    """
    limit = rule.fail_over
    verdict, explained = _verdict_beside(found, rule.threshold, drift, gauge)
    failing, excused = _verdict_beside(found, math.inf if limit is None else limit, drift, gauge)
    fails = failing == "slower"
    return {
        "ratio": found.ratio,
        "interval": found.interval,
        "verdict": verdict,
        "fails": fails,
        "launches": launches,
        "suspect": limit is not None and not fails and found.ratio > 1 + limit,
        "explained_by": gauge if explained or excused else None,
    }


def _verdict_beside(
    found: Shift, threshold: float, drift: float, gauge: GaugeShift | None
) -> tuple[Verdict, bool]:
    """The verdict, and whether the machine's change is why it can't be told."""
    verdict = _verdict(found, threshold, drift)
    if gauge is None or verdict not in ("slower", "faster"):
        return verdict, False
    if _verdict(without(found, gauge), threshold, drift) == verdict:
        return verdict, False
    return "cannot be told", True


def _verdict(found: Shift, threshold: float, drift: float) -> Verdict:
    """A change is beyond the threshold, and its interval beyond what runs differ by anyway.

    None is within it, and its interval within ``REACH`` times the threshold, both ways. All else,
    and what has no interval, cannot be told.
    """
    if found.interval is None:
        return "cannot be told"
    low, high = found.interval
    if found.ratio > 1 + threshold:
        return "slower" if low > 1 + drift else "cannot be told"
    if found.ratio < 1 / (1 + threshold):
        return "faster" if high < 1 / (1 + drift) else "cannot be told"
    most = 1 + REACH * threshold
    return "no change" if 1 / most <= low and high <= most else "cannot be told"


def error_of(sizes: Sizes, count: int, most: float) -> float:
    """The probability of missing that one of so many intervals gets.

    Args:
        sizes: launches, old and new, of each block of them.
        count: of the intervals.
        most: for all of them together, unless ``OWN_ERROR`` for each is more.
    """
    fewest = least_error_of(sizes)
    return max(ERROR / count, min(fewest, max(most / count, OWN_ERROR)))
