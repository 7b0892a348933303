"""Verdict on each row, with the reason and a hint. No torch.

The interval of the median is compared with the machine's speed without torch.distributed in the
same run: the bound's bandwidth, and the latency of the same transport. A row is slow if its whole
interval is, and normal if none of it is. Whether other programs disturbed the machine is measured
(see ``measure.machine``), never inferred from the interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from distdemo.backends.contract import Transport
from distdemo.bench.records import Judgement, Setup, SizeRow, SizeVerdict, TransportLimit
from distdemo.measure.machine import TAKEN_CORES
from distdemo.view.format import digits, duration, percent, plural, ranks_text, rate, times

CLOSE_SHARE = 0.75
"""Share of the bound above which there is little to gain: bound and row each differ by more than
a tenth from one run to the next."""
SLOW_SHARE = 1 / 6
"""Share of the bound below which a bandwidth is unusually low. gloo between two ranks reaches 0.2
to 0.7 of a TCP stream at 1 MiB and more (copies and arithmetic alternate with sending); if it were
five times slower, 0.04 to 0.14."""
SLOW_LATENCIES = 25
"""Multiple of the transport's own latency, for each of 2(n−1) sequential messages, above which a
fixed cost is unusual. gloo's is 6 to 12 times (it hands messages from thread to thread); five times
slower it would be 40 to 60."""
MIN_SLOW_MESSAGE_S = 50e-6
"""Cost of each such message that is never unusual: torch and a backend's own code take some ten
microseconds per call on any transport."""
SLOW_FIXED_FACTOR = 4
"""The same as a multiple of the smallest sizes' median, if the latency is unknown, as on a GPU."""
NEGLIGIBLE_SHARE = 0.1
"""Share of a time below which a part of it is negligible, such as the bytes of a small message."""
FIXED_COST_FACTOR = 3
"""Multiple of the smallest sizes' median up to which a time is also a fixed cost: messages of some
KiB use other code paths of a backend than those of some bytes (gloo: twice as long)."""
SMALL_BYTES = 4096
"""Largest size whose time is only a fixed cost: at 1 GB/s it takes 4 µs."""
VARIES_SHARE = 0.5
"""Half-width of the interval above which a median varies too much to be called normal. On a quiet
machine gloo's is 0.05 to 0.35, as its threads run on other cores in every world; mpi's is 0.03."""
NEGLIGIBLE_S = 10e-9
SLOW_HINT = (
    "Try `distdemo doctor`; check for other programs (top), swapping, the interface in use "
    "(GLOO_SOCKET_IFNAME), TORCH_DISTRIBUTED_DEBUG, and a debug build of torch."
)


def judge(row: SizeRow, rows: Sequence[SizeRow], setup: Setup, n: int) -> Judgement | None:
    """Return the judgement of a row; None if there is nothing to judge.

    Args:
        row: Row to judge.
        rows: All rows of its series; the smallest give the fixed cost.
        setup: Set-up of its backend, with limits, bound and load.
        n: Number of ranks in a group that runs the op.
    """
    share = None
    bound = setup.bound
    moves_data = n >= 2 and row.size_bytes > 0 and row.busbw_factor > 0 and row.median_s > 0
    if moves_data and bound is not None and bound.bandwidth_bytes_per_s > 0:
        share = float(row.busbw_bytes_per_s) / bound.bandwidth_bytes_per_s
    judgement = next(_judgements(row, rows, setup, n, share, moves_data=moves_data), None)
    return judgement and replace(judgement, limit_share=share)


def _judgements(
    row: SizeRow,
    rows: Sequence[SizeRow],
    setup: Setup,
    n: int,
    share: float | None,
    *,
    moves_data: bool,
) -> Iterator[Judgement]:
    """Yield the judgements that apply to a row; the first is its judgement."""
    oversubscribed = 0 < setup.cores < setup.ranks_per_host
    yield from _disturbance(setup, oversubscribed=oversubscribed)
    if row.interval_s is None:
        why = "There are too few launches for an interval."
        yield Judgement(SizeVerdict.UNKNOWN, why, "Try --launches 6 or more.")
    if oversubscribed and (share is None or share < CLOSE_SHARE):
        why = f"{plural(setup.ranks_per_host, 'rank')} share {setup.cores:g} cores, and take turns."
        hint = f"Try at most {max(1, int(setup.cores))} ranks per host, or more cores."
        yield Judgement(SizeVerdict.OVERSUBSCRIBED, why, hint)
    if share is not None and setup.bound is not None:
        yield from _compared(row, rows, setup.bound, n, share)
    if _is_wide(row):
        yield Judgement(SizeVerdict.VARIES, f"{_between(row)}.")
    if moves_data:
        yield Judgement(SizeVerdict.UNKNOWN, "The machine's limits were not measured.")


