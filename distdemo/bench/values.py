"""Single values of a file that anybody may have written: what is none is left out, or empty."""

from __future__ import annotations

import math
from typing import Any

LONGEST = 200  # characters of a text
MOST_LAUNCHES = 200  # of a row: more are put together, neighbours with neighbours


def is_mapping(value: object) -> bool:
    """Whether it has names and values."""
    return isinstance(value, dict)


def listed(value: object) -> list[Any]:
    """A list; nothing where it is none."""
    return value if isinstance(value, list) else []


def seconds(value: object) -> float | None:
    """A number above 0 that is one; NaN, infinities and words are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < 1e300 else None


def whole(value: object, least: int = 1) -> int | None:
    """A whole number that isn't beyond all measure."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value < 1 << 63 else None


def texts(value: object) -> dict[str, str]:
    """Names and values as text; what is neither text nor number is left out."""
    pairs = value.items() if isinstance(value, dict) else ()
    return {text(name): text(each) for name, each in pairs if isinstance(each, str | int | float)}


def word(value: object) -> str | None:
    """As text; None stays None."""
    return None if value is None else text(value)


def text(value: object) -> str:
    """One short line that a terminal can show."""
    flat = " ".join(str(value)[: 4 * LONGEST].split())[:LONGEST]
    return "".join(char for char in flat if char.isprintable())


def times_of(launches: object) -> tuple[tuple[float, ...], ...]:
    """A row a launch; what is no time is dropped."""
    rows = [
        tuple(time for each in listed(launch) if (time := seconds(each)) is not None)
        for launch in listed(launches)
    ]
    each = math.ceil(len(rows) / MOST_LAUNCHES) or 1
    if each == 1:
        return tuple(rows)
    return tuple(
        tuple(time for row in rows[first : first + each] for time in row)
        for first in range(0, len(rows), each)
    )
