"""What ``bench compare`` found: frozen records; no torch, no rich, no typer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from distdemo.backends.contract import Transport
from distdemo.bench.recording import Difference
from distdemo.bench.records import SeriesSpec
from distdemo.encoding import derived

THRESHOLD = 0.10
"""A ratio within this share of 1 is no change, if its interval is not far wider."""


class Change(str, Enum):
    """What is known of a ratio."""

    SLOWER = "slower"
    FASTER = "faster"
    NONE = "no change"
    UNKNOWN = "cannot be told"


class Gate(str, Enum):
    """What ``--fail-over`` makes of it."""

    PASSES = "passes"
    FAILS = "fails"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True, slots=True)
class LimitShift:
    """What the machine did without torch.distributed, in both files; medians over pairs of ranks.

    Attributes:
        at_once: by all ranks at the same time; else alone.
        old_latency_s: of 8 bytes one way; None where nothing travels.
    """

    backend: str
    transport: Transport
    at_once: bool
    old_bandwidth_bytes_per_s: float
    new_bandwidth_bytes_per_s: float
    old_latency_s: float | None = None
    new_latency_s: float | None = None

    @derived
    def bandwidth_time_ratio(self) -> float:
        """New over old time of a byte: 2.0 is half the bandwidth."""
        return self.old_bandwidth_bytes_per_s / self.new_bandwidth_bytes_per_s

    @derived
    def latency_ratio(self) -> float | None:
        """New over old; None where it was not measured in both."""
        if not self.old_latency_s or not self.new_latency_s:
            return None
        return self.new_latency_s / self.old_latency_s


@dataclass(frozen=True, slots=True)
class RatioVerdict:
    """A ratio of new to old times, and what to think of it.

    Attributes:
        ratio: median of the ratios of every new launch to every old one.
        interval: of the ratio; None: there are too few launches for one.
        confidence: with which the interval holds the ratio; None: there is none.
        gate: None where ``--fail-over`` was not given.
        explained_by: the machine's limit that changed by more than this did; without that the
            change would be called one.
    """

    ratio: float
    interval: tuple[float, float] | None
    confidence: float | None
    change: Change
    old_launches: int
    new_launches: int
    gate: Gate | None = None
    explained_by: LimitShift | None = None


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One size of one series, in both files; medians over all iterations."""

    size_bytes: int
    old_median_s: float
    new_median_s: float
    outcome: RatioVerdict


@dataclass(frozen=True, slots=True)
class ComparedSeries:
    """A series that both files have.

    Attributes:
        spec: as in the new file.
        overall: all sizes together: the launches' geometric means over the sizes.
    """

    spec: SeriesSpec
    rows: tuple[ComparedRow, ...]
    overall: RatioVerdict


@dataclass(frozen=True, slots=True)
class Unmatched:
    """What one file alone has.

    Attributes:
        file: which one has it.
        sizes_bytes: that the other lacks.
        whole: the other lacks the whole series.
    """

    file: Literal["old", "new"]
    spec: SeriesSpec
    sizes_bytes: tuple[int, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class CompareReport:
    """Two files of ``bench`` side by side.

    Attributes:
        threshold: from how far a ratio is a change, a share.
        fail_over: how much slower is a failure, a share; None: nothing is.
        blocks: the files and backends of which blocks of one world stand for launches.
    """

    old_file: str
    new_file: str
    threshold: float
    fail_over: float | None
    series: tuple[ComparedSeries, ...]
    limits: tuple[LimitShift, ...] = ()
    unmatched: tuple[Unmatched, ...] = ()
    differences: tuple[Difference, ...] = ()
    blocks: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> tuple[ComparedRow, ...]:
        """Of all series."""
        return tuple(row for series in self.series for row in series.rows)

    def every(self) -> Iterator[RatioVerdict]:
        """Each series as a whole, and its sizes."""
        for series in self.series:
            yield series.overall
            yield from (row.outcome for row in series.rows)

    @derived
    def confidence(self) -> float | None:
        """With which all intervals of sizes hold together, at least; None: there are none."""
        known = [each for row in self.rows if (each := row.outcome.confidence) is not None]
        return max(0.0, 1 - sum(1 - each for each in known)) if known else None

    def is_suspect(self, found: RatioVerdict) -> bool:
        """Whether it looks slower by more than is allowed, and that cannot be told."""
        return found.gate is Gate.UNKNOWN and found.ratio > 1 + (self.fail_over or 0.0)

    @property
    def ok(self) -> bool:
        """Whether it is known that nothing got slower by more than is allowed.

        Every series as a whole has to pass, and no size may look slower than allowed.
        """
        return all(each.overall.gate in (None, Gate.PASSES) for each in self.series) and not any(
            each.gate is Gate.FAILS or self.is_suspect(each) for each in self.every()
        )
