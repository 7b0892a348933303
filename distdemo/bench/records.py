"""What ``bench`` is asked for and what it measured: frozen records; no torch, no rich, no typer.

Field names are the names in the JSON document, and carry their unit: seconds, bytes, bytes a second
(1 GB/s is 1e9). The time of an iteration is the slowest rank's, counted from a common start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from distdemo import ops
from distdemo.backends.contract import Transport
from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport
from distdemo.ops.spec import OpSpec

PRECISION = 0.05
"""Half the width of a steady median's interval, as a share of the median."""
CONFIDENCE = 0.95
"""Of every interval."""
FEWEST_LAUNCHES = 6
"""Fewer medians have no distribution-free interval of this confidence: 1 − 2·(1/2)⁶ is 97 %."""


# --------------------------------------------------------------------------- what is asked for


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """One op in one form on one backend, at several sizes.

    Attributes:
        op: torch's name of it, ``all_reduce``.
        form: which form of it, ``single``; ``tensor`` where there is nothing to choose.
        calls: the function of torch.distributed.
        group_size: ranks that run the op together: n of the formulas.
        groups: the ranks of each group that runs it at once; empty: the whole world is one.
        sizes_bytes: S, what algbw counts as nccl-tests does, ascending; 0 where no data moves.
        dtype: torch's name; None where no data moves.
        root: also src and dst: within the group.
        in_place: the output lies in the input, or the input in the output.
        refused: why this backend can't; then there are no sizes.
    """

    op: str
    form: str
    calls: str
    backend: str
    device: str
    world_size: int
    group_size: int
    groups: tuple[tuple[int, ...], ...] = ()
    sizes_bytes: tuple[int, ...] = ()
    dtype: str | None = None
    variant: str | None = None
    reduce_op: str | None = None
    root: int | None = None
    src: int | None = None
    dst: int | None = None
    pattern: str | None = None
    async_op: bool = False
    in_place: bool = False
    refused: str = ""

    @property
    def command(self) -> str:
        """The op as it is typed: ``all-reduce``."""
        return self.op.replace("_", "-")

    @property
    def smallest(self) -> OpSpec:
        """The smallest call that moves anything: of an element, or of one for each rank."""
        same = ("reduce_op", "root", "src", "dst", "pattern", "async_op", "variant", "in_place")
        return OpSpec(
            self.op,
            self.group_size,
            self.dtype or "float32",
            (1,) if self.dtype else (),
            **{name: getattr(self, name) for name in same},
        )

    def at(self, size_bytes: int) -> tuple[OpSpec, ...]:
        """The op as every rank calls it at this size, one spec a group; 1-dimensional tensors."""
        spec = self.smallest
        if self.dtype:
            part = ops.REGISTRY[self.op].traffic(spec).payload_bytes
            spec = replace(spec, shape=(size_bytes // part,))
        return tuple(replace(spec, members=members) for members in self.groups or (None,))

    def named(self, size_bytes: int) -> str:
        """A size for people and for a rank's phases: ``all-reduce of 65,536 B``."""
        form = "" if self.form == "tensor" else f" {self.form}"
        own = ops.REGISTRY[self.op].is_in_place(self.smallest)
        place = " in place" if self.in_place and not own else ""
        return f"{self.command}{form}{place}" + (f" of {size_bytes:,} B" if size_bytes else "")


@dataclass(frozen=True, slots=True)
class BenchSpec:
    """A measurement. The ranks get it whole.

    Attributes:
        series: in the order in which they are shown.
        iters: timed iterations of each size, all launches together; None: until it is steady.
        warmup: untimed iterations of each size in every launch; None: as many as a size needs.
        budget_s: for timing one series; with ``iters`` it means nothing.
        precision: half the width of the interval at which a median is steady, as a share of it.
        launches: how many worlds the iterations are spread over; None: until it is steady.
        check_every: timed iterations between two verifications; 0: verify once, before the first.
        skew: find out which rank is late.
        overlap: measure what computing hides of non-blocking calls.
        limits: measure the machine's own copies and streams too.
    """

    series: tuple[SeriesSpec, ...] = field(default=(), metadata={"json": False})
    iters: int | None = None
    warmup: int | None = None
    budget_s: float = 8.0
    precision: float = PRECISION
    launches: int | None = None
    check_every: int = 0
    skew: bool = False
    overlap: bool = False
    limits: bool = True


# ------------------------------------------------------------ what a figure is compared with


@dataclass(frozen=True, slots=True)
class Limit:
    """What every rank did without torch.distributed, all at once, in the same run.

    Attributes:
        transport: Kind of transfer that was measured.
        bandwidth_bytes_per_s: Bandwidth of the slowest rank, in one direction, in the fastest tenth
            of its transfers: other programs can only slow them.
        size_bytes: Size of one transfer.
        latency_s: Time of 8 bytes one way; None where nothing travels.
    """

    transport: Transport
    bandwidth_bytes_per_s: float
    size_bytes: int
    latency_s: float | None = None


class Start(str, Enum):
    """How ranks are brought to a common start before each iteration."""

    __str__ = str.__str__
    PAGE = "shared memory"
    BARRIER = "barrier"


@dataclass(frozen=True, slots=True)
class Alignment:
    """The common start before each iteration.

    Attributes:
        way: how it is done.
        cost_s: what it adds to an iteration, outside of what is timed.
        spread_s: median time between the first and the last rank's start; None where their clocks
            can't be compared.
        spread_p99_s: the same, the 99th percentile.
    """

    way: Start
    cost_s: float
    spread_s: float | None = None
    spread_p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class Harness:
    """What the timed loop itself costs, found with an op that does nothing.

    Attributes:
        inside_s: in every time that is reported: two looks at the clock and an empty call.
        outside_s: the rest of an iteration, without the common start.
    """

    inside_s: float
    outside_s: float


@dataclass(frozen=True, slots=True)
class Setup:
    """What the series of one backend have in common.

    Attributes:
        launches: worlds that were started, the one that verifies included.
        limits: In the order in which they were measured.
        bound: the one of them that busbw is compared with; None: nothing was measured.
        cores: cores' worth of time that the ranks of a host share.
        ranks_per_host: on the host with most ranks.
        start_method: how the ranks were started.
        engine: what started them: ``local``, torchrun, ...
        hosts: of each rank; empty if all are on this machine.
    """

    backend: str
    device: str
    world_size: int
    launches: int = 0
    alignment: Alignment | None = None
    harness: Harness | None = None
    limits: tuple[Limit, ...] = ()
    bound: Limit | None = None
    cores: float = 0.0
    ranks_per_host: int = 0
    start_method: str = ""
    engine: str = "local"
    hosts: tuple[str, ...] = ()


# --------------------------------------------------------------------------- what was measured


class Verdict(str, Enum):
    """Whether a bandwidth is what one should expect."""

    __str__ = str.__str__
    CLOSE = "close to the limit"
    LATENCY_BOUND = "latency-bound"
    BELOW = "below the limit"
    OVERSUBSCRIBED = "oversubscribed"
    SLOW = "unusually slow"
    DISTURBED = "disturbed"
    UNKNOWN = "unknown"

    @property
    def is_normal(self) -> bool:
        """Whether it is as one should expect."""
        return self in (Verdict.CLOSE, Verdict.LATENCY_BOUND, Verdict.BELOW)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to think of a row's bandwidth.

    Attributes:
        verdict: in a word.
        why: the reason with its figures, a sentence.
        hint: what to try; may be empty.
        limit_share: busbw as a share of the limit's bandwidth, 1.0 is all of it; None: not known.
    """

    verdict: Verdict
    why: str
    hint: str = ""
    limit_share: float | None = None


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much of a non-blocking call is hidden behind computing that lasts as long.

    Attributes:
        alone_s: of the call when nothing else is done.
        compute_s: of the computing alone.
        together_s: of both: the call is made, then computed, then waited for.
    """

    alone_s: float
    compute_s: float
    together_s: float

    @derived
    def hidden_share(self) -> float:
        """The share of the communication that cost nothing, 0 to 1."""
        if self.alone_s <= 0:
            return 0.0
        return min(1.0, max(0.0, 1.0 - (self.together_s - self.compute_s) / self.alone_s))


@dataclass(frozen=True, slots=True)
class Row:
    """One size of one series.

    Attributes:
        size_bytes: S, what algbw counts.
        elements: S in elements of the dtype.
        busbw_factor: busbw is factor × algbw.
        times_s: of every iteration, a row a launch; from these all else follows.
        median_s: over all iterations, as are the next five.
        interval_s: of the median, with ``CONFIDENCE``, free of any assumption about the noise;
            None: there were too few launches.
        steady: the interval is as narrow as was asked for.
        checked: elements that were compared, on all ranks.
        wrong: how many of them were wrong.
        judgement: of its bandwidth; None: there is none to judge.
    """

    size_bytes: int
    elements: int
    busbw_factor: float
    times_s: tuple[tuple[float, ...], ...]
    median_s: float
    p10_s: float
    p90_s: float
    p99_s: float
    min_s: float
    max_s: float
    interval_s: tuple[float, float] | None = None
    steady: bool = False
    checked: int = 0
    wrong: int = 0
    judgement: Judgement | None = None
    overlap: Overlap | None = None

    @derived
    def iterations(self) -> int:
        """How many were timed."""
        return sum(map(len, self.times_s))

    @derived
    def algbw_bytes_per_s(self) -> float:
        """S / median."""
        return self.size_bytes / self.median_s if self.median_s > 0 else 0.0

    @derived
    def busbw_bytes_per_s(self) -> float:
        """Factor × algbw (nccl-tests, doc/PERFORMANCE.md)."""
        return self.busbw_factor * float(self.algbw_bytes_per_s)  # mypy does not see derived's type

    @derived
    def spread_share(self) -> float | None:
        """Half the interval's width as a share of the median; None without an interval."""
        if self.interval_s is None or self.median_s <= 0:
            return None
        low, high = self.interval_s
        return max(high - self.median_s, self.median_s - low) / self.median_s


@dataclass(frozen=True, slots=True)
class RankSkew:
    """How a rank stands against the others, over all iterations of a series.

    Attributes:
        late_s: median time by which it came to the start after the first rank.
        late_p99_s: the same, the 99th percentile.
        last_share: the share of iterations in which it came last.
        took_s: median time that the op took on it.
        waited_s: median time that it waited at the start for the last rank.
        is_late: it comes late often and by much: the others wait for it.
    """

    rank: int
    late_s: float
    late_p99_s: float
    last_share: float
    took_s: float
    waited_s: float
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """What came of one op on one backend.

    Attributes:
        spec: what was asked for.
        rows: of the sizes that were finished, the smallest first.
        clock: what timed it: ``perf_counter`` or ``CUDA events``.
        busbw_formula: of the busbw factor, in terms of n.
        payload_is: what S is, in words.
        skew: one a rank; empty unless it was asked for, or where clocks can't be compared.
        error: why there are no (further) rows.
    """

    spec: SeriesSpec
    rows: tuple[Row, ...] = ()
    clock: str = ""
    busbw_formula: str = ""
    payload_is: str = ""
    skew: tuple[RankSkew, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class BenchReport:
    """A measurement, whole or as far as it went.

    Attributes:
        series: as in the spec.
        setups: one a backend.
        world: that failed, and why; None if none did.
        elapsed_s: of the whole, from the first world's start.
        interrupted: a signal ended it early; what was measured by then is here.
        environment: what the figures depend on: host, processor, kernel, variables.
        versions: of Python, torch and the libraries below.
        notes: what a reader should know, in sentences.
    """

    spec: BenchSpec
    series: tuple[Series, ...]
    setups: tuple[Setup, ...] = ()
    world: WorldReport | None = field(default=None, metadata={"json": False})
    elapsed_s: float = 0.0
    interrupted: bool = False
    environment: dict[str, str | int | float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def setup(self, backend: str) -> Setup | None:
        """Of this backend; None before its first world."""
        return next((each for each in self.setups if each.backend == backend), None)

    @property
    def measured(self) -> Sequence[Series]:
        """The series that have rows."""
        return [series for series in self.series if series.rows]

    @property
    def rows(self) -> Sequence[Row]:
        """Of all series."""
        return [row for series in self.series for row in series.rows]

    @property
    def ok(self) -> bool:
        """Whether all worlds did their work and all elements were right; unsteady rows are fine."""
        return (
            self.world is None
            and not self.interrupted
            and bool(self.rows)
            and not any(row.wrong for row in self.rows)
            and not any(series.error for series in self.series)
        )
