"""Is this normal? A line for each row: the reason with its figures, and what to try.

A row is held against what the machine did without torch.distributed in the same run: the bound's
bandwidth, and the latency of the same transport. No torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdemo.bench.figures import rate_text, share_text, time_text, times_text
from distdemo.bench.old_records import Row
from distdemo.bench.summary import median
from distdemo.bench.yardsticks import (
    DEVICE_COPY,
    SHARED_MEMORY,
    TCP_STREAM,
    Judgement,
    Limit,
    Setup,
)

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
SLOW_MESSAGE = 50e-6
"""Seconds for each of them that are never unusual: shared memory answers in less than a
microsecond, but torch and a backend's own code take some ten for a call, whatever carries it."""
SLOW_FIXED = 4
"""Times the smallest sizes' medians, where the transport's latency is not known, as on a GPU."""
FEW = 0.1
"""Share of a time up to which it doesn't matter what takes it, as the bytes of a small message."""
LIKE_SMALL = 3
"""Times the smallest sizes' medians, up to which a time is a fixed cost too: messages of some KiB
take other ways through a backend than those of some bytes (gloo: twice as long)."""
SMALL = 4096
"""Bytes up to which a row's time is a fixed cost alone: at 1 GB/s they take 4 µs."""
DISTURBED = 3
"""Times its fastest tenth's, from which on a median is another's doing: where ranks have a core
each, half of the iterations are within a factor of two."""
TRANSITION = 0.2
"""Share of the fixed cost in a time from which on it is worth a word."""

_SLOW_HINT = (
    "Try `distdemo doctor`; look at what else runs here (top), at swapping, at the interface that "
    "is used (GLOO_SOCKET_IFNAME), at TORCH_DISTRIBUTED_DEBUG and whether torch is a debug build."
)


@dataclass(frozen=True, slots=True)
class _Case:
    """A row and what it is held against.

    Attributes:
        n: ranks of a group.
        fixed: seconds of an op on next to no bytes; None: none was measured.
    """

    row: Row
    setup: Setup
    bound: Limit
    n: int
    fixed: float | None

    @property
    def bytes_alone(self) -> float:
        """Seconds in which a rank's bytes would travel at the limit."""
        return self.row.size * self.row.factor / self.bound.bandwidth

    @property
    def share(self) -> float:
        """Of the bound's bandwidth."""
        return self.row.busbw / self.bound.bandwidth

    @property
    def latency(self) -> float | None:
        """Seconds of 8 bytes over the transport of the bound."""
        kind = self.bound.kind
        known = [each.latency for each in self.setup.limits if each.kind == kind and each.latency]
        return median(known) if known else None

    @property
    def allowed(self) -> float | None:
        """Seconds beyond which even the fastest tenth is unusually slow; None: nobody can say.

        Of a GPU's memory nobody can: what lies between two GPUs, NVLink, PCIe or a network, is five
        to a hundred times slower than that, and was not measured.
        """
        if self.bound.kind == DEVICE_COPY:
            return None
        for_bytes, latency = self.bytes_alone / SLOW, self.latency
        if latency is not None:
            message = max(SLOW_LATENCIES * latency, SLOW_MESSAGE)
            return 2 * (self.n - 1) * message + for_bytes
        return None if self.fixed is None else SLOW_FIXED * self.fixed + for_bytes


def judge(row: Row, rows: Sequence[Row], setup: Setup, n: int) -> Judgement:
    """Whether a row is what one should expect here.

    Args:
        row: to be judged.
        rows: of the same series, this one included; the smallest tell the fixed cost.
        setup: of its backend, with limits and bound.
        n: ranks in a group that runs the op.
    """
    nothing = _nothing_to_judge(row, n)
    if nothing:
        return Judgement("", nothing)
    crowded = 0 < setup.cores < setup.ranks_per_host
    if setup.bound is None or setup.bound.bandwidth <= 0:
        unknown = Judgement("", "What the machine can do was not measured.")
        return _oversubscribed(setup, None) if crowded else unknown
    return _judged(_Case(row, setup, setup.bound, n, _fixed(rows)), crowded=crowded)


def _judged(case: _Case, *, crowded: bool) -> Judgement:
    """The first kind that fits."""
    if case.share >= CLOSE:
        return _close(case)
    if crowded:
        return _oversubscribed(case.setup, case)
    if case.allowed is not None and case.row.p10 > case.allowed:
        return _unusually_slow(case)
    return _latency_bound(case) or _below(case)


# --------------------------------------------------------------------------------------- the kinds


def _nothing_to_judge(row: Row, n: int) -> str:
    """Why there is no bandwidth; empty if there is."""
    if n < 2 or (row.size > 0 and row.factor == 0):
        return "A single rank sends nothing: there is no bandwidth to judge."
    if row.size == 0:
        return "It moves no bytes: its time is all there is to it."
    return "" if row.median > 0 else "It took no time that could be measured."


