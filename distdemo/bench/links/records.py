"""What ``bench links`` is asked for, and what it found. Frozen; no torch, rich or typer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from distdemo.encoding import derived
from distdemo.launcher.records import WorldReport

Figure = Literal["latency", "bandwidth"]


@dataclass(frozen=True, slots=True)
class LinksSpec:
    """A measurement of every pair of ranks, both ways.

    Attributes:
        small_bytes: of the message whose time is the latency.
        large_bytes: of the message whose time gives the bandwidth.
        budget_s: Seconds for all pairs.
        rounds: over all pairs.
        factor: a link is slow from this many times the median latency, or the median time of a
            byte.
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
        """One for each ordered pair of ranks."""
        return self.world_size * (self.world_size - 1)

    @property
    def visits(self) -> int:
        """Of links in all rounds."""
        return self.rounds * self.links


@dataclass(frozen=True, slots=True)
class Link:
    """From one rank to another.

    Attributes:
        latency_s: of a small message one way, half a round trip; as the bandwidth of the fastest
            tenth of the messages, in the best round.
        bandwidth_bytes_per_s: of large messages, one way.
        latency_ratio: times the median of the others of its kind; 1 where there are none, or a
            slow rank is to blame.
        bandwidth_ratio: times less than that, likewise.
        slow: in what it is slow.
        wrong: elements that came out wrong.
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
    """Every pair of ranks, both ways.

    Attributes:
        links: each ordered pair that was measured; all of them unless the world failed.
        slow_ranks: ranks whose links are all slow, to a like degree: not the links but they are.
        median_latency_s: over the links; None without any.
        median_bandwidth_bytes_per_s: likewise.
        hosts: of each rank; empty if all live on this one.
        world: that failed; None if it did not.
    """

    spec: LinksSpec
    links: tuple[Link, ...]
    slow_ranks: tuple[int, ...] = ()
    median_latency_s: float | None = None
    median_bandwidth_bytes_per_s: float | None = None
    elapsed_s: float = 0.0
    interrupted: bool = False
    hosts: tuple[str, ...] = ()
    environment: dict[str, str | int | float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    world: WorldReport | None = field(default=None, metadata={"json": False})

    @property
    def slow(self) -> tuple[Link, ...]:
        """The links that are slow."""
        return tuple(link for link in self.links if link.slow)

    @derived
    def wrong(self) -> int:
        """Elements of all links that came out wrong."""
        return sum(link.wrong for link in self.links)

    @property
    def ok(self) -> bool:
        """Whether all pairs were measured and right; a slow link is a finding, not a failure."""
        whole = len(self.links) == self.spec.links and not self.interrupted
        return self.world is None and whole and not self.wrong
