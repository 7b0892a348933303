"""Numbers of bytes as people write them."""

from __future__ import annotations

import re

from distdemo.errors import UsageError

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])i?)?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
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
