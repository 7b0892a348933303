"""Numbers, tensors and durations as short text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from distdemo.model import Number, Piece
from distdemo.render.console import Signs

ENDS = (3, 2, 1)  # elements shown at each end of a long tensor: as many as fit
WIDE = 17  # columns that they should fit in
SHORT = 16  # elements up to which a tensor is shown whole
GLUE = "\u00a0"  # joins the elements of one piece, so that lines break between pieces


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


def piece_text(piece: Piece, signs: Signs, style: str) -> Text:
    """One tensor: nested like its shape, or its two ends and its size."""
    if not piece.tail and len(piece.head) <= SHORT:
        body = _nested(list(piece.head), piece.shape)
    else:
        body = _ends(piece, signs)
    return Text(body, style=style)


def _ends(piece: Piece, signs: Signs) -> str:
    """The first and last elements, in one dimension, as many as fit in ``WIDE`` columns."""
    tail = piece.tail or piece.head
    for count in ENDS:
        first = [number(value) for value in piece.head[:count]]
        last = [number(value) for value in tail[-count:]]
        body = "[" + GLUE.join([*first, signs.more, *last]) + "]"
        if len(body) <= WIDE:
            break
    return body


def _nested(values: Sequence[Number], shape: tuple[int, ...]) -> str:
    if not shape:
        return number(values[0]) if values else "[]"
    if len(shape) == 1:
        return "[" + GLUE.join(number(value) for value in values) + "]"
    step = len(values) // shape[0] if shape[0] else 0
    rows = [_nested(values[at * step : (at + 1) * step], shape[1:]) for at in range(shape[0])]
    return "[" + GLUE.join(rows) + "]"


def duration(seconds: float) -> str:
    """Seconds in the unit that people read: ``850 µs``, ``12.3 ms``, ``1.20 s``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


def size(count: float) -> str:
    """Bytes in decimal units, as bandwidths are written (1 MB is 1e6 bytes)."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:g} B"


def shape_text(dtype: str, shape: tuple[int, ...]) -> str:
    """``float32[2, 3]``; a scalar is ``float32[]``."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def plural(count: int, noun: str) -> str:
    """``1 rank``, ``4 ranks``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
