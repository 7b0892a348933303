"""Which links are slow, and whether it is not rather a rank. Pure; no torch.

A link is held against the median of the others, so that one slow link does not move what it is
held against. Where ranks live on several hosts, links within a host and between hosts are two
kinds, and each is held against its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from distdemo.bench.figures import rate_text, time_text, times_text
from distdemo.bench.linking import Link
from distdemo.bench.summary import median

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
    suspects = seen.suspects()
    return seen.named(suspects), suspects


class _Seen:
    """All links, and how they are compared.

    A world of 256 ranks has 65,280 links. So what they are held against is not looked for link by
    link: each kind is put in order once, and a median without some of them is found by place.

    Args:
        links: at most one for each ordered pair.
        factor: how many times slower than the others a slow one is.
        hosts: of each rank; empty if all live on one.
    """

    def __init__(self, links: Sequence[Link], factor: float, hosts: Sequence[str]) -> None:
        self._links = links
        self._factor = factor
        self._hosts = hosts

    def suspects(self) -> tuple[int, ...]:
        """The ranks that are slow themselves."""
        kinds = self._kinds(self._links)
        mine: dict[int, list[Link]] = {}
        for link in self._links:
            mine.setdefault(link.src, []).append(link)
            mine.setdefault(link.dst, []).append(link)
        return tuple(rank for rank in sorted(mine) if self._is_slow(rank, mine[rank], kinds))

    def _is_slow(self, rank: int, mine: Sequence[Link], kinds: _Kinds) -> bool:
        """Whether all that it sends, or all that it gets, is slow in the same way and alike."""
        usual = {
            crosses: kind.without([link for link in mine if self._crosses(link) == crosses])
            for crosses, kind in kinds.items()
        }
        found = [(link, _ratios(link, usual[self._crosses(link)])) for link in mine]
        sent = [ratios for link, ratios in found if link.src == rank]
        got = [ratios for link, ratios in found if link.dst == rank]
        return any(
            self._alike([each[say] for each in way]) for way in (sent, got) for say in _SAYINGS
        )

    def _alike(self, ratios: Sequence[float]) -> bool:
        """Whether these links of a rank, two at least, are all slow to a like degree."""
        return len(ratios) > 1 and min(ratios) > self._factor and max(ratios) <= ALIKE * min(ratios)

    def named(self, suspects: Sequence[int]) -> tuple[Link, ...]:
        """All links; in words what is slow about those of which no suspect is to blame."""
        free = [link for link in self._links if not {link.src, link.dst} & set(suspects)]
        kinds = self._kinds(free)
        words = {_ends(link): self._words(link, kinds[self._crosses(link)]) for link in free}
        return tuple(replace(link, slow=words.get(_ends(link), "")) for link in self._links)

    def _words(self, link: Link, kind: _Kind) -> str:
        """In what the link is slow, with figures; empty if it is not."""
        usual = kind.without([link])
        if usual is None:
            return ""
        against = "the other way" if kind.count == 2 else "the median of the others"
        ratios = _ratios(link, usual)
        found = [say for say in _SAYINGS if ratios[say] > self._factor]
        return "; ".join(say(link, usual, against) for say in found)

    def _kinds(self, links: Sequence[Link]) -> _Kinds:
        """Those within a host, and those between hosts."""
        kinds: dict[bool, list[Link]] = {}
        for link in links:
            kinds.setdefault(self._crosses(link), []).append(link)
        return {crosses: _Kind(each) for crosses, each in kinds.items()}

    def _crosses(self, link: Link) -> bool:
        return bool(self._hosts) and self._hosts[link.src] != self._hosts[link.dst]


class _Kind:
    """Links that are held against each other."""

    def __init__(self, links: Sequence[Link]) -> None:
        self.count = len(links)
        self._latency = _Ordered({_ends(link): link.latency for link in links})
        self._bandwidth = _Ordered({_ends(link): link.bandwidth for link in links})

    def without(self, some: Sequence[Link]) -> Reference | None:
        """The medians of all the others; None if there are none."""
        if len(some) == self.count:
            return None
        ends = [_ends(link) for link in some]
        return Reference(self._latency.median_without(ends), self._bandwidth.median_without(ends))


class _Ordered:
    """A figure of many links, from the least to the greatest."""

    def __init__(self, figures: Mapping[_Ends, float]) -> None:
        order = sorted(figures, key=figures.__getitem__)
        self._values = [figures[ends] for ends in order]
        self._places = {ends: place for place, ends in enumerate(order)}

    def median_without(self, some: Sequence[_Ends]) -> float:
        """The median of the others, of which there is one at least."""
        gone = sorted(self._places[ends] for ends in some)
        left = len(self._values) - len(gone)
        return (self._left((left - 1) // 2, gone) + self._left(left // 2, gone)) / 2

    def _left(self, number: int, gone: Sequence[int]) -> float:
        """The value of this number among those whose places are not gone."""
        for place in gone:
            if place > number:
                break
            number += 1
        return self._values[number]


_Kinds = Mapping[bool, _Kind]
"""By whether they are between hosts."""
_Ends = tuple[int, int]


def _ends(link: Link) -> _Ends:
    return link.src, link.dst


_Say = Callable[[Link, Reference, str], str]
"""Says in what a link is slow; stands for it, too."""


def _ratios(link: Link, usual: Reference | None) -> dict[_Say, float]:
    """How many times slower it is than the others; 1 where there are none."""
    if usual is None:
        return dict.fromkeys(_SAYINGS, 1.0)
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
