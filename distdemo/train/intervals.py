"""Stretches of time, some at once: how long they last together."""

from __future__ import annotations

from collections.abc import Sequence

Interval = tuple[float, float]


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """The same time in stretches that don't touch, in order.

    Two that overlap become one::

        [1 2 3 4]                     [1 2 3 4 5 6]
            [3 4 5 6]        →
                        [8 9]                     [8 9]
    """
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def until(intervals: Sequence[Interval], moment: float) -> list[Interval]:
    """What of them lies before a moment."""
    return [(begin, min(end, moment)) for begin, end in intervals if begin < moment]


def length(intervals: Sequence[Interval]) -> float:
    """How long they are together, if they don't overlap."""
    return sum(end - begin for begin, end in intervals)
