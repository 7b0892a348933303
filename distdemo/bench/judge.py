"""Answer "Is this normal?" for each row of a series, and for each link. No torch.

The interval of the median is compared with TCP streams between the same ranks in the same run:
their bandwidth and their latency. A row is slow if its whole interval is, and normal if none of it
is. Whether other programs disturbed the machine is measured (see ``measure.machine``), never
inferred from the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median_low

from distdemo.bench.records import Answer, Figure, Link, Series, Setup, SizeRow, StreamLimit
from distdemo.view.format import digits, duration, percent, plural, rate, short_size

SLOW_SHARE = 1 / 6
"""Share of the limit below which a bandwidth is unusually low. gloo between two ranks reaches 0.2
to 0.7 of a TCP stream at 1 MiB and more (copies and arithmetic alternate with sending); if it were
five times slower, 0.04 to 0.14."""
SLOW_LATENCIES = 25
"""Multiple of the stream's latency, for each of 2(n−1) sequential messages, above which a fixed
cost is unusual. gloo's is 6 to 12 times (it hands messages from thread to thread); five times
slower it would be 40 to 60."""
MIN_SLOW_MESSAGE_S = 50e-6
"""Cost of each such message that is never unusual: torch and a backend's own code take some ten
microseconds per call on any transport."""
VARIES_SHARE = 0.5
"""Half-width of the interval above which a median varies too much to be called normal. On a quiet
machine gloo's is 0.05 to 0.35, as its threads run on other cores in every world; mpi's is 0.03."""
TAKEN_CORES = 0.15
"""Cores' worth of time from which on other programs disturb. All ranks wait for the slowest one, so
the number of ranks doesn't matter. On an idle machine it is 0 to 0.05; with 0.3 the medians of mpi
already differ by a factor."""
SLOW_RATIO = 2.0
"""Ratio to the median above which a latency or a time per byte is slow."""
SIMILAR_RATIO = 4.0
"""Largest ratio of a slow rank's slowest link to its fastest: a slow rank delays all its links. If
the ratio is larger, single links are slow."""
GOOD = (Answer.NORMAL, Answer.MEASURED)


def judge(row: SizeRow, setup: Setup) -> SizeRow:
    """Return the row with its answer, the reason, and its share of the limit.

    Args:
        row: Row to judge.
        setup: Set-up of its backend, complete.
    """
    limit = setup.limit
    share = None
    if limit is not None and row.busbw_bytes_per_s:
        share = row.busbw_bytes_per_s / limit.bandwidth_bytes_per_s
    answer, why = _answer(row, setup, share)
    return replace(row, answer=answer, why=why, limit_share=share)


def _answer(row: SizeRow, setup: Setup, share: float | None) -> tuple[Answer, str]:
    """Return the answer and its reason, a sentence without a capital."""
    taken = setup.taken_cores or 0.0
    if taken > TAKEN_CORES:
        why = f"other programs took {digits(taken)} cores from the ranks; stop them (see top)"
        return Answer.DISTURBED, why
    if row.interval_s is None:
        return Answer.MEASURED, "there are too few launches for an interval"
    if 0 < setup.cores < setup.ranks_per_host:
        ranks = plural(setup.ranks_per_host, "rank")
        return Answer.MEASURED, f"{ranks} share {setup.cores:g} cores and take turns"
    low, high = row.interval_s
    between = f"the median differs between worlds, from {duration(low)} to {duration(high)}"
    is_wide = (row.spread_share or 0.0) > VARIES_SHARE
    limit = setup.limit
    if share is None or limit is None:
        if is_wide:
            return Answer.VARIES, between
        return Answer.MEASURED, "there is no limit to compare it with"
    if row.steady:  # a narrow interval around the limit doesn't vary
        low = high = row.median_s
    slow_s = _slow_s(row, limit, setup.world_size)
    reached = (
        f"{rate(row.busbw_bytes_per_s)} at {short_size(row.size_bytes)} is {percent(share)} of the "
        f"{rate(limit.bandwidth_bytes_per_s)} of a TCP stream"
    )
    if low > slow_s:
        median = f"a median of at least {duration(low)}, not {duration(slow_s)}, is unusual"
        return Answer.SLOW, f"{reached}; {median}. Try distdemo doctor"
    if high > slow_s or is_wide:
        return Answer.VARIES, between
    return Answer.NORMAL, reached


def _slow_s(row: SizeRow, limit: StreamLimit, n: int) -> float:
    """Return the time above which a median is unusually slow."""
    bytes_s = row.size_bytes * row.busbw_factor / limit.bandwidth_bytes_per_s
    message_s = max(SLOW_LATENCIES * limit.latency_s, MIN_SLOW_MESSAGE_S)
    return 2 * (n - 1) * message_s + bytes_s / SLOW_SHARE


def disturbance(series: Series) -> str:
    """Return why the times of a series aren't the machine's own, or "" if nothing disturbed it."""
    return next((row.why for row in series.rows if row.answer is Answer.DISTURBED), "")


# ------------------------------------------------------------------------------------------ links

COSTS: dict[Figure, Callable[[Link], float]] = {
    "latency": lambda link: link.latency_s,
    "bandwidth": lambda link: 1 / link.bandwidth_bytes_per_s,
}
"""Figures in which a link can be slow, as times."""


def judge_links(
    links: Sequence[Link], hosts: Sequence[str] = ()
) -> tuple[tuple[Link, ...], tuple[int, ...]]:
    """Return the links with the slow ones marked, and the slow ranks.

    A link is compared with the median of its kind: links within a host and links between hosts are
    two kinds. A rank is slow if all its outgoing links, or all its incoming ones, are similarly
    slow. Its links are not marked then.

    Args:
        links: Measured links, at most one per ordered pair.
        hosts: Host of each rank; empty if all are on one.
    """
    kinds: dict[bool, list[Link]] = {}
    for link in links:
        crosses = bool(hosts) and hosts[link.src] != hosts[link.dst]
        kinds.setdefault(crosses, []).append(link)
    ratios: dict[Figure, dict[tuple[int, int], float]] = {figure: {} for figure in COSTS}
    for alike in kinds.values():
        for figure, cost in COSTS.items():
            usual = median_low(map(cost, alike))
            ratios[figure] |= {(link.src, link.dst): cost(link) / usual for link in alike}
    slow_ranks = tuple(
        rank
        for rank in sorted({link.src for link in links})
        if any(
            _are_alike_slow([ratio for ends, ratio in by_ends.items() if ends[end] == rank])
            for by_ends in ratios.values()
            for end in (0, 1)
        )
    )
    judged = []
    for link in links:
        ends = (link.src, link.dst)
        if not {*ends} & {*slow_ranks}:
            slow = (name for name, by_ends in ratios.items() if by_ends[ends] > SLOW_RATIO)
            link = replace(link, slow=tuple(slow))  # noqa: PLW2901 - the same link, judged
        judged.append(link)
    return tuple(judged), slow_ranks


def _are_alike_slow(ratios: Sequence[float]) -> bool:
    """Return True if all these links are slow, and similarly so: then their rank is the cause."""
    return len(ratios) > 1 and max(SLOW_RATIO, max(ratios) / SIMILAR_RATIO) < min(ratios)