def _disturbance(setup: Setup, *, oversubscribed: bool) -> Iterator[Judgement]:
    """Yield the judgement of every row if a rank was slowed down, or the machine disturbed."""
    load = setup.load
    if load is None:
        return
    if load.slowed_ranks and not oversubscribed:
        one = len(load.slowed_ranks) == 1
        least = min(load.core_shares[rank] for rank in load.slowed_ranks)
        why = (
            f"Rank{'' if one else 's'} {ranks_text(load.slowed_ranks)} repeatedly got "
            f"{percent(least)} of a core; the best rank got {percent(max(load.core_shares))}."
        )
        cores = "its core" if one else "their cores"
        hint = f"Check what else uses {cores} (top, taskset -p) or stops it."
        yield Judgement(SizeVerdict.SLOW, why, hint)
    taken = load.taken_cores
    if taken is None:  # what a rank lacks is taken by others, unless ranks share a core
        taken = 0.0 if oversubscribed else sum(1 - share for share in load.core_shares)
    if taken > TAKEN_CORES:
        why = f"Other programs took {digits(taken)} cores from the ranks."
        yield Judgement(SizeVerdict.DISTURBED, why, "Stop them (see top), and try again.")
    if setup.device == "cpu" and not oversubscribed and load.varying_copies:
        low, high = map(rate, load.varying_copies)
        why = f"Copies in memory ran at {low} at times and at {high} at others."
        yield Judgement(SizeVerdict.DISTURBED, why, "Something else uses this machine; try again.")


def _compared(
    row: SizeRow, rows: Sequence[SizeRow], bound: TransportLimit, n: int, share: float
) -> Iterator[Judgement]:
    """Yield the judgements of the interval by the limits."""
    bytes_s = row.size_bytes * row.busbw_factor / bound.bandwidth_bytes_per_s
    small = [other.median_s for other in rows if 0 < other.size_bytes <= SMALL_BYTES]
    fixed_s = min(small, default=None)  # time of an op on hardly any bytes
    slow_limit_s = _slow_limit_s(bytes_s, fixed_s, bound, n)
    low, high = row.interval_s or (row.median_s, row.median_s)
    if row.steady:  # a narrow interval around the limit doesn't vary
        low = high = row.median_s
    limit = f"the {rate(bound.bandwidth_bytes_per_s)} of a {bound.transport.value}"
    reached = f"{rate(row.busbw_bytes_per_s)} is {percent(share)} of {limit}"
    if slow_limit_s is not None:
        unusual = f"more than {duration(slow_limit_s)}"
        if low > slow_limit_s:
            why = f"{reached}; its median is at least {duration(low)}, {unusual}."
            yield Judgement(SizeVerdict.SLOW, why, SLOW_HINT)
        if high > slow_limit_s:
            why = f"{_between(row)}; {unusual} would be unusually slow."
            yield Judgement(SizeVerdict.VARIES, why)
    if _is_wide(row):
        yield Judgement(SizeVerdict.VARIES, f"{_between(row)}.")
    if share >= CLOSE_SHARE:
        faster = ": more, because its data takes a faster path, such as a cache" * (share > 1.1)
        yield Judgement(SizeVerdict.CLOSE, f"{reached}{faster}.")
    is_fixed = fixed_s is not None and row.median_s <= FIXED_COST_FACTOR * fixed_s
    if is_fixed and share <= NEGLIGIBLE_SHARE:
        alone = duration(bytes_s) if bytes_s > NEGLIGIBLE_S else "no time"
        why = (
            f"Its bytes would take {alone} at the limit, not {duration(row.median_s)}: the rest is "
            "a fixed cost per message."
        )
        yield Judgement(SizeVerdict.LATENCY_BOUND, why, "Use fewer, larger ops.")
    why = f"{reached}, as is usual: a backend copies, waits and computes in between."
    if bound.transport is Transport.DEVICE_COPY:
        why = f"{reached}, the speed within one GPU's memory; no link between GPUs is as fast."
    yield Judgement(SizeVerdict.BELOW, why)


def _slow_limit_s(
    bytes_s: float, fixed_s: float | None, bound: TransportLimit, n: int
) -> float | None:
    """Return the time above which a median is unusually slow; None if unknown.

    It is unknown if the bound is a GPU's memory: the link between two GPUs (NVLink, PCIe or a
    network) is five to a hundred times slower, and isn't measured.
    """
    if bound.transport is Transport.DEVICE_COPY:
        return None
    if bound.latency_s:
        message = max(SLOW_LATENCIES * bound.latency_s, MIN_SLOW_MESSAGE_S)
        return 2 * (n - 1) * message + bytes_s / SLOW_SHARE
    return None if fixed_s is None else SLOW_FIXED_FACTOR * fixed_s + bytes_s / SLOW_SHARE


def _is_wide(row: SizeRow) -> bool:
    return row.spread_share is not None and row.spread_share > VARIES_SHARE


def _between(row: SizeRow) -> str:
    """Return the text for a median that differs between worlds, with a factor above 100 %."""
    low, high = row.interval_s or (row.min_s, row.max_s)
    share = row.spread_share or 0.0
    width = percent(share) if share <= 1 else times(high / low)
    return f"Its median differs between worlds by {width}, from {duration(low)} to {duration(high)}"
