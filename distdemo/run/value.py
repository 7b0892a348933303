"""What a user's function returned, in a form that can be shown and written anywhere.

It travels as text and plain numbers: the launcher has not loaded the user's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distdemo.run.records import Value

LONGEST = 4_000  # characters of a text that is shown
MOST = 10_000  # numbers, texts, lists and objects of one value that JSON gets
DEEPEST = 32  # lists within lists
LARGEST = 1 << 64  # of an integer: JSON's readers have floats and 64 bits


class _TooMuchError(Exception):
    """It has no form in JSON, or one that is too large."""


def value_of(returned: object) -> Value | None:
    """The value; None for None."""
    if returned is None:
        return None
    text = _text(returned)
    try:
        plain = _Plain().of(returned)
    except Exception:  # noqa: BLE001 - a user's class may raise anything when it is looked into
        plain = text
    return Value(text, plain)


def _text(thing: object) -> str:
    try:
        text = repr(thing)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything
        return f"({type(thing).__qualname__}: its text can't be shown: {type(error).__qualname__})"
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]} ... {len(text) - 2 * half:,} characters more ... {text[-half:]}"


class _Plain:
    """Turns a value into what JSON can hold, and gives up where that would be too much."""

    def __init__(self) -> None:
        self._left = 2 * MOST
        self._within: set[int] = set()

    def of(self, thing: Any) -> Any:  # noqa: ANN401 - what JSON can hold
        """Numbers, text, lists and objects; what has no such form is its text.

        Raises:
            _TooMuchError: it is too large, too deep, or holds itself.
        """
        self._left -= 1
        if self._left < 0 or id(thing) in self._within or len(self._within) > DEEPEST:
            raise _TooMuchError
        if thing is None or isinstance(thing, bool | int | float | str):
            return _basic(thing)
        self._within.add(id(thing))
        try:
            return self._compound(thing)
        finally:
            self._within.remove(id(thing))

    def _compound(self, thing: Any) -> Any:  # noqa: ANN401 - as above
        if isinstance(thing, list | tuple | set | frozenset):
            return [self.of(each) for each in thing]
        if isinstance(thing, Mapping):
            return self._object(thing)
        numbers = getattr(thing, "tolist", None)  # a tensor, an array, a scalar of NumPy
        if not callable(numbers):
            return _text(thing)
        if _size(thing) > MOST:
            raise _TooMuchError
        return self.of(numbers())

    def _object(self, thing: Mapping[Any, Any]) -> dict[str, Any]:
        """Keys as text; two that would be the same, 1 and "1", are none."""
        found = {str(key): self.of(each) for key, each in thing.items()}
        if len(found) < len(thing):
            raise _TooMuchError
        return found


def _basic(thing: float | str | None) -> bool | int | float | str | None:
    """The plain number or text that it is, an instance of a user's subclass, an IntEnum, too."""
    for kind in (bool, int, float, str):
        if isinstance(thing, kind):
            plain = kind(thing)
            return str(hex(plain)) if kind is int and abs(plain) > LARGEST else plain  # type: ignore[arg-type]  # an int
    return None


def _size(thing: Any) -> int:  # noqa: ANN401 - a tensor or array
    """How many elements it has."""
    return int(thing.numel() if hasattr(thing, "numel") else thing.size)
