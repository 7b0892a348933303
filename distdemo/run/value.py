"""Convert a function's return value to text and plain JSON data.

The launcher has not loaded the user's classes, so it receives no other types.
"""

from __future__ import annotations

import json
from typing import Any

from distdemo.launcher.program import value_text

MAX_NUMBERS = 20_000  # of a tensor or an array in JSON
MAX_JSON_CHARS = 1 << 20


def plain_value(returned: object) -> tuple[str, Any]:
    """Return the value as text and as JSON data, which is the text if there is no other form."""
    if returned is None:
        return "", None
    text = value_text(returned)
    try:
        document = json.dumps(returned, default=_as_list)
    except Exception:  # a user's class may raise anything
        return text, text
    return text, json.loads(document) if len(document) <= MAX_JSON_CHARS else text


def _as_list(value: Any) -> Any:
    """Return a set, tensor, array or NumPy scalar as a list or number, anything else as text."""
    if isinstance(value, set | frozenset):
        return list(value)
    numbers = getattr(value, "tolist", None)
    if not callable(numbers):
        return value_text(value)
    count = value.numel() if hasattr(value, "numel") else value.size
    return numbers() if count <= MAX_NUMBERS else value_text(value)
