"""Whether the machine itself changed between two recordings, and what that may explain.

Every launch holds gauges: fixed pieces of work in which the code under test has no part
(``gauges``). The time of an op is made of such pieces, words from core to core, instructions and
copies, in proportions that nobody knows. So if the machine changed, the op can have changed by as
much as the piece that changed most, and by nothing if it hardly uses that one: a change up to there
may be the machine's or the code's, and cannot be told. What is left of a change after it is
divided by all that the machine may have done is judged as if the machine had stayed the same.

A copy says nothing of small messages, and is not held against them.

Some machines have states that they flip between, also within a run. Then launches are compared with
those of the same state alone, as blocks (``shifts``), where there are enough of them. Which ones
these are is decided by the gauges, never by the times that are compared.

Seen on a virtual machine of two cores, all_reduce of two ranks over MPI: in the middle of a run the
hypervisor moved a core, and a word to the neighbour and back took 0.71 µs instead of 0.17, 4.2
times as long. From then on 8 B took 1.1 times as long, 128 KiB 2.9, 2 MiB 3.7, 32 MiB 1.1: none
more than the gauge.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from distdemo.bench.comparing import ComparedSeries, GaugeShift, Rule
from distdemo.bench.recorded import RecordedGauge, Recording
from distdemo.bench.shifts import Block, Shift, blocked
from distdemo.bench.values import MOST_LAUNCHES
from distdemo.bench.yardsticks import COPY, CORE_TO_CORE

ERROR = 0.10
"""The probability that a gauge's interval misses its ratio. More than a row's has: where rows
follow the machine, its change has to be seen before theirs is."""
GAP = 1.25
"""Two times from core to core, neighbours in the order of all launches, that are so far apart are
of two states; within one they scatter by a tenth."""
COPIED = 32 << 10
"""Bytes from which copying is a part of a message's time that counts."""


Launches = tuple[tuple[int, ...], tuple[int, ...]]
"""Of the old and of the new recording, by their places, which are compared with each other."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the gauges of two recordings say, by backend."""

    old: Recording
    new: Recording
    rule: Rule

    def alike(self, backend: str, launches: Launches) -> list[Launches]:
        """The launches parted by the state that the machine was in; what has no fellow is left out.

        Args:
            backend: that they are of.
            launches: that there are.
        """
        states = self._states(backend)
        found: dict[int, tuple[list[int], list[int]]] = {}
        for side in (0, 1):
            for place in launches[side]:
                found.setdefault(states[side].get(place, 0), ([], []))[side].append(place)
        return [(tuple(old), tuple(new)) for old, new in found.values() if old and new]

    def shifts(self, backend: str, blocks: Sequence[Launches]) -> tuple[GaugeShift, ...]:
        """The gauges that both have, over these launches."""
        found = []
        for old, new in self._both(backend):
            known = [(_seen(old, before), _seen(new, after)) for before, after in blocks]
            known = [pair for pair in known if all(pair)]
            if known:
                found.append(self._shift(old, known))
        return tuple(found)

    def whole(self) -> tuple[GaugeShift, ...]:
        """Over all launches, of all backends."""
        every = tuple(range(MOST_LAUNCHES))
        backends = dict.fromkeys(each.backend for each in self.old.gauges)
        return tuple(found for each in backends for found in self.shifts(each, [(every, every)]))

    def _both(self, backend: str) -> Iterator[tuple[RecordedGauge, RecordedGauge]]:
        new = {each.kind: each for each in self.new.gauges if each.backend == backend}
        for old in self.old.gauges:
            same = new.get(old.kind)
            if old.backend == backend and same is not None and old.ranks == same.ranks:
                yield old, same

    def flips(self, backend: str) -> Iterator[str]:
        """That the machine was in several states, in a sentence."""
        ordered = sorted(time for each in self._apart(backend) for time in each.values())
        edges = _edges(ordered)
        if not edges:
            return
        parts = [
            [time for time in ordered if bisect(edges, time) == state]
            for state in range(len(edges) + 1)
        ]
        told = ", ".join(f"{1e6 * median(part):.2g}" for part in parts)
        yield (
            f"{backend}: the machine was in {len(parts)} states: {told} µs from core to core and "
            "back. Launches are compared with those of the same state, where there are enough."
        )

    def _states(self, backend: str) -> tuple[dict[int, int], dict[int, int]]:
        """Each launch's, numbered from 0."""
        old, new = self._apart(backend)
        edges = _edges(sorted([*old.values(), *new.values()]))
        one, other = (
            {place: bisect(edges, time) for place, time in each.items()} for each in (old, new)
        )
        return one, other

    def _apart(self, backend: str) -> tuple[dict[int, float], dict[int, float]]:
        """How far the cores were apart in each launch: the gauge that knows states."""
        for pair in self._both(backend):
            if pair[0].kind == CORE_TO_CORE:
                old, new = (
                    {place: median(launch) for place, launch in enumerate(each.times) if launch}
                    for each in pair
                )
                return old, new
        return {}, {}

    def _shift(self, gauge: RecordedGauge, blocks: Sequence[Block]) -> GaugeShift:
        found = blocked(blocks, ERROR)
        before, after = (median([t for block in blocks for t in block[side]]) for side in (0, 1))
        moved = self._moved(found)
        return GaugeShift(
            gauge.backend, gauge.kind, before, after, found.ratio, found.interval, moved=moved
        )

    def _moved(self, found: Shift) -> bool:
        """By more than half of the threshold, and apart from 1."""
        if found.interval is None:
            return False
        (low, high), bound = found.interval, 1 + self.rule.threshold / 2
        return (found.ratio > bound and low > 1) or (found.ratio < 1 / bound and high < 1)


