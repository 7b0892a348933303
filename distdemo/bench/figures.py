"""Times, sizes and bandwidths as the words of a sentence; the tables have their own."""

from __future__ import annotations


def time_text(seconds: float) -> str:
    """``850 ns``, ``12.3 µs``, ``4.2 ms``, ``1.5 s``."""
    for unit, scale in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def rate_text(bandwidth: float) -> str:
    """Bytes a second: ``3.4 GB/s``; 1 GB/s is 1e9."""
    for unit, scale in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bandwidth >= 0.9995 * scale:
            return f"{bandwidth / scale:.3g} {unit}"
    return f"{bandwidth:.3g} B/s"


def share_text(share: float) -> str:
    """``43 %``; what is below one in the first digit that it has: ``0.03 %``."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 0.95 else f"{percent:.1g} %"


def times_text(ratio: float) -> str:
    """``2.4 times``, ``18 times``."""
    return f"{ratio:.0f} times" if ratio >= 9.95 else f"{ratio:.1f} times"
