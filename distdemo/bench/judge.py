"""Verdict on each row, with the reason and a hint. No torch.

The interval of the median is compared with the machine's speed without torch.distributed in the
same run: the bound's bandwidth, and the latency of the same transport. A row is slow if its whole
interval is, and normal if none of it is. Whether other programs disturbed the machine is measured
(see ``measure.load``), never inferred from the interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdemo.backends.contract import Transport
from distdemo.measure.load import TAKEN_CORES, copies_vary
from distdemo.measure.records import Judgement, Limit, Row, Setup, Verdict
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


def judge(row: Row, rows: Sequence[Row], setup: Setup, n: int) -> Judgement | None:
    """Return the judgement of a row; None if there is nothing to judge.

    Args:
        row: Row to judge.
        rows: All rows of its series; the smallest give the fixed cost.
        setup: Set-up of its backend, with limits, bound and load.
        n: Number of ranks in a group that runs the op.
    """
    bound, share = setup.bound, None
    moves_data = n >= 2 and row.size_bytes and row.busbw_factor and row.median_s > 0
    if moves_data and bound is not None and bound.bandwidth_bytes_per_s > 0:
        share = float(row.busbw_bytes_per_s) / bound.bandwidth_bytes_per_s
    found = _disturbance(setup) or _without_limit(row, setup, share)
    if found is None and bound is not None and share is not None:
        found = _compared(row, rows, bound, n, share)
    if found is None and moves_data:
        found = Judgement(Verdict.UNKNOWN, "The machine's limits were not measured.")
    return None if found is None else replace(found, limit_share=share)


def _is_oversubscribed(setup: Setup) -> bool:
    return 0 < setup.cores < setup.ranks_per_host


def _disturbance(setup: Setup) -> Judgement | None:
    """Return the judgement of every row if the machine was disturbed, or a rank slowed down."""
    load, oversubscribed = setup.load, _is_oversubscribed(setup)
    if load is None:
        return None
    if load.slowed_ranks and not oversubscribed:
        slowed, best = load.slowed_ranks, max(load.core_shares)
        least = min(load.core_shares[rank] for rank in slowed)
        ranks = f"rank{'s' * (len(slowed) > 1)} {ranks_text(slowed)}"
        why = (
            f"{ranks.capitalize()} repeatedly got {percent(least)} of a core; "
            f"the best rank got {percent(best)}"
        )
        cores = "its core" if len(slowed) == 1 else "their cores"
        hint = f"Check what else uses {cores} (top, taskset -p) or stops it."
        return Judgement(Verdict.SLOW, f"{why}.", hint)
    taken = load.taken_cores
    if taken is None:  # what a rank lacks is taken by others, unless ranks share a core
        taken = 0.0 if oversubscribed else sum(1 - share for share in load.core_shares)
    if taken > TAKEN_CORES:
        why = f"Other programs took {digits(taken)} cores from the ranks."
        return Judgement(Verdict.DISTURBED, why, "Stop them (see top), and try again.")
    if setup.device == "cpu" and not oversubscribed and (found := copies_vary(load)):
        low, high = map(rate, found)
        why = f"Copies in memory ran at {low} at times and at {high} at others."
        return Judgement(Verdict.DISTURBED, why, "Something else uses this machine; try again.")
    return None


def _without_limit(row: Row, setup: Setup, share: float | None) -> Judgement | None:
    """Return the judgement that needs no limit; None if there is none."""
    if row.interval_s is None:
        why = "There are too few launches for an interval."
        return Judgement(Verdict.UNKNOWN, why, "Try --launches 6 or more.")
    if _is_oversubscribed(setup) and (share is None or share < CLOSE_SHARE):
        why = f"{plural(setup.ranks_per_host, 'rank')} share {setup.cores:g} cores, and take turns."
        hint = f"Try at most {max(1, int(setup.cores))} ranks per host, or more cores."
        return Judgement(Verdict.OVERSUBSCRIBED, why, hint)
    if share is None and _is_wide(row):
        return Judgement(Verdict.VARIES, f"{_between(row)}.")
    return None


def _compared(row: Row, rows: Sequence[Row], bound: Limit, n: int, share: float) -> Judgement:
    """Return the judgement of the interval by the limits."""
    bytes_s = row.size_bytes * row.busbw_factor / bound.bandwidth_bytes_per_s
    small = [each.median_s for each in rows if 0 < each.size_bytes <= SMALL_BYTES]
    fixed_s = min(small, default=None)  # time of an op on hardly any bytes
    slow_limit_s = _slow_limit_s(bytes_s, fixed_s, bound, n)
    low, high = row.interval_s or (row.median_s, row.median_s)
    if row.steady:  # a narrow interval around the limit doesn't vary
        low = high = row.median_s
    reached = _reached(row, share, bound)
    unusual = "" if slow_limit_s is None else f"more than {duration(slow_limit_s)}"
    if slow_limit_s is not None and low > slow_limit_s:
        why = f"{reached}; its median is at least {duration(low)}, {unusual}."
        return Judgement(Verdict.SLOW, why, SLOW_HINT)
    if slow_limit_s is not None and high > slow_limit_s:
        return Judgement(Verdict.VARIES, f"{_between(row)}; {unusual} would be unusually slow.")
    if _is_wide(row):
        return Judgement(Verdict.VARIES, f"{_between(row)}.")
    if share >= CLOSE_SHARE:
        faster = ": more, because its data takes a faster path, such as a cache" * (share > 1.1)
        return Judgement(Verdict.CLOSE, f"{reached}{faster}.")
    if (
        fixed_s is not None
        and share <= NEGLIGIBLE_SHARE
        and row.median_s <= FIXED_COST_FACTOR * fixed_s
    ):
        alone = duration(bytes_s) if bytes_s > NEGLIGIBLE_S else "no time"
        why = (
            f"Its bytes would take {alone} at the limit, not {duration(row.median_s)}: the rest is "
            "a fixed cost per message."
        )
        return Judgement(Verdict.LATENCY_BOUND, why, "Use fewer, larger ops.")
    why = f"{reached}, as is usual: a backend copies, waits and computes in between."
    if bound.transport is Transport.DEVICE_COPY:
        why = f"{reached}, the speed within one GPU's memory; no link between GPUs is as fast."
    return Judgement(Verdict.BELOW, why)


def _reached(row: Row, share: float, bound: Limit) -> str:
    limit = f"the {rate(bound.bandwidth_bytes_per_s)} of a {bound.transport.value}"
    return f"{rate(row.busbw_bytes_per_s)} is {percent(share)} of {limit}"


def _is_wide(row: Row) -> bool:
    return row.spread_share is not None and row.spread_share > VARIES_SHARE


def _between(row: Row) -> str:
    """Return the text for a median that differs between worlds, with a factor above 100 %."""
    low, high = row.interval_s or (row.min_s, row.max_s)
    share = row.spread_share or 0.0
    width = percent(share) if share <= 1 else times(high / low)
    return f"Its median differs between worlds by {width}, from {duration(low)} to {duration(high)}"


def _slow_limit_s(bytes_s: float, fixed_s: float | None, bound: Limit, n: int) -> float | None:
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
