"""Spec and report of ``bench``: frozen records that need no torch, rich or typer.

Field names are those of the JSON document and carry their unit: seconds, bytes, bytes per second
(1 GB/s is 1e9). The time of an iteration is that of the slowest rank, from a common start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from distdemo import ops
from distdemo.backends.contract import Transport
from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport
from distdemo.measure.machine import Load
from distdemo.measure.timing import Harness, Start
from distdemo.ops.contract import Op
from distdemo.ops.spec import Call, OpSpec
from distdemo.view.format import plural

PRECISION = 0.05
"""Largest half-width of a steady median's interval, as a share of the median."""
DEFAULT_LAUNCHES = 12
"""Launches that the budget is first divided among. The interval of 12 medians leaves out the two
smallest and the two largest; that of 8 leaves out none."""
LAUNCHES_OF_FIXED = 6  # that a fixed number of iterations is divided among

# -------------------------------------------------------------------------------------- spec


class Answer(str, Enum):
    """Answer to "Is this normal?", the most serious first."""

    __str__ = str.__str__
    SLOW = "slow"
    DISTURBED = "disturbed"
    VARIES = "varies"
    NORMAL = "normal"
    MEASURED = "measured"  # there was nothing to compare with


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """One call on one backend, at several sizes.

    Attributes:
        op: Call, without a shape; empty dtype if no data moves.
        groups: Ranks of each group; all groups run the op at once. Empty: one group, the world.
        sizes_bytes: S, the bytes that algbw counts as in nccl-tests, ascending; 0 if no data moves.
        refused: Reason why this backend can't run it; then there are no sizes.
        algorithm: Algorithm that the ranks run with isend and irecv; empty for the backend's call.
    """

    op: Call
    backend: str
    device: str
    world_size: int
    groups: tuple[tuple[int, ...], ...] = ()
    sizes_bytes: tuple[int, ...] = ()
    refused: str = ""
    algorithm: str = ""

    @derived
    def group_size(self) -> int:
        """Number of ranks that run the op together: n in the formulas."""
        return len(self.groups[0]) if self.groups else self.world_size

    @property
    def operation(self) -> Op:
        """Op of the call."""
        return ops.REGISTRY[self.op.op]

    @property
    def form(self) -> str:
        """Form of the call, such as ``single``; empty for the usual one."""
        form = self.operation.form(self.op).name
        return "" if form in ("tensor", "plain") else form

    @property
    def smallest(self) -> OpSpec:
        """Smallest call that moves data: one element, or one per rank."""
        data: dict[str, Any] = {"shape": (1,)} if self.op.dtype else {"dtype": "float32"}
        return OpSpec.of(self.op, group_size=self.group_size, **data)

    def at(self, size_bytes: int) -> tuple[OpSpec, ...]:
        """Return the op at this size with 1-dimensional tensors, one spec per group."""
        spec = self.smallest
        if self.op.dtype:
            part = self.operation.traffic(spec).payload_bytes
            spec = replace(spec, shape=(size_bytes // part,))
        return tuple(replace(spec, members=members) for members in self.groups or (None,))

    def phase(self, size_bytes: int) -> str:
        """Return a size as shown in messages and phases: ``all-reduce of 65,536 B``."""
        text = f"{self.operation.command} {self.algorithm or self.form}".rstrip()
        if self.op.in_place and not self.operation.is_in_place(self.smallest):
            text += " in place"
        return f"{text} of {size_bytes:,} B" if size_bytes else text

    def traits(self) -> dict[str, str]:
        """Return the traits of the series by name; empty where one doesn't apply."""
        op = self.op
        groups = placement = ""
        if len(self.groups) == 1:
            groups = f"group {','.join(map(str, self.groups[0]))}"
        elif self.groups:
            groups = f"{len(self.groups)} groups of {plural(self.group_size, 'rank')}"
        if op.pattern is None:  # in p2p, each rank has only one buffer
            if op.in_place:
                placement = "in place"
            elif self.operation.has_both(self.smallest):
                placement = "out of place"
        return {
            "op": self.operation.command,
            "form": self.form,
            "algorithm": self.algorithm,
            "backend": self.backend,
            "device": "" if self.device == "cpu" else self.device,
            "ranks": plural(self.world_size, "rank"),
            "group": groups,
            "dtype": op.dtype,
            "reduce op": op.reduce_op or "",
            "root": "" if op.root is None else f"root {op.root}",
            "pair": f"{op.src} to {op.dst}" if op.pattern == "pair" else "",
            "async": "async" if op.async_op else "",
            "placement": placement,
        }

    def title(self, *, ranks: bool = True) -> str:
        """Return ``all-reduce, gloo, 2 ranks, float32, sum, in place``.

        Args:
            ranks: True to include the number of ranks and the root.
        """
        hidden = () if ranks else ("ranks", "root")
        shown = (text for name, text in self.traits().items() if name not in hidden)
        return ", ".join(filter(None, shown))


@dataclass(frozen=True, slots=True)
class BenchSpec:
    """Parameters of a measurement, sent to every rank.

    Attributes:
        series: Series in display order.
        iters: Timed iterations per size in all launches; None: until the median is steady.
        warmup: Untimed iterations per size and launch; None: chosen by size.
        budget_s: Seconds for measuring all series; ignored with ``iters``.
        precision: Largest half-width of a steady median's interval, as a share of the median.
        launches: Number of worlds to spread the iterations over; None: until steady.
        check_every: Timed iterations between two verifications; 0: verify once, at the start.
        limits: True to measure the machine's own copies and streams too.
        fail_on: Answers that make the exit code 1.
    """

    series: tuple[SeriesSpec, ...] = field(default=(), metadata={"json": False})
    iters: int | None = None
    warmup: int | None = None
    budget_s: float = 10.0
    precision: float = PRECISION
    launches: int | None = None
    check_every: int = 0
    limits: bool = True
    fail_on: tuple[Answer, ...] = ()

    @property
    def fixed_launches(self) -> int | None:
        """Number of timed launches, at most one per iteration; None if it is open."""
        if self.iters is None:
            return self.launches
        return min(self.launches or LAUNCHES_OF_FIXED, self.iters)


# ------------------------------------------------------------------------ limits and set-up


@dataclass(frozen=True, slots=True)
class TransportLimit:
    """Speed of one transport without torch.distributed, on all ranks at once in the same run.

    Attributes:
        transport: Kind of transfer.
        bandwidth_bytes_per_s: Bandwidth of the slowest rank in one direction, in the fastest tenth
            of its transfers, since other programs can only slow them down.
        size_bytes: Size of one transfer.
        latency_s: Time of 8 bytes one way; None for a copy within one rank.
    """

    transport: Transport
    bandwidth_bytes_per_s: float
    size_bytes: int
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class Alignment:
    """The common start before each iteration.

    Attributes:
        way: Method used.
        cost_s: Untimed seconds that it adds to an iteration.
        spread_s: Median time between the first and the last rank's start; None if their clocks
            can't be compared.
        spread_p99_s: 99th percentile of the same.
    """

    way: Start
    cost_s: float
    spread_s: float | None = None
    spread_p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """Set-up shared by all series of one backend.

    Attributes:
        launches: Number of worlds started, including the one that verifies.
        limits: Limits in the order of measurement.
        bound: Limit that busbw is compared with; None if none was measured.
        cores: Cores' worth of time that the ranks of a host share.
        ranks_per_host: Number of ranks on the host with the most.
        start_method: Method that started the ranks.
        engine: Launcher of the ranks: ``local``, torchrun, ...
        hosts: Host of each rank; empty if all are on this machine.
        load: Measured disturbance; None before the first launch has ended.
    """

    backend: str
    device: str
    world_size: int
    launches: int = 0
    alignment: Alignment | None = None
    harness: Harness | None = None
    limits: tuple[TransportLimit, ...] = ()
    bound: TransportLimit | None = None
    cores: float = 0.0
    ranks_per_host: int = 0
    start_method: str = ""
    engine: str = "local"
    hosts: tuple[str, ...] = ()
    load: Load | None = None


# ------------------------------------------------------------------------------------ report


class SizeVerdict(str, Enum):
    """Verdict on a size."""

    __str__ = str.__str__
    CLOSE = "close to the limit"
    LATENCY_BOUND = "latency-bound"
    BELOW = "below the limit"
    OVERSUBSCRIBED = "oversubscribed"
    SLOW = "unusually slow"
    VARIES = "varies"
    DISTURBED = "disturbed"
    UNKNOWN = "unknown"


ANSWERS = {
    SizeVerdict.CLOSE: Answer.NORMAL,
    SizeVerdict.LATENCY_BOUND: Answer.NORMAL,
    SizeVerdict.BELOW: Answer.NORMAL,
    SizeVerdict.OVERSUBSCRIBED: Answer.MEASURED,
    SizeVerdict.SLOW: Answer.SLOW,
    SizeVerdict.VARIES: Answer.VARIES,
    SizeVerdict.DISTURBED: Answer.DISTURBED,
    SizeVerdict.UNKNOWN: Answer.MEASURED,
}
"""Answer that follows from each verdict."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict on a row, with the reason.

    Attributes:
        verdict: Verdict.
        why: Reason with its figures, one sentence.
        hint: Suggestion; may be empty.
        limit_share: busbw as a share of the limit's bandwidth, 1.0 for all of it; None if unknown.
    """

    verdict: SizeVerdict
    why: str
    hint: str = ""
    limit_share: float | None = None


@dataclass(frozen=True, slots=True)
class SizeRow:
    """One size of one series.

    Attributes:
        size_bytes: S, the bytes that algbw counts.
        elements: S in elements of the dtype.
        busbw_factor: Factor from algbw to busbw.
        times_s: Time of every iteration, one row per launch; source of all figures below.
        median_s: Median over all iterations; the next five also cover all of them.
        interval_s: Distribution-free interval of the median, with ``CONFIDENCE``; None if there
            were too few launches.
        steady: True if the interval is as narrow as requested.
        checked: Number of elements compared on all ranks.
        wrong: Number of wrong elements among them.
        judgement: Verdict; None if there is nothing to judge.
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

    @property
    def verdict(self) -> SizeVerdict:
        """Verdict, also if there was nothing to judge."""
        return self.judgement.verdict if self.judgement else SizeVerdict.UNKNOWN

    @property
    def answer(self) -> Answer:
        """Answer that follows from the verdict."""
        return ANSWERS[self.verdict]


@dataclass(frozen=True, slots=True)
class Series:
    """Results of one op on one backend.

    Attributes:
        spec: Spec of the series.
        rows: Finished sizes, smallest first.
        clock: Clock that timed it: ``perf_counter`` or ``CUDA events``.
        busbw_formula: Formula of the busbw factor, in terms of n.
        payload_is: Description of S.
        error: Reason why rows are missing.
    """

    spec: SeriesSpec
    rows: tuple[SizeRow, ...] = ()
    clock: str = ""
    busbw_formula: str = ""
    payload_is: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Sizes of one series that have the same answer.

    Attributes:
        series: Index of the series.
        why: Reason for the last of the sizes; may be empty.
    """

    answer: Answer
    series: int
    sizes_bytes: tuple[int, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class BenchReport:
    """A complete or partial measurement.

    Attributes:
        series: Results in the order of the spec.
        setups: One per backend.
        world: Report of the world that failed; None if none did.
        elapsed_s: Seconds since the first world was started.
        interrupted: True if a signal ended it early; the report has everything measured before.
        environment: Host, processor, kernel and variables that the figures depend on.
        versions: Versions of Python, torch and the libraries below.
        notes: Remarks for the reader, in sentences.
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
        """Return the set-up of this backend; None before its first world."""
        return next((setup for setup in self.setups if setup.backend == backend), None)

    @property
    def measured(self) -> Sequence[Series]:
        """Series that have rows."""
        return [series for series in self.series if series.rows]

    @property
    def rows(self) -> Sequence[SizeRow]:
        """Rows of all series."""
        return [row for series in self.series for row in series.rows]

    @derived
    def ranges(self) -> tuple[SizeRange, ...]:
        """Answer to "Is this normal?" for every measured size, each in exactly one range."""
        ranges = []
        for index, series in enumerate(self.series):
            for answer in Answer:
                rows = [row for row in series.rows if row.answer is answer]
                if rows:
                    last = rows[-1].judgement
                    sizes = tuple(row.size_bytes for row in rows)
                    ranges.append(SizeRange(answer, index, sizes, last.why if last else ""))
        return tuple(ranges)

    @derived
    def answer(self) -> Answer | None:
        """Most serious answer of any size; None if the measurement is incomplete or wrong."""
        answers = {row.answer for row in self.rows} if self.complete else ()
        return next((answer for answer in Answer if answer in answers), None)

    @property
    def complete(self) -> bool:
        """True if all worlds succeeded and all elements were correct; rows may be unsteady."""
        return (
            self.world is None
            and not self.interrupted
            and bool(self.rows)
            and not any(row.wrong for row in self.rows)
            and not any(series.error for series in self.series)
        )

    @property
    def failing(self) -> Sequence[Answer]:
        """Answers of any size on which the user wants to fail."""
        answers = {row.answer for row in self.rows}
        return [answer for answer in self.spec.fail_on if answer in answers]

    @property
    def ok(self) -> bool:
        """True if it is complete and has no answer that fails."""
        return self.complete and not self.failing

    def disturbance(self, series: Series) -> str:
        """Return why the times of a series aren't the machine's own, or "" if nothing disturbed it.

        That is the sentence with which its rows were judged: other programs took time from the
        ranks, or a rank got less of a core than the other ranks.
        """
        setup = self.setup(series.spec.backend)
        verdicts = {SizeVerdict.DISTURBED}
        if setup and setup.load and setup.load.slowed_ranks:
            verdicts.add(SizeVerdict.SLOW)
        judged = (row.judgement for row in series.rows if row.verdict in verdicts)
        return next((judgement.why for judgement in judged if judgement), "")
