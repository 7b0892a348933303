"""Compare a typed answer with a value: lenient about the form, strict about the content.

``[1 2]``, ``1, 2`` and ``tensor([1., 2.])`` are the same answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

_TOKEN = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?:/\d+)?|[a-z_][\w.']*")
_SYNONYMS = {
    "hangs": ("hang", "hanging", "deadlock", "deadlocks", "waits", "stuck", "forever"),
    "error": ("errors", "exception", "raises", "fails", "crashes", "aborts"),
    "right": ("works", "ok", "correct"),
    "none": ("nothing", "null"),
}
_WORDS = {synonym: word for word, others in _SYNONYMS.items() for synonym in (word, *others)}
_IGNORED = frozenset(("tensor", "dtype", "bytes", "b", "it", "they", "and", "a", "an"))


def parse_answer(text: str) -> list[float | str]:
    """Return the numbers and words of an answer, without brackets, separators and units."""
    parts: list[float | str] = []
    for token in _TOKEN.findall(text.lower().replace("−", "-")):
        if not (token[0].isalpha() or token[0] == "_"):
            number, _, divisor = token.partition("/")
            parts.append(float(number) / (float(divisor or 1) or math.nan))
        elif token not in _IGNORED and not token.startswith("torch."):
            parts.append(_WORDS.get(token, token))
    return list(dict.fromkeys(parts)) if all(isinstance(part, str) for part in parts) else parts


def compare(text: str, value: Any) -> bool | None:
    """Return whether an answer is right; None if it doesn't have the form of this value."""
    answer = parse_answer(text)
    expected = list(_flat(value))
    if len(answer) != len(expected):
        return None
    pairs = list(zip(answer, expected, strict=True))
    for part, right in pairs:
        if part not in _SYNONYMS if isinstance(part, str) else isinstance(right, str):
            return None
    return all(
        part == right
        if isinstance(part, str) or isinstance(right, str)
        else math.isclose(part, right, rel_tol=1e-6, abs_tol=1e-9)
        for part, right in pairs
    )


def _flat(value: Any) -> Iterator[float | str]:
    """Yield the numbers and words in a value."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield "none" if value is None else value
