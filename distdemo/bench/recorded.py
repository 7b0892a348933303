"""What a file of ``bench`` says, as far as comparing and fitting it needs. Frozen records.

Times are seconds, sizes bytes, bandwidths bytes a second, as in ``measuring``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One size of a recorded series.

    Attributes:
        size: bytes that algbw counts.
        times: of the iterations, a row a launch, in the order of the launches; a launch that left
            this size out has an empty row.
    """

    size: int
    times: tuple[tuple[float, ...], ...]

    @property
    def seconds(self) -> float:
        """The median over all iterations."""
        return median([time for launch in self.times for time in launch])

    @property
    def launches(self) -> tuple[float, ...]:
        """The median of each launch that has this size."""
        return tuple(self.by_launch.values())

    @property
    def by_launch(self) -> dict[int, float]:
        """The same by the place of the launch."""
        return {place: median(launch) for place, launch in enumerate(self.times) if launch}


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """What two series must have in common to be held against each other.

    Attributes:
        n: ranks of the group that the op runs in.
        root: None where the op has none, as with the reduce op.
        pattern: of point-to-point, ``pair``, ``ring`` or ``exchange``; None elsewhere.
        src: the sender of a pair; None elsewhere.
        dst: its receiver; likewise.
    """

    backend: str
    command: str
    form: str
    in_place: bool
    asynchronous: bool
    n: int
    dtype: str
    reduce_op: str | None = None
    root: int | None = None
    pattern: str | None = None
    src: int | None = None
    dst: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedSeries:
    """An op in one form on one backend, over its sizes.

    Attributes:
        op: torch's name of it, ``all_reduce``.
        world_size: ranks of the world; the group may be smaller.
        groups: how many groups ran it at once.
        rows: with times, the smallest size first, none twice.
    """

    key: SeriesKey
    op: str
    device: str
    world_size: int
    groups: int
    rows: tuple[RecordedRow, ...]


@dataclass(frozen=True, slots=True)
class RecordedLimit:
    """What a machine did without torch.distributed, in the same run.

    Attributes:
        kind: as ``measuring.Limit`` has it.
        ranks: how many took part.
        at_once: all at the same time.
        bandwidth: of one of them, bytes a second.
    """

    backend: str
    kind: str
    ranks: int
    at_once: bool
    bandwidth: float


@dataclass(frozen=True, slots=True)
class RecordedGauge:
    """What a machine did in the launches of a run, without torch.distributed.

    Attributes:
        kind: as ``yardsticks.Gauge`` has it.
        ranks: that looked at once.
        times: a row a launch; the first belongs to the first of a ``RecordedRow``, and so on.
    """

    backend: str
    kind: str
    ranks: int
    times: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """A file of ``bench``.

    Attributes:
        path: as it was given.
        series: those with rows.
        environment: what the figures depend on: host, processor, kernel, variables.
        gauges: none if an earlier release wrote it.
        ok: whether the run said of itself that all went well.
        blocks: the backends that had one world only: its blocks stand for launches.
        notes: what is odd about it, in sentences.
    """

    path: str
    series: tuple[RecordedSeries, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    limits: tuple[RecordedLimit, ...] = ()
    gauges: tuple[RecordedGauge, ...] = ()
    ok: bool = True
    blocks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Of all series."""
        return sum(len(series.rows) for series in self.series)
