"""What the machine does without torch.distributed, as a compact list."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from distdemo.bench.old_records import BenchReport
from distdemo.bench.view_numbers import rate_text, short_size
from distdemo.bench.yardsticks import SHARED_MEMORY, Limit, Setup
from distdemo.view.numbers import duration, plural


def limit_lines(setup: Setup) -> Iterator[str]:
    """A line a kind: one alone, then all at once; the bound is named."""
    for kind, group in itertools.groupby(setup.limits, lambda limit: limit.kind):
        limits = list(group)
        alone = [limit for limit in limits if not limit.at_once]
        together = [limit for limit in limits if limit.at_once]
        parts = [*_alone(alone), *_together(together)]
        size = short_size(limits[0].size)
        bound = setup.bound is not None and setup.bound.kind == kind
        end = "; busbw is held against it" if bound else ""
        yield f"{kind}: {', '.join(parts)} ({size} at a time{end})"


def a_limit(kind: str) -> str:
    """With its article: ``a TCP stream``."""
    return "a shared-memory copy" if kind == SHARED_MEMORY else f"a {kind}"


def limit_words(limit: Limit) -> str:
    """A limit in a few words: ``TCP stream 4.00 GB/s``."""
    return f"{limit.kind} {rate_text(limit.bandwidth)}"


def bounds(report: BenchReport) -> list[tuple[str, float]]:
    """The limits that busbw is held against, in words and in bytes a second.

    With the backend's name where not all have the same one.
    """
    used = dict.fromkeys(series.spec.backend for series in report.series if series.rows)
    backends: dict[tuple[str, float], list[str]] = {}
    for name in used:
        bound = report.setups[name].bound if name in report.setups else None
        if bound is not None and bound.bandwidth > 0:
            backends.setdefault((limit_words(bound), bound.bandwidth), []).append(name)
    return [
        (words if len(names) == len(used) else f"{words} ({', '.join(names)})", bandwidth)
        for (words, bandwidth), names in backends.items()
    ]


def _alone(limits: Sequence[Limit]) -> Iterator[str]:
    """One stream or copy; of several, from the slowest to the fastest."""
    if not limits:
        return
    slowest = min(limits, key=lambda limit: limit.bandwidth)
    if len(limits) == 1:
        yield f"{rate_text(slowest.bandwidth)} {_who(slowest)}{_delay(slowest)}"
        return
    fastest = max(limits, key=lambda limit: limit.bandwidth)
    what = plural(len(limits), "pair" if len(slowest.ranks) > 1 else "rank")
    spread = f"{rate_text(slowest.bandwidth)} to {rate_text(fastest.bandwidth)}"
    yield f"{spread} over {what}, each alone; the slowest {_who(slowest)}{_delay(slowest)}"


def _together(limits: Sequence[Limit]) -> Iterator[str]:
    for limit in limits:
        count = len(limit.ranks)
        all_of_them = "both ranks" if count == 2 else f"all {count:,} ranks"
        yield f"{rate_text(limit.bandwidth)} each with {all_of_them} at once{_delay(limit)}"


def _who(limit: Limit) -> str:
    if len(limit.ranks) == 2:
        return f"from rank {limit.ranks[0]} to {limit.ranks[1]}"
    return "one rank alone"


def _delay(limit: Limit) -> str:
    return "" if limit.latency is None else f", 8 B in {duration(limit.latency)}"