def _close(case: _Case) -> Judgement:
    reached = f"{rate_text(case.row.busbw)} is {share_text(case.share)} of {_bound(case)}"
    more = ""
    if case.share > 1.1 and case.bound.kind == TCP_STREAM and case.setup.world.device != "cpu":
        more = ": more, as data of GPUs takes other ways than TCP"
    elif case.share > 1.1:
        more = ": more, as its data stays in the cache or is copied fewer times"
    return Judgement("close to the limit", f"{reached}{more}.", share=case.share)


def _oversubscribed(setup: Setup, case: _Case | None) -> Judgement:
    why = f"{setup.ranks_per_host} ranks share {setup.cores:g} {_cores(setup.cores)}"
    fewer = max(1, int(setup.cores))
    hint = f"Try at most {fewer} ranks on a host, or a machine with more cores."
    if fewer == 1:
        hint = "Try a machine with a core a rank."
    if case is None:
        return Judgement("oversubscribed", f"{why}: each waits for its turn.", hint)
    return Judgement("oversubscribed", f"{why}: {_cost(case)}.", hint, case.share)


def _cost(case: _Case) -> str:
    """What having to take turns costs, as far as it was measured."""
    bound = case.bound
    alone = [each for each in case.setup.limits if each.kind == bound.kind and not each.at_once]
    reached = f"it reaches {share_text(case.share)} of {_bound(case)}"
    if not alone or not bound.at_once:
        return reached
    best = median([each.bandwidth for each in alone])
    who = "one pair" if len(alone[0].ranks) == 2 else "one rank"
    return f"{reached}, and {who} alone would have {rate_text(best)}"


def _unusually_slow(case: _Case) -> Judgement:
    row, latency = case.row, case.latency
    if case.bytes_alone >= FEW * (case.allowed or 0.0):
        why = f"{rate_text(row.busbw)} is {share_text(case.share)} of {_bound(case)}"
    elif latency is not None:
        ratio = row.p10 / latency
        why = (
            f"even the fastest tenth takes {time_text(row.p10)}, {times_text(ratio)} as long as "
            f"8 B over a {case.bound.kind}, {time_text(latency)}"
        )
    else:
        why = f"it takes {time_text(row.median)}, {times_text(row.median / (case.fixed or 1))} as "
        why += f"long as the smallest sizes, and its bytes would take {time_text(case.bytes_alone)}"
    return Judgement("unusually slow", f"{_capital(why)}.", _SLOW_HINT, case.share)


def _latency_bound(case: _Case) -> Judgement | None:
    row, fixed = case.row, case.fixed
    if fixed is None or case.share > FEW or row.median > LIKE_SMALL * fixed:
        return None
    why = (
        f"Its bytes would take {time_text(case.bytes_alone)} at the limit, not "
        f"{time_text(row.median)}: the rest is a fixed cost of messages{_beside(case, fixed)}."
    )
    return Judgement("latency-bound", why, "Send more at a time: fewer, larger ops.", case.share)


def _beside(case: _Case, fixed: float) -> str:
    """How much of a time the fixed cost explains; nothing where it is all of it."""
    whole = case.row.median
    if fixed >= whole:
        return ""
    known = f" ({time_text(fixed)} at the smallest sizes)"
    unknown = whole - fixed - case.bytes_alone
    return f"{known} and of what grows slowly with size" * (unknown > FEW * whole) or known


def _below(case: _Case) -> Judgement:
    row, fixed = case.row, case.fixed
    reached = f"{rate_text(row.busbw)} is {share_text(case.share)} of {_bound(case)}"
    if row.median > DISTURBED * row.p10:
        why = (
            f"{reached}, yet the fastest tenth takes {time_text(row.p10)} and not "
            f"{time_text(row.median)}: something else takes the cores in between"
        )
        return Judgement("below the limit", f"{why}.", "Look at what else runs here.", case.share)
    if fixed is not None and fixed >= TRANSITION * row.median:
        why = f"{reached}: {share_text(min(1.0, fixed / row.median))} of the time is a fixed cost"
        return Judgement("below the limit", f"{why}, less so for larger sizes.", "", case.share)
    if case.bound.kind == DEVICE_COPY:
        why = f"{reached}: within a GPU's own memory; no link between two GPUs is as fast"
        return Judgement("below the limit", f"{why}.", "", case.share)
    why = f"{reached}, as is usual: a backend copies, waits and computes in between"
    return Judgement("below the limit", f"{why}.", "", case.share)


# -------------------------------------------------------------------------------------- the pieces


def _fixed(rows: Sequence[Row]) -> float | None:
    """Seconds of the smallest sizes: the least of their medians; None if all are large."""
    small = [row.median for row in rows if 0 < row.size <= SMALL and row.median > 0]
    return min(small, default=None)


def _bound(case: _Case) -> str:
    """The bound in words: ``the 5.5 GB/s of a TCP stream, all ranks at once``."""
    bound = case.bound
    article = "" if bound.kind == SHARED_MEMORY else "a "
    way = "through shared memory" if not article else f"of {article}{bound.kind}"
    return f"the {rate_text(bound.bandwidth)} {way}" + (", all ranks at once" * bound.at_once)


def _cores(count: float) -> str:
    return "core" if count == 1 else "cores"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
