"""What a user's function returned, in a form that can be shown and written anywhere.

It travels as text and plain numbers: the launcher has not loaded the user's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distdemo.running import Value

LONGEST = 4_000  # characters of a text
MOST = 10_000  # elements of a tensor that become numbers
DEEPEST = 32  # lists within lists


def value_of(returned: object) -> Value | None:
    """The value; None for None."""
    if returned is None:
        return None
    text = _text(returned)
    return Value(text, _plain(returned, text, 0))


def _text(thing: object) -> str:
    try:
        text = repr(thing)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"({type(thing).__qualname__}: its text can't be shown: {type(error).__qualname__})"
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} ... {len(text) - 2 * half:,} characters more ... {text[-half:]}"


def _plain(thing: Any, text: str, depth: int) -> Any:  # noqa: ANN401 - what JSON can hold
    """Numbers, text, lists and objects; else the text."""
    if thing is None or isinstance(thing, bool | int | float | str):
        # An instance of a user's subclass, an IntEnum perhaps, is the number that it stands for.
        return thing if thing is None else _basic(thing)
    if depth < DEEPEST and isinstance(thing, list | tuple | set | frozenset):
        return [_plain(each, _text(each), depth + 1) for each in thing]
    if depth < DEEPEST and isinstance(thing, Mapping):
        return {str(key): _plain(each, _text(each), depth + 1) for key, each in thing.items()}
    numbers = getattr(thing, "tolist", None)  # a tensor, an array, a scalar of NumPy
    if callable(numbers) and _size(thing) <= MOST:
        return numbers()
    return text


def _basic(thing: bool | float | str) -> bool | int | float | str:
    for kind in (bool, int, float, str):
        if isinstance(thing, kind):
            return kind(thing)
    return str(thing)


def _size(thing: Any) -> int:  # noqa: ANN401 - a tensor or array
    """How many elements it has; more than ``MOST`` if it does not say."""
    try:
        return int(thing.numel() if hasattr(thing, "numel") else thing.size)
    except Exception:  # noqa: BLE001 - a user's class may have anything of these names
        return MOST + 1
