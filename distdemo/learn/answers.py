"""Compare a typed answer with a value: lenient about the form, strict about the content.

``[1 2]``, ``1, 2`` and ``tensor([1., 2.])`` are the same answer.
"""

from __future__ import annotations

import math
import re
from typing import Any

_PART = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|[a-z]\w*")
_WORDS = {"hangs": "hangs", "hang": "hangs", "error": "error", "right": "right"}
"""Words that an answer can consist of, as they are compared."""


def parse_answer(text: str) -> list[float | str]:
    """Return the numbers of an answer, or its words if it has no numbers."""
    parts = _PART.findall(text.lower().replace("−", "-"))
    numbers: list[float | str] = [float(part) for part in parts if not part[0].isalpha()]
    return numbers or [_WORDS[part] for part in parts if part in _WORDS]


def compare(text: str, value: Any) -> bool | None:
    """Return whether an answer is right; None if it doesn't have the form of this value."""
    answer = parse_answer(text)
    expected = _flat(value)
    if [type(part) is str for part in answer] != [type(part) is str for part in expected]:
        return None
    return all(
        part == right
        if isinstance(part, str) or isinstance(right, str)
        else math.isclose(part, right, rel_tol=1e-6, abs_tol=1e-9)
        for part, right in zip(answer, expected, strict=True)
    )


def _flat(value: Any) -> list[float | str]:
    """Return the numbers and words in a value."""
    if isinstance(value, list | tuple):
        return [part for item in value for part in _flat(item)]
    return [value]
