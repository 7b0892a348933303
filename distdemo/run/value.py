"""What a user's function returned, in a form that can be shown and written anywhere.

It travels as text and plain numbers: the launcher has not loaded the user's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST = 4_000  # characters of a text that is shown
MOST = 20_000  # numbers, texts, lists and objects of one value that JSON gets
DEEPEST = 32  # lists within lists
LARGEST = 1 << 64  # of an integer: JSON's readers have floats and 64 bits


class _TooMuchError(Exception):
    """It has no form in JSON, or one that is too large."""


def plain_value(returned: object) -> tuple[str, Any]:
    """The value as text, and as JSON has it: that text where it has no other form there."""
    if returned is None:
        return "", None
    text = _text(returned)
    try:
        return text, _plain(returned, [MOST], ())
    except Exception:  # noqa: BLE001 - a user's class may raise anything when it is looked into
        return text, text


def _text(thing: object) -> str:
    try:
        text = repr(thing)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"({type(thing).__qualname__}: its text can't be shown: {type(error).__qualname__})"
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} ... {len(text) - 2 * half:,} characters more ... {text[-half:]}"


def _plain(thing: Any, left: list[int], within: tuple[int, ...]) -> Any:  # noqa: ANN401, PLR0911 - what JSON can hold
    """Numbers, text, lists and objects; what has no such form is its text.

    Args:
        thing: a value.
        left: how many more parts JSON gets, in a list of one.
        within: what holds it.

    Raises:
        _TooMuchError: it is too large, too deep, or holds itself.
    """
    left[0] -= 1
    if left[0] < 0 or id(thing) in within or len(within) > DEEPEST:
        raise _TooMuchError
    if thing is None or isinstance(thing, bool):
        return thing
    for kind in (int, float, str):
        if isinstance(thing, kind):  # of a user's subclass too: an IntEnum
            number = kind(thing)
            return hex(number) if isinstance(number, int) and abs(number) > LARGEST else number
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
    if int(thing.numel() if hasattr(thing, "numel") else thing.size) > MOST:
        raise _TooMuchError
    return _plain(numbers(), left, within)