def _seen(gauge: RecordedGauge, launches: Sequence[int]) -> tuple[float, ...]:
    """The median of each of these launches in which it was looked at."""
    return tuple(
        median(gauge.times[place])
        for place in launches
        if place < len(gauge.times) and gauge.times[place]
    )


def _edges(ordered: Sequence[float]) -> list[float]:
    """Where one state ends and the next begins: what lies beyond a gap."""
    return [after for before, after in pairwise(ordered) if after > GAP * before]


def reason_for(found: Shift, size: int, gauges: Sequence[GaugeShift]) -> GaugeShift | None:
    """The gauge that may explain most of this change; None: the machine did not change that way.

    Args:
        found: how an op changed.
        size: bytes of its largest message.
        gauges: of the same launches.
    """
    fitting = [
        each
        for each in gauges
        if each.moved
        and (each.ratio > 1) == (found.ratio > 1)
        and (size >= COPIED or each.kind != COPY)
    ]
    return max(fitting, key=lambda each: max(_most(each), 1 / _most(each)), default=None)


def without(found: Shift, gauge: GaugeShift) -> Shift:
    """What is left of a change when the machine explains as much of it as it may."""
    most = _most(gauge)
    if found.interval is None:
        return Shift(found.ratio / most, None)
    return Shift(found.ratio / most, (found.interval[0] / most, found.interval[1] / most))


def _most(gauge: GaugeShift) -> float:
    """The end of its interval that is farther from 1."""
    if gauge.interval is None:
        return 1.0
    return gauge.interval[1] if gauge.ratio > 1 else gauge.interval[0]


# ------------------------------------------------------------------------------------------ words


def sentences(
    whole: Sequence[GaugeShift], series: Sequence[ComparedSeries], threshold: float
) -> Iterator[str]:
    """Each gauge that explains anything, or changed by more than the threshold.

    Args:
        whole: the gauges over all launches.
        series: that were compared.
        threshold: of a change, a share.
    """
    rows = [row.explained_by for each in series for row in each.rows]
    overall = [each.overall.explained_by for each in series]
    named = {_name(gauge): gauge for gauge in (*rows, *overall) if gauge is not None}
    named |= {_name(gauge): gauge for gauge in whole if _shows(gauge, threshold)}
    for name, gauge in named.items():
        counts = [
            sum(each is not None and _name(each) == name for each in found)
            for found in (overall, rows)
        ]
        yield f"{_said(gauge)}{_explained(*counts)}."


def _shows(gauge: GaugeShift, threshold: float) -> bool:
    return gauge.moved and max(gauge.ratio, 1 / gauge.ratio) > 1 + threshold


def _name(gauge: GaugeShift) -> tuple[str, str]:
    return gauge.backend, gauge.kind


def _said(gauge: GaugeShift) -> str:
    """With both figures: ``mpi, core to core: 0.17 µs, now 0.71 µs: the machine itself was …``."""
    word, times = ("slower", gauge.ratio) if gauge.ratio > 1 else ("faster", 1 / gauge.ratio)
    figures = f"{1e6 * gauge.old:.3g} µs, now {1e6 * gauge.new:.3g} µs"
    return (
        f"{gauge.backend}, {gauge.kind}: {figures}: the machine itself was {times:.3g} times {word}"
    )


def _explained(series: int, sizes: int) -> str:
    parts = [f"{series} series"] * bool(series) + [f"{sizes} size{'s' * (sizes > 1)}"] * bool(sizes)
    return f", which may be why {' and '.join(parts)} changed" if parts else ""


def lacking(old: Recording, new: Recording) -> Iterator[str]:
    """That one of the two, of an earlier release, does not say what the machine did."""
    if bool(old.gauges) != bool(new.gauges):
        path = old.path if new.gauges else new.path
        yield (
            f"{path} does not say what the machine itself did meanwhile, as files of this release "
            "do: a change may be the machine's."
        )
