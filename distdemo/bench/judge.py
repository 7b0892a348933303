"""Verdict on each row's bandwidth, with the reason and a hint. No torch.

A row is compared with the machine's speed without torch.distributed in the same run: the bound's
bandwidth, and the latency of the same transport.
"""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.backends.contract import Transport
from distdemo.measure.records import Judgement, Limit, Row, Setup, Verdict
from distdemo.view.format import duration, percent, plural, rate

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
DISTURBED_FACTOR = 3
"""Multiple of the fastest tenth above which other programs caused the median: if each rank has a
core, half of the iterations are within a factor of two."""
NEGLIGIBLE_S = 10e-9
SLOW_HINT = (
    "Try `distdemo doctor`; check for other programs (top), swapping, the interface in use "
    "(GLOO_SOCKET_IFNAME), TORCH_DISTRIBUTED_DEBUG, and a debug build of torch."
)


def judge(row: Row, rows: Sequence[Row], setup: Setup, n: int) -> Judgement | None:
    """Return the judgement of a row; None if it has no bandwidth.

    Args:
        row: Row to judge.
        rows: All rows of its series; the smallest give the fixed cost.
        setup: Set-up of its backend, with limits and bound.
        n: Number of ranks in a group that runs the op.
    """
    if n < 2 or not row.size_bytes or not row.busbw_factor or row.median_s <= 0:
        return None
    bound, oversubscribed = setup.bound, 0 < setup.cores < setup.ranks_per_host
    sharing = f"{plural(setup.ranks_per_host, 'rank')} share {setup.cores:g} cores"
    fewer_ranks = f"Try at most {max(1, int(setup.cores))} ranks per host, or more cores."
    if bound is None or bound.bandwidth_bytes_per_s <= 0:
        if oversubscribed:
            return Judgement(Verdict.OVERSUBSCRIBED, f"{sharing}, and take turns.", fewer_ranks)
        return Judgement(Verdict.UNKNOWN, "The machine's limits were not measured.")
    share = float(row.busbw_bytes_per_s) / bound.bandwidth_bytes_per_s
    bytes_s = row.size_bytes * row.busbw_factor / bound.bandwidth_bytes_per_s
    small = [each.median_s for each in rows if 0 < each.size_bytes <= SMALL_BYTES]
    fixed_s = min(small, default=None)  # time of an op on hardly any bytes
    slow_limit_s = _slow_limit_s(bytes_s, fixed_s, bound, n)
    limit = f"the {rate(bound.bandwidth_bytes_per_s)} of a {bound.transport.value}"
    reached = f"{rate(row.busbw_bytes_per_s)} is {percent(share)} of {limit}"
    hint = ""
    if share >= CLOSE_SHARE:
        verdict, why = Verdict.CLOSE, reached
        if share > 1.1:
            why += ": more, because its data takes a faster path, such as a cache"
    elif oversubscribed:
        verdict, why, hint = (
            Verdict.OVERSUBSCRIBED,
            f"{sharing}, and take turns: {reached}",
            fewer_ranks,
        )
    elif slow_limit_s is not None and row.p10_s > slow_limit_s:
        verdict, hint = Verdict.SLOW, SLOW_HINT
        fastest, most = duration(row.p10_s), duration(slow_limit_s)
        why = f"{reached}; even the fastest tenth takes {fastest}, more than {most}"
    elif (
        fixed_s is not None
        and share <= NEGLIGIBLE_SHARE
        and row.median_s <= FIXED_COST_FACTOR * fixed_s
    ):
        verdict, hint = Verdict.LATENCY_BOUND, "Use fewer, larger ops."
        alone = duration(bytes_s) if bytes_s > NEGLIGIBLE_S else "no time"
        why = (
            f"Its bytes would take {alone} at the limit, not {duration(row.median_s)}: the rest is "
            "a fixed cost per message"
        )
    elif row.median_s > DISTURBED_FACTOR * row.p10_s:
        verdict, hint = Verdict.DISTURBED, "Check for other programs on this machine."
        why = (
            f"The fastest tenth takes {duration(row.p10_s)}, the median {duration(row.median_s)}: "
            "other programs use the cores at times"
        )
    else:
        verdict = Verdict.BELOW
        why = f"{reached}, as is usual: a backend copies, waits and computes in between"
        if bound.transport is Transport.DEVICE_COPY:
            why = f"{reached}, the speed within one GPU's memory; no link between GPUs is as fast"
    return Judgement(verdict, f"{why}.", hint, share)


def _slow_limit_s(bytes_s: float, fixed_s: float | None, bound: Limit, n: int) -> float | None:
    """Return the time above which even the fastest tenth is unusually slow; None if unknown.

    It is unknown if the bound is a GPU's memory: the link between two GPUs (NVLink, PCIe or a
    network) is five to a hundred times slower, and isn't measured.
    """
    if bound.transport is Transport.DEVICE_COPY:
        return None
    if bound.latency_s:
        message = max(SLOW_LATENCIES * bound.latency_s, MIN_SLOW_MESSAGE_S)
        return 2 * (n - 1) * message + bytes_s / SLOW_SHARE
    return None if fixed_s is None else SLOW_FIXED_FACTOR * fixed_s + bytes_s / SLOW_SHARE
