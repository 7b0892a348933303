"""Numbers, tensors and durations as short text."""

from __future__ import annotations

from distdemo.ops.spec import Number

ROOMS = (60, 28, 22, 17, 0)  # columns for one tensor: what most tables have, and steps of less
CUT = 17  # columns for a tensor of which only the ends are shown
ENDS = (3, 2, 1)  # elements shown at each end of a tensor that is cut: as many as fit
SHORT = 16  # elements up to which a tensor may be shown whole


def number(value: Number) -> str:
    """Six significant digits at most; whole numbers without a point."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, complex):
        sign = "-" if str(value.imag).startswith("-") else "+"
        return f"{number(value.real)}{sign}{number(abs(value.imag))}j"
    if abs(value) < 1e15 and value == int(value):
        return str(int(value))
    return f"{value:.6g}"


def distinct(one: Number | str, other: Number | str) -> tuple[str, str]:
    """Two numbers as text, with as many digits as it takes to tell them apart; or two texts."""
    if isinstance(one, str) or isinstance(other, str):
        return str(one), str(other)
    texts = number(one), number(other)
    return texts if texts[0] != texts[1] else (repr(one), repr(other))


def duration(seconds: float) -> str:
    """Seconds in the unit that people read, three digits: ``850 µs``, ``12.3 ms``, ``1.20 s``."""
    for unit, scale in (("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds)} s"


def _three_digits(value: float) -> str:
    decimals = 0 if value >= 99.95 or value == 0 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f}"


def size(count: float) -> str:
    """Bytes in decimal units, as bandwidths are written (1 MB is 1e6 bytes)."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.4g} B"


def moved(payload: int, formula: str, factor: float) -> str:
    """The bytes that an op moves, with the formula's numbers: ``2(n−1)/n × 16 B = 24 B``."""
    if formula == "1":
        return size(payload)
    return f"{formula} × {size(payload)} = {size(payload * factor)}"


def shape_text(dtype: str, shape: tuple[int, ...]) -> str:
    """``float32[2, 3]``; a scalar is ``float32[]``."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def plural(count: int, noun: str) -> str:
    """``1 rank``, ``4 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
