"""Spec and report of ``bench links``: frozen records that need no torch, rich or typer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport
from distdemo.measure.machine import TAKEN_CORES

Figure = Literal["latency", "bandwidth"]


@dataclass(frozen=True, slots=True)
class LinksSpec:
    """Parameters of a measurement of every pair of ranks in both directions.

    Attributes:
        small_bytes: Size of the message for the latency.
        large_bytes: Size of the message for the bandwidth.
        budget_s: Seconds for all pairs.
        rounds: Number of rounds over all pairs.
        factor: Multiple of the median latency, or median time per byte, above which a link is slow.
    """

    world_size: int
    backend: str
    device: str
    small_bytes: int = 8
    large_bytes: int = 1 << 20
    budget_s: float = 8.0
    rounds: int = 5
    factor: float = 2.0

    @property
    def links(self) -> int:
        """Number of links: one per ordered pair of ranks."""
        return self.world_size * (self.world_size - 1)

    @property
    def measurements(self) -> int:
        """Number of measurements of links in all rounds."""
        return self.rounds * self.links


@dataclass(frozen=True, slots=True)
class Link:
    """A link from one rank to another.

    Attributes:
        latency_s: Time of a small message one way, half a round trip. Like the bandwidth, of the
            fastest tenth of the messages in the best round.
        bandwidth_bytes_per_s: Bandwidth of large messages one way.
        latency_ratio: Latency as a multiple of the median of the other links of its kind; 1 if
            there are none, or if a slow rank is the cause.
        bandwidth_ratio: Time per byte as such a multiple.
        slow: Figures in which the link is slow.
        wrong: Number of wrong elements received.
    """

    src: int
    dst: int
    latency_s: float
    bandwidth_bytes_per_s: float
    latency_ratio: float = 1.0
    bandwidth_ratio: float = 1.0
    slow: tuple[Figure, ...] = ()
    wrong: int = 0


@dataclass(frozen=True, slots=True)
class LinksReport:
    """Measured links between every pair of ranks.

    Attributes:
        links: Measured links, one per ordered pair; all of them unless the world failed.
        slow_ranks: Ranks whose links are all similarly slow, so that the rank is the cause.
        median_latency_s: Median over the links; None without links.
        median_bandwidth_bytes_per_s: Median over the links; None without links.
        hosts: Host of each rank; empty if all are on this machine.
        taken_cores: Cores' worth of time that other programs, or a hypervisor, took from the ranks;
            None if this system doesn't say, or if the measurement is incomplete.
        world: Report of the failed world; None if it succeeded.
    """

    spec: LinksSpec
    links: tuple[Link, ...]
    slow_ranks: tuple[int, ...] = ()
    median_latency_s: float | None = None
    median_bandwidth_bytes_per_s: float | None = None
    elapsed_s: float = 0.0
    interrupted: bool = False
    hosts: tuple[str, ...] = ()
    taken_cores: float | None = None
    environment: dict[str, str | int | float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    world: WorldReport | None = field(default=None, metadata={"json": False})

    @property
    def slow(self) -> tuple[Link, ...]:
        """Slow links."""
        return tuple(link for link in self.links if link.slow)

    @derived
    def wrong(self) -> int:
        """Number of wrong elements received on all links."""
        return sum(link.wrong for link in self.links)

    @derived
    def disturbed(self) -> bool:
        """True if other programs took enough time to make links look slower than they are."""
        return (self.taken_cores or 0.0) > TAKEN_CORES

    @property
    def ok(self) -> bool:
        """True if all pairs were measured and correct; a slow link is a finding, not a failure."""
        whole = len(self.links) == self.spec.links and not self.interrupted
        return self.world is None and whole and not self.wrong
