"""Is this normal? What to think of each row: the reason with its figures, and what to try.

A row is held against what the machine did without torch.distributed in the same run: the bound's
bandwidth, and the latency of the same transport. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdemo.backends.contract import Transport
from distdemo.bench.records import Judgement, Limit, Row, Setup, Verdict
from distdemo.bench.statistics import median
from distdemo.view.format import duration, percent, plural, rate, times

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
"""For each of them that is never unusual: shared memory answers in less than a microsecond, but
torch and a backend's own code take some ten for a call, whatever carries it."""
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
TRANSITION = 0.2
"""Share of the fixed cost in a time from which on it is worth a word."""
NEXT_TO_NOTHING_S = 10e-9
SLOW_HINT = (
    "Try `distdemo doctor`; look at what else runs here (top), at swapping, at the interface in "
    "use (GLOO_SOCKET_IFNAME), at TORCH_DISTRIBUTED_DEBUG, and whether torch is a debug build."
)


@dataclass(frozen=True, slots=True)
class _Case:
    """A row and what it is held against.

    Attributes:
        n: ranks of a group.
        fixed_s: of an op on next to no bytes; None: none was measured.
    """

    row: Row
    setup: Setup
    bound: Limit
    n: int
    fixed_s: float | None

    @property
    def bytes_alone_s(self) -> float:
        """In which a rank's bytes would travel at the limit."""
        return self.row.size_bytes * self.row.busbw_factor / self.bound.bandwidth_bytes_per_s

    @property
    def share(self) -> float:
        """Of the bound's bandwidth."""
        return float(self.row.busbw_bytes_per_s) / self.bound.bandwidth_bytes_per_s

    @property
    def latency_s(self) -> float | None:
        """Of 8 bytes over the transport of the bound."""
        same = [each for each in self.setup.limits if each.transport == self.bound.transport]
        known = [each.latency_s for each in same if each.latency_s]
        return median(known) if known else None

    @property
    def allowed_s(self) -> float | None:
        """Beyond which even the fastest tenth is unusually slow; None: nobody can say.

        Of a GPU's memory nobody can: what lies between two GPUs, NVLink, PCIe or a network, is five
        to a hundred times slower than that, and was not measured.
        """
        if self.bound.transport is Transport.DEVICE_COPY:
            return None
        for_bytes, latency = self.bytes_alone_s / SLOW, self.latency_s
        if latency is not None:
            message = max(SLOW_LATENCIES * latency, SLOW_MESSAGE_S)
            return 2 * (self.n - 1) * message + for_bytes
        return None if self.fixed_s is None else SLOW_FIXED * self.fixed_s + for_bytes

    @property
    def reached(self) -> str:
        """``3.4 GB/s is 62% of the 5.5 GB/s of a TCP stream``, as the beginning of a sentence."""
        busbw = rate(self.row.busbw_bytes_per_s)
        return f"{busbw} is {percent(self.share)} of {bound_text(self.bound)}"

    def judged(self, verdict: Verdict, why: str, hint: str = "") -> Judgement:
        """With the share of the limit."""
        return Judgement(verdict, why, hint, self.share)


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
    crowded = 0 < setup.cores < setup.ranks_per_host
    bound = setup.bound
    if bound is None or bound.bandwidth_bytes_per_s <= 0:
        if crowded:
            return _oversubscribed(setup, None)
        return Judgement(Verdict.UNKNOWN, "What the machine can do was not measured.")
    small = [each.median_s for each in rows if 0 < each.size_bytes <= SMALL_BYTES]
    case = _Case(row, setup, bound, n, min((each for each in small if each > 0), default=None))
    if case.share >= CLOSE:
        return _close(case)
    if crowded:
        return _oversubscribed(setup, case)
    if case.allowed_s is not None and row.p10_s > case.allowed_s:
        return _slow(case)
    return _latency_bound(case) or _below(case)


def _close(case: _Case) -> Judgement:
    more = ""
    if case.share > 1.1 and case.bound.transport is Transport.TCP and case.setup.device != "cpu":
        more = ": more, as data of GPUs takes other ways than TCP"
    elif case.share > 1.1:
        more = ": more, as its data stays in the cache or is copied fewer times"
    return case.judged(Verdict.CLOSE, f"{case.reached}{more}.")


def _oversubscribed(setup: Setup, case: _Case | None) -> Judgement:
    shared = f"{setup.cores:g} core{'s' * (setup.cores != 1)}"
    why = f"{plural(setup.ranks_per_host, 'rank')} share {shared}"
    fewer = int(setup.cores)
    hint = f"Try at most {fewer} ranks on a host." if fewer > 1 else "Try more cores."
    if case is None:
        return Judgement(Verdict.OVERSUBSCRIBED, f"{why}, and take turns.", hint)
    return case.judged(Verdict.OVERSUBSCRIBED, f"{why}, and take turns: {case.reached}.", hint)


def _slow(case: _Case) -> Judgement:
    row, latency = case.row, case.latency_s
    if case.bytes_alone_s >= FEW * (case.allowed_s or 0.0):
        why = case.reached
    elif latency is not None:
        why = (
            f"Even the fastest tenth takes {duration(row.p10_s)}, {times(row.p10_s / latency)} "
            f"the {duration(latency)} of 8 B over {article(case.bound.transport)}"
        )
    else:
        why = (
            f"It takes {duration(row.median_s)}, {times(row.median_s / (case.fixed_s or 1))} the "
            f"smallest sizes' time; its bytes would take {duration(case.bytes_alone_s)}"
        )
    return case.judged(Verdict.SLOW, f"{why}.", SLOW_HINT)


def _latency_bound(case: _Case) -> Judgement | None:
    row, fixed = case.row, case.fixed_s
    if fixed is None or case.share > FEW or row.median_s > LIKE_SMALL * fixed:
        return None
    alone = duration(case.bytes_alone_s) if case.bytes_alone_s > NEXT_TO_NOTHING_S else "no time"
    why = (
        f"Its bytes would take {alone} at the limit, not {duration(row.median_s)}: the rest is a "
        "fixed cost per message."
    )
    return case.judged(Verdict.LATENCY_BOUND, why, "Send more at a time: fewer, larger ops.")


def _below(case: _Case) -> Judgement:
    row, fixed = case.row, case.fixed_s
    if row.median_s > DISTURBED * row.p10_s:
        why = (
            f"The fastest tenth takes {duration(row.p10_s)}, the median {duration(row.median_s)}: "
            "something else takes the cores in between"
        )
        return case.judged(Verdict.DISTURBED, f"{why}.", "Look at what else runs here.")
    if fixed is not None and fixed >= TRANSITION * row.median_s:
        part = percent(min(1.0, fixed / row.median_s))
        why = f"{case.reached}: {part} of the time is a fixed cost, less so for larger sizes"
    elif case.bound.transport is Transport.DEVICE_COPY:
        why = f"{case.reached}: within a GPU's own memory; no link between two GPUs is as fast"
    else:
        why = f"{case.reached}, as is usual: a backend copies, waits and computes in between"
    return case.judged(Verdict.BELOW, f"{why}.")


def bound_text(bound: Limit) -> str:
    """The bound in words: ``the 5.5 GB/s of a TCP stream, all ranks at once``."""
    end = ", all ranks at once" if bound.at_once else ""
    return f"the {rate(bound.bandwidth_bytes_per_s)} of {article(bound.transport)}{end}"


def article(transport: Transport) -> str:
    """``a TCP stream``; shared memory has none."""
    return transport.value if transport is Transport.SHARED_MEMORY else f"a {transport.value}"
