"""What ``bench`` is asked for, and what it measured: frozen records; no torch, no rich, no typer.

Times are seconds, sizes bytes, bandwidths bytes a second (1 GB/s is 1e9). The time of an iteration
is the slowest rank's, counted from a common start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distdemo.bench.yardsticks import Judgement, Overlap, Setup
from distdemo.launcher.records import WorldReport, WorldSpec
from distdemo.ops.spec import OpSpec

PRECISION = 0.05
"""Half the width of a steady median's interval, as a share of the median."""
CONFIDENCE = 0.95
"""Of every interval."""
FEWEST_LAUNCHES = 6
"""Fewer medians have no distribution-free interval of this confidence: 1 − 2·(1/2)⁶ is 97 %."""

# ---------------------------------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class Sized:
    """A series at one size: the op as every rank calls it.

    Attributes:
        size: bytes S that algbw counts, as nccl-tests counts them.
        specs: one a group that runs it at once; the whole world is one group by default.
    """

    size: int
    specs: tuple[OpSpec, ...]


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """One op in one form on one backend, over all sizes.

    Attributes:
        command: the op as it is typed, ``all-reduce``.
        form: which form of it, ``single``; ``tensor`` where there is nothing to choose.
        calls: the function of torch.distributed.
        backend: torch's name.
        world: to run it in.
        points: what is measured, the smallest first.
        in_place: the output lies in the input, or the input in the output.
        both: the op is also measured the other way, so that a view has to tell them apart.
        refused: why this backend can't; then there are no points.
    """

    command: str
    form: str
    calls: str
    world: WorldSpec
    points: tuple[Sized, ...]
    in_place: bool = False
    both: bool = False
    refused: str = ""

    @property
    def backend(self) -> str:
        """Torch's name of it."""
        return self.world.backend


@dataclass(frozen=True, slots=True)
class BenchSpec:
    """A measurement.

    Attributes:
        series: in the order in which they are shown.
        iters: timed iterations of each size, all launches together; None: until it is steady.
        warmup: iterations before the timed ones of each size, in every launch; None: as many as a
            size needs.
        budget: seconds for measuring one series; with ``iters`` it means nothing.
        precision: half the width of the interval at which a median counts as steady, a share of it.
        launches: how many worlds the iterations are spread over; None: until it is steady.
        check_every: verify again after so many timed iterations; 0: once, before the first.
        skew: say which rank comes late.
        overlap: measure what computing hides, for non-blocking calls.
        limits: measure the machine's own copies and streams too.
        profile: say what an empty op costs in the loop.
    """

    series: tuple[SeriesSpec, ...]
    iters: int | None = None
    warmup: int | None = None
    budget: float = 8.0
    precision: float = PRECISION
    launches: int | None = None
    check_every: int = 0
    skew: bool = False
    overlap: bool = False
    limits: bool = True
    profile: bool = False


# ----------------------------------------------------------------------------------------- results


@dataclass(frozen=True, slots=True)
class Row:
    """One size of one series.

    Attributes:
        size: bytes S that algbw counts.
        elements: S in elements of the dtype.
        factor: busbw is factor × algbw.
        times: the iterations' times, a row a launch; from these all else follows.
        median: over all iterations, as are the next five.
        interval: of the median, with ``CONFIDENCE``, free of any assumption about the noise; None:
            there were too few launches.
        steady: the interval is as narrow as was asked for.
        checked: elements that were compared, on all ranks.
        wrong: how many of them were wrong.
        judgement: of its bandwidth; None where nothing is known to compare with.
    """

    size: int
    elements: int
    factor: float
    times: tuple[tuple[float, ...], ...]
    median: float
    p10: float
    p90: float
    p99: float
    fastest: float
    slowest: float
    interval: tuple[float, float] | None = None
    steady: bool = False
    checked: int = 0
    wrong: int = 0
    judgement: Judgement | None = None
    overlap: Overlap | None = None

    @property
    def iterations(self) -> int:
        """How many were timed."""
        return sum(map(len, self.times))

    @property
    def algbw(self) -> float:
        """S / median, bytes a second."""
        return self.size / self.median if self.median > 0 else 0.0

    @property
    def busbw(self) -> float:
        """Factor × algbw (nccl-tests, doc/PERFORMANCE.md)."""
        return self.factor * self.algbw

    @property
    def spread(self) -> float | None:
        """Half the interval's width as a share of the median; None without an interval."""
        if self.interval is None or self.median <= 0:
            return None
        low, high = self.interval
        return max(high - self.median, self.median - low) / self.median


@dataclass(frozen=True, slots=True)
class RankSkew:
    """How a rank stands against the others, over all iterations of a series.

    Attributes:
        late: median of the time by which it came to the start after the first rank.
        late_p99: the same, the 99th percentile.
        last: the share of iterations in which it came last.
        took: median of the time that the op took on it.
        waited: median of the time that it waited at the start for the last rank.
        named: it comes late often and by much: the others wait for it.
    """

    rank: int
    late: float
    late_p99: float
    last: float
    took: float
    waited: float
    named: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """What came of one op on one backend.

    Attributes:
        rows: of the sizes that were finished, the smallest first.
        clock: what timed it, as in ``holdings``: ``perf_counter`` or ``CUDA events``.
        formula: of the busbw factor, in terms of n.
        payload_words: what S is.
        skew: a rank each; empty unless it was asked for, or where clocks can't be compared.
        error: why there are no (further) rows.
    """

    spec: SeriesSpec
    rows: tuple[Row, ...] = ()
    clock: str = ""
    formula: str = ""
    payload_words: str = ""
    skew: tuple[RankSkew, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class BenchReport:
    """A measurement, whole or as far as it went.

    Attributes:
        series: as in the spec.
        setups: by backend.
        failure: the world that failed, and why; None if none did.
        seconds: of the whole, from the first world's start.
        interrupted: a signal ended it early; what was measured by then is here.
        environment: what the figures depend on: host, processor, kernel, variables.
        notes: what a reader should know, in sentences.
    """

    spec: BenchSpec
    series: tuple[Series, ...]
    setups: Mapping[str, Setup]
    failure: WorldReport | None = None
    seconds: float = 0.0
    interrupted: bool = False
    environment: Mapping[str, str | int | float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def wrong(self) -> int:
        """Wrong elements of all rows."""
        return sum(row.wrong for series in self.series for row in series.rows)

    @property
    def unsteady(self) -> tuple[tuple[Series, Row], ...]:
        """The rows whose interval is wider than was asked for, or is not to be had."""
        return tuple((s, row) for s in self.series for row in s.rows if not row.steady)

    @property
    def ok(self) -> bool:
        """Whether every world did its work and every element was right. Unsteady is no failure."""
        return (
            self.failure is None
            and not self.interrupted
            and not self.wrong
            and any(series.rows for series in self.series)
            and not any(series.error for series in self.series)
        )


@dataclass(frozen=True, slots=True)
class Course:
    """How far a measurement is, for whoever waits.

    Attributes:
        done: share of the work, 0 to 1, as far as can be told.
        left: seconds that it will still take, at most; None: nobody knows yet.
        now: what is being done, in a few words.
    """

    done: float
    left: float | None
    now: str
