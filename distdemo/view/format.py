"""Format numbers, sizes, times and lists as short text, the same in all views."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from distdemo.launcher.records import WorldReport

Number = bool | int | float | complex

BINARY = tuple((f"{letter}iB", 1 << 10 * (6 - index)) for index, letter in enumerate("EPTGMK"))
DECIMAL = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
HOUR = 3600  # seconds


def number(value: Number) -> str:
    """Format a number with at most six significant digits, integers without a point."""
    if isinstance(value, complex):
        sign = "-" if str(value.imag).startswith("-") else "+"
        return f"{number(value.real)}{sign}{number(abs(value.imag))}j"
    if isinstance(value, int) or (abs(value) < 1e15 and value == int(value)):
        return str(value if isinstance(value, int) else int(value))
    return f"{value:.6g}"


def distinct(one: Number | str, other: Number | str) -> tuple[str, str]:
    """Format two numbers with enough digits to distinguish them; return strings unchanged."""
    if isinstance(one, str) or isinstance(other, str):
        return str(one), str(other)
    texts = number(one), number(other)
    return texts if texts[0] != texts[1] else (repr(one), repr(other))


def digits(value: float) -> str:
    """Format with three digits: ``123``, ``12.3``, ``1.23``; below 0.01 with two: ``0.0012``."""
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    if value >= 0.01 or value <= 0:
        return f"{value:.2f}"
    text = f"{value:.2g}"
    return text if "e" not in text else f"{value:.1g}"


def duration(seconds: float) -> str:
    """Format seconds in a fitting unit with three digits: ``850 µs``, ``12.3 ms``, ``1.20 s``."""
    if not math.isfinite(seconds):
        return "—"
    for unit, scale in (("µs", 1e-6), ("ms", 1e-3)):
        if seconds < 999.5 * scale:
            return f"{digits(seconds / scale) if seconds else 0} {unit}"
    return f"{digits(seconds)} s" if seconds < HOUR else f"{digits(seconds / HOUR)} h"


class TimeUnit(NamedTuple):
    """Unit of a column of times, in which sums and differences of the shown numbers fit.

    Attributes:
        name: ``µs``, ``ms`` or ``s``.
        tick_s: Seconds of the last digit.
        decimals: Number of decimals.
    """

    name: str
    tick_s: float
    decimals: int

    def ticks(self, seconds: float) -> int:
        """Return the time in ticks."""
        return round(seconds / self.tick_s)

    def text(self, ticks: int) -> str:
        """Format a number of ticks: ``850 µs``, ``12.34 ms``."""
        return f"{ticks / 10**self.decimals:.{self.decimals}f} {self.name}"


def unit_of(longest_s: float) -> TimeUnit:
    """Return the unit of a column whose longest time is this one."""
    if longest_s < 1e-3:
        return TimeUnit("µs", 1e-6, 0)
    if longest_s < 1:
        return TimeUnit("ms", 1e-5, 2) if longest_s < 0.1 else TimeUnit("ms", 1e-4, 1)
    return TimeUnit("s", 1e-3, 3)


def exact_size(size: int) -> str:
    """Format bytes exactly, in a binary unit if possible: ``64 KiB``, ``65,532 B``."""
    for unit, scale in BINARY:
        if size >= scale and size % (scale // 4) == 0:
            return f"{size / scale:,g} {unit}"
    return f"{size:,} B"


def size_text(size: float) -> str:
    """Format bytes exactly, or a fraction of bytes in a binary unit with three digits."""
    return exact_size(int(size)) if size == int(size) else short_size(size)


def short_size(size: float) -> str:
    """Format bytes in a binary unit with at most three digits: ``64 KiB``, ``1.91 GiB``."""
    for unit, scale in BINARY:
        if size >= scale * 0.9995:
            value = size / scale
            return f"{value:.3g} {unit}" if value < 999.5 else f"{value:,.0f} {unit}"
    return f"{size:.4g} B"


def rate(bytes_per_s: float) -> str:
    """Format bytes per second in decimal units, as nccl-tests does: ``3.90 GB/s``."""
    for unit, scale in DECIMAL:
        if bytes_per_s >= scale:
            return f"{digits(bytes_per_s / scale)} {unit}/s"
    return f"{digits(bytes_per_s / 1e6)} MB/s"


def percent(share: float) -> str:
    """Format a share as ``62%``; a positive share is never ``0%``."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def plus_minus(share: float, sign: str = "±") -> str:
    """Format half an interval's width relative to its middle: ``±3.1%``, at most ``>±100%``."""
    if share > 1:
        return f">{sign}100%"
    value = 100 * share
    return f"{sign}{value:.1f}%" if value < 9.95 else f"{sign}{value:.0f}%"


def shape_text(dtype: str, shape: tuple[int, ...]) -> str:
    """Format dtype and shape: ``float32[2, 3]``; ``float32[]`` for a scalar."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def plural(count: int, noun: str) -> str:
    """Format a count: ``1 rank``, ``4 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listing(words: Sequence[str], last: str = "and") -> str:
    """Format a list: ``a``, ``a and b``, ``a, b and c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def some(words: Sequence[str], most: int = 3) -> str:
    """Format the first words of a list, and count the others: ``a, b, c and 19,997 more``."""
    left = len(words) - most
    return listing([*words[:most], f"{left:,} more"] if left > 0 else words)


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of consecutive numbers, in the given order."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def range_texts(numbers: Iterable[int]) -> list[str]:
    """Format numbers as ranges: ``0`` and ``2-5``."""
    runs = ranges(sorted(numbers))
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


def ranks_text(ranks: Iterable[int]) -> str:
    """Format ranks with ranges: ``0, 2-5``."""
    return ", ".join(range_texts(ranks))


def spread(count: int, most: int) -> list[int]:
    """Return up to `most` evenly spaced indices of a list, including the first and the last."""
    if count <= most:
        return list(range(count))
    return [round(step * (count - 1) / (most - 1)) for step in range(most)]


def start_and_versions(world: WorldReport, versions: Mapping[str, str]) -> str:
    """Return the world's start method, and the versions of its software, in two lines."""
    how = f"Started by {world.start_method}: {world.start_reason}."
    if world.engine != "local":
        how = f"Ranks started by {world.engine}."
    return f"{how}\n{', '.join(f'{name} {version}' for name, version in versions.items())}"
