"""What ``bench links`` is asked for, and what it found. Frozen; no torch, rich or typer.

Times are seconds, sizes bytes, bandwidths bytes a second (1 GB/s is 1e9).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distdemo.launcher.records import WorldReport, WorldSpec


@dataclass(frozen=True, slots=True)
class LinksSpec:
    """A measurement of every pair of ranks, both ways.

    Attributes:
        small: bytes of the message whose time is the latency.
        large: bytes of the message whose time gives the bandwidth.
        iters: timed messages of each kind in each round, or a few more; None: as many as a pair's
            share of the budget allows.
        budget: seconds for all pairs.
        rounds: over all pairs.
        factor: a link counts as slow beyond so many times the median latency, or below one part in
            so many of the median bandwidth.
    """

    world: WorldSpec
    small: int = 8
    large: int = 1 << 20
    iters: int | None = None
    budget: float = 8.0
    rounds: int = 5
    factor: float = 2.0

    @property
    def visits(self) -> int:
        """Of links, one way each, in all rounds."""
        return self.rounds * self.world.world_size * (self.world.world_size - 1)


@dataclass(frozen=True, slots=True)
class Link:
    """From one rank to another.

    Attributes:
        latency: seconds of a small message one way, half a round trip; as the bandwidth of the
            fastest tenth of the messages, in the best round.
        bandwidth: bytes a second of large messages, one way.
        slow: why it counts as slow, in words with figures; empty: it does not.
        wrong: elements that came out wrong.
    """

    src: int
    dst: int
    latency: float
    bandwidth: float
    slow: str = ""
    wrong: int = 0


@dataclass(frozen=True, slots=True)
class LinksReport:
    """Every pair of ranks, both ways.

    Attributes:
        links: each ordered pair that was measured; all of them unless the world failed.
        latency: median over the links; seconds.
        bandwidth: median over the links; bytes a second.
        suspects: ranks that all their links are slow of: not the links but they are slow.
        failure: the world that failed; None if it did not.
    """

    spec: LinksSpec
    links: tuple[Link, ...]
    latency: float = 0.0
    bandwidth: float = 0.0
    suspects: tuple[int, ...] = ()
    failure: WorldReport | None = None
    seconds: float = 0.0
    interrupted: bool = False
    hosts: tuple[str, ...] = ()
    engine: str = "local"
    start_method: str = ""
    environment: Mapping[str, str | int | float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def slow(self) -> tuple[Link, ...]:
        """The links that count as slow."""
        return tuple(link for link in self.links if link.slow)

    @property
    def ok(self) -> bool:
        """Whether all pairs were measured and right; a slow link is a finding, not a failure."""
        n = self.spec.world.world_size
        whole = len(self.links) == n * (n - 1) and not self.interrupted
        return self.failure is None and whole and not any(link.wrong for link in self.links)
