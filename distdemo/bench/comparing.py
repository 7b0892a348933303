"""What ``bench compare`` found: frozen records; no torch, no rich, no typer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from distdemo.bench.recorded import SeriesKey

Verdict = Literal["slower", "faster", "no change", "cannot be told"]
Side = Literal["old", "new"]

THRESHOLD = 0.10
"""A ratio within so much of 1, either way, is no change, if its interval is not far wider."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What counts as a change.

    Attributes:
        threshold: how far the ratio has to be from 1 to be called a change, a share.
        fail_over: how much slower is a failure, a share; None: nothing is.
    """

    threshold: float = THRESHOLD
    fail_over: float | None = None


@dataclass(frozen=True, slots=True)
class GaugeShift:
    """How a gauge of the machine itself stands in the new recording to that in the old one.

    Attributes:
        kind: as ``yardsticks.Gauge`` has it.
        old: the median launch, seconds.
        new: likewise.
        ratio: new over old, from the launches.
        interval: of the ratio; None: there are too few launches for one.
        moved: the machine changed by more than a verdict can bear.
    """

    backend: str
    kind: str
    old: float
    new: float
    ratio: float
    interval: tuple[float, float] | None
    moved: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """A ratio of new to old, and what to think of it.

    Attributes:
        ratio: from the launches.
        interval: of the ratio; None: there are too few launches for one.
        fails: it is slower by more than is allowed.
        launches: that it comes from, old and new.
        suspect: it looks slower by more than is allowed, but that can't be told from noise, or
            from what the machine did.
        explained_by: what of the machine may be why it changed, over the launches that it has; but
            for that it would be slower or faster, or fail. None: nothing of the machine is.
    """

    ratio: float
    interval: tuple[float, float] | None
    verdict: Verdict
    fails: bool
    launches: tuple[int, int]
    suspect: bool = False
    explained_by: GaugeShift | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow(Judged):
    """One size of one series, in both files; the ratio is that of the launches' medians.

    Attributes:
        size: bytes.
        old: median seconds over all iterations.
        new: likewise.
    """

    size: int
    old: float
    new: float


@dataclass(frozen=True, slots=True)
class Overall(Judged):
    """One series over all sizes that both have: the launches' geometric means over the sizes."""


@dataclass(frozen=True, slots=True)
class ComparedSeries:
    """One series that both files have."""

    key: SeriesKey
    rows: tuple[ComparedRow, ...]
    overall: Overall


@dataclass(frozen=True, slots=True)
class Lonely:
    """What one file alone has.

    Attributes:
        where: the file that has it.
        sizes: the series' sizes that the other file lacks.
        whole: the other file lacks the whole series.
    """

    where: Side
    key: SeriesKey
    sizes: tuple[int, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """Of the circumstances: what may be the reason for a change.

    Attributes:
        name: ``host``, ``torch``, ...
        weighty: the two files can hardly be compared because of it.
    """

    name: str
    old: str
    new: str
    weighty: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two files, held against each other.

    Attributes:
        old: the path of the older file.
        new: of the newer one.
        confidence: with which all intervals of rows hold together, at least (of many rows with few
            launches that may be nothing); None: there are none.
        each: with which each of them holds by itself, at least.
        gauges: what the machine itself did, in both files over all launches.
        lonely: what is in one file alone.
        warnings: why the files may not be comparable, in sentences.
        notes: what else a reader should know.
    """

    old: str
    new: str
    rule: Rule
    series: tuple[ComparedSeries, ...]
    confidence: float | None
    each: float | None = None
    gauges: tuple[GaugeShift, ...] = ()
    lonely: tuple[Lonely, ...] = ()
    differences: tuple[Difference, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    def count(self, verdict: Verdict) -> int:
        """Rows with this verdict."""
        return sum(row.verdict == verdict for each in self.series for row in each.rows)

    @property
    def rows(self) -> int:
        """That were compared."""
        return sum(len(each.rows) for each in self.series)

    @property
    def failing(self) -> int:
        """Rows and series that are slower by more than is allowed."""
        rows = sum(row.fails for each in self.series for row in each.rows)
        return rows + sum(each.overall.fails for each in self.series)

    @property
    def suspects(self) -> int:
        """Rows and series that look slower by more than is allowed, which can't be told."""
        rows = sum(row.suspect for each in self.series for row in each.rows)
        return rows + sum(each.overall.suspect for each in self.series)

    @property
    def ok(self) -> bool:
        """Whether nothing got slower by more than is allowed."""
        return not self.failing
