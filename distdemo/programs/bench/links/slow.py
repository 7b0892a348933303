"""Which links are slow, and whether it is not rather a rank. Pure; no torch.

A link is held against the median of the others, so that one slow link does not move what it is
held against. Where ranks live on several hosts, links within a host and between hosts are two
kinds, and each is held against its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from distdemo.linking import Link
from distdemo.programs.bench.figures import rate_text, time_text, times_text
from distdemo.programs.bench.summary import median

ALIKE = 4.0
"""A slow rank delays whatever it does: its slowest link is at most so many times slower than its
quickest. Beyond, it is a matter of links."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a link is held against: seconds, and bytes a second."""

    latency: float
    bandwidth: float


def best(rounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Latency and bandwidth of a link from those of its rounds: the best of each.

    Not the median: whatever else runs on the machine makes a round worse, never better, and may
    last for more than one. A link that is slow by itself is so in every round.

    Args:
        rounds: latency and bandwidth of each.
    """
    return min(latency for latency, _ in rounds), max(bandwidth for _, bandwidth in rounds)


def typical(links: Sequence[Link]) -> Reference:
    """The medians over these links; zeros if there are none."""
    if not links:
        return Reference(0.0, 0.0)
    return Reference(
        median([link.latency for link in links]), median([link.bandwidth for link in links])
    )


def judged(
    links: Sequence[Link],
    factor: float,
    hosts: Sequence[str] = (),
) -> tuple[tuple[Link, ...], tuple[int, ...]]:
    """The same links, with those named that are slow, and the ranks that are slow themselves.

    A rank is, where all that it sends, or all that it gets, is slow against what travels between
    the others, and all of it to a like degree; its links are not named then.

    Args:
        links: at most one for each ordered pair.
        factor: how many times slower than the others a link has to be.
        hosts: of each rank; empty if all live on one.
    """
    seen = _Seen(links, factor, hosts)
    suspects = tuple(rank for rank in seen.ranks() if seen.is_slow(rank))
    return tuple(replace(link, slow=seen.words(link, suspects)) for link in links), suspects


@dataclass(frozen=True, slots=True)
class _Seen:
    """All links, and how they are compared."""

    links: Sequence[Link]
    factor: float
    hosts: Sequence[str]

    def ranks(self) -> list[int]:
        """All that have a link."""
        return sorted({rank for link in self.links for rank in (link.src, link.dst)})

    def is_slow(self, rank: int) -> bool:
        """Whether all that it sends, or all that it gets, is slow in the same way and alike."""
        sent = [link for link in self.links if link.src == rank]
        got = [link for link in self.links if link.dst == rank]
        return any(self._alike(mine, rank, say) for mine in (sent, got) for say in _SAYINGS)

    def _alike(self, mine: Sequence[Link], rank: int, say: _Say) -> bool:
        """Whether these links of the rank, two at least, are all slow in this to a like degree."""
        ratios = [self._ratios(link, (rank,)).get(say, 1.0) for link in mine]
        return len(ratios) > 1 and min(ratios) > self.factor and max(ratios) <= ALIKE * min(ratios)

    def words(self, link: Link, suspects: Sequence[int]) -> str:
        """In what the link is slow, with figures; empty if it is not, or a rank is to blame."""
        if link.src in suspects or link.dst in suspects:
            return ""
        others = self._others(link, suspects)
        against = "the other way" if len(others) == 1 else "the median of the others"
        ratios = self._ratios(link, suspects)
        found = [say for say in _SAYINGS if ratios.get(say, 1.0) > self.factor]
        return "; ".join(say(link, typical(others), against) for say in found)

    def _ratios(self, link: Link, without: Sequence[int]) -> dict[_Say, float]:
        """How many times slower it is than the others; empty if there are none."""
        others = self._others(link, without)
        return _ratios(link, typical(others)) if others else {}

    def _others(self, link: Link, without: Sequence[int]) -> list[Link]:
        """Those of the links that this one can be held against."""
        return [
            each
            for each in self.links
            if (each.src, each.dst) != (link.src, link.dst)
            and each.src not in without
            and each.dst not in without
            and self._crosses(each) == self._crosses(link)
        ]

    def _crosses(self, link: Link) -> bool:
        return bool(self.hosts) and self.hosts[link.src] != self.hosts[link.dst]


_Say = Callable[[Link, Reference, str], str]
"""Says in what a link is slow; stands for it, too."""


def _ratios(link: Link, usual: Reference) -> dict[_Say, float]:
    return {
        _latency_words: _ratio(link.latency, usual.latency),
        _bandwidth_words: _ratio(usual.bandwidth, link.bandwidth),
    }


def _ratio(one: float, other: float) -> float:
    return one / other if other > 0 else math.inf


def _latency_words(link: Link, usual: Reference, against: str) -> str:
    ratio = times_text(_ratio(link.latency, usual.latency))
    return (
        f"latency {time_text(link.latency)}, {ratio} that of {against}, {time_text(usual.latency)}"
    )


def _bandwidth_words(link: Link, usual: Reference, against: str) -> str:
    ratio = times_text(_ratio(usual.bandwidth, link.bandwidth))
    return (
        f"bandwidth {rate_text(link.bandwidth)}, {ratio} less than {against}, "
        f"{rate_text(usual.bandwidth)}"
    )


_SAYINGS: tuple[_Say, ...] = (_latency_words, _bandwidth_words)
