"""Numbers of bytes as people write them, and the range of sizes of ``bench``."""

from __future__ import annotations

import re

from distdemo.bench.sizes import SizeRange, check_range
from distdemo.cli.parse import Flags
from distdemo.errors import UsageError

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
FIRST, LAST = 8, 64 << 20
LARGEST = 1 << 60


def parse_bytes(flag: str, text: str) -> int:
    """A number of bytes: ``8``, ``64K``, ``1.5MiB``; K, M, G and T count by 1024.

    Raises:
        UsageError: it is none, is half a byte, or more than any machine has.
    """
    hint = f"Try {flag} 8, {flag} 64K or {flag} 1M."
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{flag} {text}: that is no number of bytes.",
            "It is a number, with K, M, G or T for 1024 and its powers.",
            hint,
        )
    size = float(match[1]) * 2 ** _POWERS[(match[2] or "").lower()]
    if size > LARGEST:
        raise UsageError(f"{flag} {text}: no machine has so much.", "It counts bytes.", hint)
    if size != int(size):
        raise UsageError(f"{flag} {text}: that is no whole number.", "It counts bytes.", hint)
    return int(size)


def parse_range(flags: Flags, dtype: str) -> SizeRange:
    """The sizes that the flags ask for.

    Raises:
        UsageError: naming the flag, the reason and what to try.
    """
    if flags["step_factor"] is not None and flags["step_bytes"] is not None:
        raise UsageError(
            "-f and -i don't go together.",
            "The next size is so many times the one before, or so many bytes more.",
            "Take one.",
        )
    first, last = (_bytes(flags, name) for name in ("min_bytes", "max_bytes"))
    if first is None:
        first = FIRST if last is None else min(FIRST, last)
    asked = SizeRange(
        first,
        max(LAST, first) if last is None else last,
        _factor(flags["step_factor"]),
        _bytes(flags, "step_bytes"),
    )
    check_range(asked, dtype)
    return asked


_LETTERS = {"min_bytes": "-b", "max_bytes": "-e", "step_bytes": "-i"}


def _bytes(flags: Flags, name: str) -> int | None:
    text = flags[name]
    return None if text is None else parse_bytes(_LETTERS[name], text)


def _factor(text: str | None) -> float:
    if text is None:
        return SizeRange(FIRST, LAST).factor
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"-f {text}: that is no number.",
            "Each size is so many times the one before.",
            "Try -f 2 or -f 4.",
        ) from None
