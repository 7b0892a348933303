"""Convert a function's return value to text and plain JSON data.

The launcher has not loaded the user's classes, so it receives no other types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_CHARS = 4_000  # of a value's text
MAX_ITEMS = 20_000  # numbers, strings, lists and objects of one value in JSON
MAX_DEPTH = 32  # of nested lists
MAX_INTEGER = 1 << 64  # JSON readers have floats and 64 bits


class _TooMuchError(Exception):
    """The value has no JSON form, or one that is too large."""


def plain_value(returned: object) -> tuple[str, Any]:
    """Return the value as text and as JSON data, which is the text if there is no other form."""
    if returned is None:
        return "", None
    text = _text(returned)
    try:
        return text, _plain(returned, [MAX_ITEMS], ())
    except Exception:  # noqa: BLE001 - a user's class may raise anything
        return text, text


def _text(thing: object) -> str:
    try:
        text = repr(thing)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"({type(thing).__qualname__}: its text can't be shown: {type(error).__qualname__})"
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]} ... {len(text) - 2 * half:,} characters more ... {text[-half:]}"


def _plain(thing: Any, left: list[int], within: tuple[int, ...]) -> Any:  # noqa: ANN401, PLR0911 - what JSON can hold
    """Convert a value to numbers, strings, lists and objects, or its text.

    Args:
        thing: Value to convert.
        left: Number of items that may still be added, in a list of one.
        within: Ids of the objects that contain the value.

    Raises:
        _TooMuchError: The value is too large, too deep, or contains itself.
    """
    left[0] -= 1
    if left[0] < 0 or id(thing) in within or len(within) > MAX_DEPTH:
        raise _TooMuchError
    if thing is None or isinstance(thing, bool):
        return thing
    for kind in (int, float, str):
        if isinstance(thing, kind):  # also a subclass, such as an IntEnum
            number = kind(thing)
            return hex(number) if isinstance(number, int) and abs(number) > MAX_INTEGER else number
    within = (*within, id(thing))
    if isinstance(thing, list | tuple | set | frozenset):
        return [_plain(each, left, within) for each in thing]
    if isinstance(thing, Mapping):
        found = {str(key): _plain(each, left, within) for key, each in thing.items()}
        if len(found) < len(thing):  # 1 and "1"
            raise _TooMuchError
        return found
    numbers = getattr(thing, "tolist", None)  # a tensor, an array, a scalar of NumPy
    if not callable(numbers):
        return _text(thing)
    if int(thing.numel() if hasattr(thing, "numel") else thing.size) > MAX_ITEMS:
        raise _TooMuchError
    return _plain(numbers(), left, within)
