"""Sizes, bandwidths and shares as the views of a measurement write them."""

from __future__ import annotations

from distdemo.bench.old_records import Row

UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
RATES = (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3))
GB = 1e9


def size_text(size: int) -> str:
    """Exactly: in the binary unit that it was typed in, ``64 KiB``; an odd one ``65,532 B``."""
    for unit, scale in UNITS:
        if size >= scale and size % (scale // 4) == 0:
            return f"{size / scale:g} {unit}"
    return f"{size:,} B"


def short_size(size: float) -> str:
    """In a binary unit with three digits at most, for axes and sentences: ``64 KiB``."""
    for unit, scale in UNITS:
        if size >= scale * 0.9995:
            return (
                f"{size / scale:.3g} {unit}"
                if size < 1000 * scale
                else f"{size / scale:.0f} {unit}"
            )
    return f"{size:.4g} B"


def span_text(first: int, last: int) -> str:
    """``64 KiB``, or ``8 B to 64 KiB``."""
    return short_size(first) if first == last else f"{short_size(first)} to {short_size(last)}"


def digits(value: float) -> str:
    """Three digits: ``123``, ``12.3``, ``1.23``; a small one keeps its first two: ``0.0012``."""
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    if value >= 0.01 or value <= 0:
        return f"{value:.2f}"
    text = f"{value:.2g}"
    return text if "e" not in text else f"{value:.1g}"


def rate(bandwidth: float) -> str:
    """Bytes a second in GB/s, without the unit."""
    return digits(bandwidth / GB)


def rate_text(bandwidth: float) -> str:
    """Bytes a second in the unit that fits: ``3.90 GB/s``."""
    for unit, scale in RATES:
        if bandwidth >= scale:
            return f"{digits(bandwidth / scale)} {unit}"
    return f"{bandwidth:.3g} B/s"


def percent(share: float) -> str:
    """``62%``; what is not nothing never reads as nothing."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def half_width(row: Row, sign: str) -> str:
    """The interval as a share of the median, ``±3.1%``; empty without an interval.

    One wider than the median itself says no more than that: ``>±100%``.
    """
    spread = row.spread
    if spread is None:
        return ""
    if spread > 1:
        return f">{sign}100%"
    value = 100 * spread
    return f"{sign}{value:.1f}%" if value < 9.95 else f"{sign}{value:.0f}%"
