"""Is this normal? What to think of each row: the reason with its figures, and what to try.

A row is compared with what the machine did without torch.distributed in the same run: the bound's
bandwidth, and the latency of the same transport. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from distdemo.backends.contract import Transport
from distdemo.bench.records import Judgement, Limit, Row, Setup, Verdict
from distdemo.view.format import duration, percent, plural, rate

CLOSE = 0.75
"""Share of the bound from which on there is little to gain: bound and row each differ by more than
a tenth from one run to the next."""
SLOW = 1 / 6
"""Share of the bound below which bytes are unusually slow. gloo between two ranks reaches 0.2 to
0.7 of a TCP stream from 1 MiB on (its copies and its arithmetic take turns with the sending);
five times slower it would reach 0.04 to 0.14."""
SLOW_LATENCIES = 25
"""Times the transport's own latency, for each of 2(n−1) messages one after the other, from which
on a fixed cost is unusual. gloo's is 6 to 12 times (it hands messages from thread to thread); five
times slower it would be 40 to 60."""
SLOW_MESSAGE_S = 50e-6
"""For each of them that is never unusual: torch and a backend's own code take some ten microseconds
for a call, whatever carries it."""
SLOW_FIXED = 4
"""Times the smallest sizes' medians, where the transport's latency is not known, as on a GPU."""
FEW = 0.1
"""Share of a time up to which it doesn't matter what takes it, as the bytes of a small message."""
LIKE_SMALL = 3
"""Times the smallest sizes' medians, up to which a time is a fixed cost too: messages of some KiB
take other ways through a backend than those of some bytes (gloo: twice as long)."""
SMALL_BYTES = 4096
"""Up to which a row's time is a fixed cost alone: at 1 GB/s they take 4 µs."""
DISTURBED = 3
"""Times its fastest tenth's, from which on a median is another's doing: where ranks have a core
each, half of the iterations are within a factor of two."""
NEXT_TO_NOTHING_S = 10e-9
SLOW_HINT = (
    "Try `distdemo doctor`; look at other programs (top), at swapping, at the interface in use "
    "(GLOO_SOCKET_IFNAME), at TORCH_DISTRIBUTED_DEBUG, and whether torch is a debug build."
)


def judge(row: Row, rows: Sequence[Row], setup: Setup, n: int) -> Judgement | None:
    """Whether a row is what one should expect here; None where there is no bandwidth.

    Args:
        row: to be judged.
        rows: of the same series, this one included; the smallest tell the fixed cost.
        setup: of its backend, with limits and bound.
        n: ranks in a group that runs the op.
    """
    if n < 2 or not row.size_bytes or not row.busbw_factor or row.median_s <= 0:
        return None
    bound, crowded = setup.bound, 0 < setup.cores < setup.ranks_per_host
    turns = f"{plural(setup.ranks_per_host, 'rank')} share {setup.cores:g} cores"
    fewer = f"Try at most {max(1, int(setup.cores))} ranks on a host, or more cores."
    if bound is None or bound.bandwidth_bytes_per_s <= 0:
        if crowded:
            return Judgement(Verdict.OVERSUBSCRIBED, f"{turns}, and take turns.", fewer)
        return Judgement(Verdict.UNKNOWN, "What the machine can do was not measured.")
    share = float(row.busbw_bytes_per_s) / bound.bandwidth_bytes_per_s
    bytes_s = row.size_bytes * row.busbw_factor / bound.bandwidth_bytes_per_s
    small = [each.median_s for each in rows if 0 < each.size_bytes <= SMALL_BYTES]
    fixed_s = min(small, default=None)  # of an op on next to no bytes
    allowed_s = _allowed_s(bytes_s, fixed_s, bound, n)
    limit = f"the {rate(bound.bandwidth_bytes_per_s)} of a {bound.transport.value}"
    reached = f"{rate(row.busbw_bytes_per_s)} is {percent(share)} of {limit}"
    hint = ""
    if share >= CLOSE:
        verdict, why = Verdict.CLOSE, reached
        if share > 1.1:
            why += ": more, as its data takes another way, through a cache for instance"
    elif crowded:
        verdict, why, hint = Verdict.OVERSUBSCRIBED, f"{turns}, and take turns: {reached}", fewer
    elif allowed_s is not None and row.p10_s > allowed_s:
        verdict, hint = Verdict.SLOW, SLOW_HINT
        fastest, allowed = duration(row.p10_s), duration(allowed_s)
        why = f"{reached}; even the fastest tenth takes {fastest}, not {allowed} at most"
    elif fixed_s is not None and share <= FEW and row.median_s <= LIKE_SMALL * fixed_s:
        verdict, hint = Verdict.LATENCY_BOUND, "Send more at a time: fewer, larger ops."
        alone = duration(bytes_s) if bytes_s > NEXT_TO_NOTHING_S else "no time"
        why = (
            f"Its bytes would take {alone} at the limit, not {duration(row.median_s)}: the rest is "
            "a fixed cost per message"
        )
    elif row.median_s > DISTURBED * row.p10_s:
        verdict, hint = Verdict.DISTURBED, "Look for other programs that run here."
        why = (
            f"The fastest tenth takes {duration(row.p10_s)}, the median {duration(row.median_s)}: "
            "something else takes the cores in between"
        )
    else:
        verdict = Verdict.BELOW
        why = f"{reached}, as is usual: a backend copies, waits and computes in between"
        if bound.transport is Transport.DEVICE_COPY:
            why = f"{reached}: within a GPU's own memory; no link between two GPUs is as fast"
    return Judgement(verdict, f"{why}.", hint, share)


def _allowed_s(bytes_s: float, fixed_s: float | None, bound: Limit, n: int) -> float | None:
    """The time beyond which even the fastest tenth is unusually slow; None: not known.

    For a GPU's memory it is not known: what lies between two GPUs, NVLink, PCIe or a network, is
    five to a hundred times slower than that, and was not measured.
    """
    if bound.transport is Transport.DEVICE_COPY:
        return None
    if bound.latency_s:
        message = max(SLOW_LATENCIES * bound.latency_s, SLOW_MESSAGE_S)
        return 2 * (n - 1) * message + bytes_s / SLOW
    return None if fixed_s is None else SLOW_FIXED * fixed_s + bytes_s / SLOW
