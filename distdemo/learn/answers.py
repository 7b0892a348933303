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
_WORDS = {each: word for word, others in _SYNONYMS.items() for each in (word, *others)}
_IGNORED = frozenset(("tensor", "dtype", "bytes", "b", "it", "they", "and", "a", "an"))


def parse_answer(text: str) -> list[float | str]:
    """Return the numbers and words of an answer, without brackets, separators and units."""
    found: list[float | str] = []
    for token in _TOKEN.findall(text.lower().replace("−", "-")):
        if not (token[0].isalpha() or token[0] == "_"):
            number, _, divisor = token.partition("/")
            found.append(float(number) / (float(divisor or 1) or math.nan))
        elif token not in _IGNORED and not token.startswith("torch."):
            found.append(_WORDS.get(token, token))
    return list(dict.fromkeys(found)) if all(isinstance(each, str) for each in found) else found


def fits(text: str, value: Any) -> bool:  # noqa: ANN401 - a program's value
    """Return True if an answer has the form of this value, right or wrong."""
    answer, expected = parse_answer(text), list(_flat(value))
    return len(answer) == len(expected) and all(
        each in _SYNONYMS if isinstance(each, str) else not isinstance(other, str)
        for each, other in zip(answer, expected, strict=True)
    )


def matches(text: str, value: Any) -> bool:  # noqa: ANN401 - a program's value
    """Return True if an answer has the content of this value."""
    answer, expected = parse_answer(text), list(_flat(value))
    return len(answer) == len(expected) and all(
        each == other
        if isinstance(each, str) or isinstance(other, str)
        else math.isclose(each, other, rel_tol=1e-6, abs_tol=1e-9)
        for each, other in zip(answer, expected, strict=True)
    )


def _flat(value: Any) -> Iterator[float | str]:  # noqa: ANN401 - a program's value
    """Yield the numbers and words in a value."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _flat(each)
    else:
        yield "none" if value is None else value
