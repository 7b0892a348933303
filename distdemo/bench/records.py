"""Specs and reports of ``bench`` and ``bench links``: frozen records; no torch, rich or typer.

Field names are those of the JSON document and carry their unit: seconds, bytes, bytes per second
(1 GB/s is 1e9). The time of an iteration is that of the slowest rank, from a common start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import median_low
from typing import Any, Literal

from distdemo import ops
from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport
from distdemo.ops.contract import Op
from distdemo.ops.spec import Call, OpSpec
from distdemo.view.format import plural

STEADY_SHARE = 0.05
"""Largest half-width of a steady median's interval, as a share of the median."""

LAUNCHES = 12
"""Launches that the budget is divided among. The interval of 12 medians leaves out the two smallest
and the two largest; that of 8 leaves out none."""
LAUNCHES_OF_FIXED = 6  # that a fixed number of iterations is divided among

# -------------------------------------------------------------------------------------- spec


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """One call on one backend, at several sizes.

    Attributes:
        op: Call, without a shape; empty dtype if no data moves.
        sizes_bytes: S, the bytes that algbw counts as in nccl-tests, ascending; 0 if no data moves.
        refused: Reason why this backend can't run it; then there are no sizes.
        algorithm: Algorithm that the ranks run with isend and irecv; empty for the backend's call.
    """

    op: Call
    backend: str
    device: str
    world_size: int
    sizes_bytes: tuple[int, ...] = ()
    refused: str = ""
    algorithm: str = ""

    @property
    def operation(self) -> Op:
        """Op of the call."""
        return ops.REGISTRY[self.op.op]

    def at(self, size_bytes: int) -> OpSpec:
        """Return the op at this size with 1-dimensional tensors.

        At size 0 it is the smallest call that moves data: one element, or one per rank.
        """
        data: dict[str, Any] = {"shape": (1,)} if self.op.dtype else {"dtype": "float32"}
        spec = OpSpec.of(self.op, group_size=self.world_size, **data)
        if not self.op.dtype or not size_bytes:
            return spec
        part = self.operation.traffic(spec).payload_bytes
        return replace(spec, shape=(size_bytes // part,))

    @property
    def traits(self) -> list[str]:
        """Properties that distinguish the series: ``all-reduce``, ``gloo``, ``2 ranks``, ..."""
        call = self.op
        form = self.operation.form(call).name
        placement = ""
        if call.pattern is None:  # in p2p, each rank has only one buffer
            if call.in_place:
                placement = "in place"
            elif self.operation.has_both(self.at(0)):
                placement = "out of place"
        traits = (
            self.operation.command,
            "" if form in ("tensor", "plain") else form,
            self.algorithm,
            self.backend,
            "" if self.device == "cpu" else self.device,
            plural(self.world_size, "rank") if self.world_size else "",
            call.dtype,
            call.reduce_op or "",
            "" if call.root is None else f"root {call.root}",
            placement,
        )
        return [trait for trait in traits if trait]

    def phase(self, point: int) -> str:
        """Return the size with this index as shown in phases: ``all-reduce of 65,536 B``."""
        name = self.algorithm or self.operation.command
        return f"{name} of {self.sizes_bytes[point]:,} B"

    @property
    def title(self) -> str:
        """Traits in one line: ``all-reduce, gloo, 2 ranks, float32, sum, in place``."""
        return ", ".join(self.traits)


def series_names(specs: Sequence[SeriesSpec]) -> dict[SeriesSpec, str]:
    """Return a short name per series: its op, and the traits that not all series have."""
    shared = set.intersection(*(set(spec.traits) for spec in specs)) if specs else set()
    return {
        spec: " ".join(
            trait for trait in spec.traits if trait == spec.operation.command or trait not in shared
        )
        for spec in specs
    }


@dataclass(frozen=True, slots=True)
class BenchSpec:
    """Parameters of a measurement, sent to every rank.

    Attributes:
        series: Series in display order.
        iters: Timed iterations per size in all launches; None: until the median is steady.
        budget_s: Seconds for measuring all series; ignored with ``iters``.
        fits_sizes: True if the largest sizes may be left out, as the user has named none.
    """

    series: tuple[SeriesSpec, ...] = field(default=(), metadata={"json": False})
    iters: int | None = None
    budget_s: float = 10.0
    fits_sizes: bool = field(default=False, metadata={"json": False})

    @property
    def launches(self) -> int:
        """Number of timed launches that the budget, or the iterations, are divided among."""
        return LAUNCHES if self.iters is None else min(LAUNCHES_OF_FIXED, self.iters)


# ------------------------------------------------------------------------------------ report


class Answer(str, Enum):
    """Answer to "Is this normal?", the most serious first."""

    __str__ = str.__str__
    SLOW = "slow"
    DISTURBED = "disturbed"
    VARIES = "varies"
    NORMAL = "normal"
    MEASURED = "measured"  # there was nothing to compare with


@dataclass(frozen=True, slots=True)
class StreamLimit:
    """TCP streams between neighbours on a ring, all at once, without torch.distributed.

    Attributes:
        bandwidth_bytes_per_s: Bandwidth of one stream, of the slowest rank.
        latency_s: Time of 8 bytes one way.
    """

    bandwidth_bytes_per_s: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class Setup:
    """Set-up shared by all series of one backend.

    Attributes:
        launches: Number of worlds started, including the one that verifies.
        limit: Limit that busbw is compared with; None if it wasn't measured.
        taken_cores: Cores' worth of time that other programs, or a hypervisor, took from the ranks;
            None if this system doesn't say.
        cores: Cores' worth of time that the ranks of a host share.
        ranks_per_host: Number of ranks on the host with the most.
    """

    backend: str
    device: str
    world_size: int
    launches: int = 0
    limit: StreamLimit | None = None
    taken_cores: float | None = None
    cores: float = 0.0
    ranks_per_host: int = 0


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One size of one series.

    Attributes:
        size_bytes: S, the bytes that algbw counts.
        elements: S in elements of the dtype.
        busbw_factor: Factor from algbw to busbw.
        times_s: Time of every iteration, one row per launch; source of the figures below.
        median_s: Median over all iterations; the next three also cover all of them.
        interval_s: Distribution-free interval of the median, with ``CONFIDENCE``; None if there
            were too few launches.
        checked: Number of elements compared on all ranks.
        wrong: Number of wrong elements among them.
        answer: Answer to "Is this normal?"
        why: Reason for the answer with its figures; empty for an algorithm, which isn't judged.
        limit_share: busbw as a share of the limit's bandwidth, 1.0 for all of it; None if unknown.
    """

    size_bytes: int
    elements: int
    busbw_factor: float
    times_s: tuple[tuple[float, ...], ...]
    median_s: float
    min_s: float
    p99_s: float
    max_s: float
    interval_s: tuple[float, float] | None = None
    checked: int = 0
    wrong: int = 0
    answer: Answer = Answer.MEASURED
    why: str = ""
    limit_share: float | None = None

    @derived
    def iterations(self) -> int:
        """Number of timed iterations."""
        return sum(map(len, self.times_s))

    @derived
    def algbw_bytes_per_s(self) -> float:
        """Algorithm bandwidth: S / median."""
        return self.size_bytes / self.median_s if self.median_s > 0 else 0.0

    @derived
    def busbw_bytes_per_s(self) -> float:
        """Bus bandwidth: factor × algbw (nccl-tests, doc/PERFORMANCE.md)."""
        return self.busbw_factor * float(self.algbw_bytes_per_s)  # mypy doesn't see derived's type

    @derived
    def spread_share(self) -> float | None:
        """Half-width of the interval as a share of the median; None without an interval."""
        if self.interval_s is None or self.median_s <= 0:
            return None
        low, high = self.interval_s
        return max(high - self.median_s, self.median_s - low) / self.median_s

    @derived
    def steady(self) -> bool:
        """True if the interval is narrow."""
        share = self.spread_share
        return share is not None and share <= STEADY_SHARE


@dataclass(frozen=True, slots=True)
class Series:
    """Results of one op on one backend.

    Attributes:
        spec: Spec of the series.
        rows: Finished sizes, smallest first.
        error: Reason why rows are missing.
    """

    spec: SeriesSpec
    rows: tuple[SizeRow, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Circumstances of a measurement.

    Attributes:
        world: Report of the world that failed; None if none did.
        elapsed_s: Seconds since the first world was started.
        interrupted: True if a signal ended it early; the report has everything measured before.
        environment: Host, processor, kernel and variables that the figures depend on.
        versions: Versions of Python, torch and the libraries below.
    """

    world: WorldReport | None = field(default=None, metadata={"json": False})
    elapsed_s: float = 0.0
    interrupted: bool = False
    environment: dict[str, str | int | float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BenchReport(Measurement):
    """A complete or partial measurement.

    Attributes:
        series: Results in the order of the spec.
        setups: One per backend.
        notes: Remarks for the reader, in sentences.
    """

    spec: BenchSpec
    series: tuple[Series, ...]
    setups: tuple[Setup, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def measured(self) -> Sequence[Series]:
        """Series that have rows."""
        return [series for series in self.series if series.rows]

    @property
    def rows(self) -> Sequence[SizeRow]:
        """Rows of all series."""
        return [row for series in self.series for row in series.rows]

    @derived
    def answer(self) -> Answer | None:
        """Most serious answer of any size; None if the measurement is incomplete or wrong."""
        answers = {row.answer for row in self.rows} if self.ok else ()
        return next((answer for answer in Answer if answer in answers), None)

    @property
    def ok(self) -> bool:
        """True if all worlds succeeded and all elements were correct; rows may be unsteady."""
        return (
            self.world is None
            and not self.interrupted
            and bool(self.rows)
            and not any(row.wrong for row in self.rows)
            and not any(series.error for series in self.series)
        )


# ------------------------------------------------------------------------------------- links

Figure = Literal["latency", "bandwidth"]


@dataclass(frozen=True, slots=True)
class LinksSpec:
    """Parameters of a measurement of every pair of ranks in both directions.

    Attributes:
        small_bytes: Size of the message for the latency.
        large_bytes: Size of the message for the bandwidth.
    """

    world_size: int
    backend: str
    device: str
    small_bytes: int = 8
    large_bytes: int = 1 << 20

    @property
    def links(self) -> int:
        """Number of links: one per ordered pair of ranks."""
        return self.world_size * (self.world_size - 1)


@dataclass(frozen=True, slots=True)
class Link:
    """A link from one rank to another, or a measurement of it.

    Attributes:
        latency_s: Time of a small message one way, half a round trip. Like the bandwidth, of the
            fastest tenth of the messages in the best round.
        bandwidth_bytes_per_s: Bandwidth of large messages one way.
        wrong: Number of wrong elements received.
        slow: Figures in which the link is slow.
    """

    src: int
    dst: int
    latency_s: float
    bandwidth_bytes_per_s: float
    wrong: int = 0
    slow: tuple[Figure, ...] = ()


@dataclass(frozen=True, slots=True)
class LinksReport(Measurement):
    """Measured links between every pair of ranks.

    Attributes:
        links: Measured links, one per ordered pair; all of them unless the world failed.
        slow_ranks: Ranks whose links are all similarly slow, so that the rank is the cause.
        hosts: Host of each rank; empty if all are on this machine.
    """

    spec: LinksSpec
    links: tuple[Link, ...]
    slow_ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()

    @property
    def slow(self) -> tuple[Link, ...]:
        """Slow links."""
        return tuple(link for link in self.links if link.slow)

    @derived
    def median_latency_s(self) -> float | None:
        """Median over the links; None without links."""
        return median_low(link.latency_s for link in self.links) if self.links else None

    @derived
    def median_bandwidth_bytes_per_s(self) -> float | None:
        """Median over the links; None without links."""
        return median_low(link.bandwidth_bytes_per_s for link in self.links) if self.links else None

    @derived
    def wrong(self) -> int:
        """Number of wrong elements received on all links."""
        return sum(link.wrong for link in self.links)

    @property
    def ok(self) -> bool:
        """True if all pairs were measured and correct; a slow link is a finding, not a failure."""
        whole = len(self.links) == self.spec.links and not self.interrupted
        return self.world is None and whole and not self.wrong
