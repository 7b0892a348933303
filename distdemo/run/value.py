"""Convert a function's arguments from text, and its return value to text and plain JSON data.

The launcher has not loaded the user's classes, so it receives no other types.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distdemo.errors import UsageError
from distdemo.launcher.program import leading

MAX_CHARS = 4_000  # of a value's text
MAX_ITEMS = 20_000  # numbers, strings, lists and objects of one value in JSON
MAX_DEPTH = 32  # of nested lists
MAX_INTEGER = 1 << 64  # JSON readers have floats and 64 bits
TRUTHS = {"true": True, "yes": True, "on": True, "1": True}
FALSEHOODS = {"false": False, "no": False, "off": False, "0": False}
KINDS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": lambda text: (TRUTHS | FALSEHOODS)[text.lower()],
}


def bind(
    function: Callable[..., Any], rank: int, size: int, arguments: Sequence[str]
) -> tuple[Any, ...]:
    """Return the values to call a function with: rank and size if it names them, then arguments.

    Args:
        function: Function of the user's program.
        rank: Rank of this process.
        size: World size.
        arguments: Arguments from the command line.

    Raises:
        UsageError: The function can't be called with these arguments.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins
        return tuple(arguments)
    positional = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
    ]
    first = leading([parameter.name for parameter in positional])
    taken = positional[first:]
    if taken and taken[-1].kind is inspect.Parameter.VAR_POSITIONAL:
        taken += [taken[-1]] * (len(arguments) - len(taken))
    converted = [_converted(*pair) for pair in zip(taken, arguments, strict=False)]
    values = (*(rank, size)[:first], *converted, *arguments[len(converted) :])
    try:
        signature.bind(*values)
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        raise UsageError(
            f"{name}{signature} can't be called with {list(arguments)}.",
            f"{error}.".capitalize(),
            "Put the function's arguments after --.",
        ) from None
    return values


def _converted(parameter: inspect.Parameter, text: str) -> Any:
    """Convert the text to the type of the annotation or the default."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        kind = type(parameter.default).__name__
    else:
        named = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        named = named.strip("'\"").removeprefix("typing.").removeprefix("Optional[")
        parts = [part.strip() for part in named.removesuffix("]").split("|")]
        kind = " ".join(part for part in parts if part != "None")
    try:
        return KINDS.get(kind, str)(text)
    except (KeyError, ValueError):
        raise UsageError(
            f"{parameter.name} can't be {text!r}.",
            f"The function declares it as {kind}.",
            "Give a different value after --.",
        ) from None


class _TooMuchError(Exception):
    """The value has no JSON form, or one that is too large."""


def plain_value(returned: object) -> tuple[str, Any]:
    """Return the value as text and as JSON data, which is the text if there is no other form."""
    if returned is None:
        return "", None
    text = _text(returned)
    try:
        return text, _plain(returned, [MAX_ITEMS], ())
    except Exception:  # a user's class may raise anything
        return text, text


def _text(thing: object) -> str:
    try:
        text = repr(thing)
    except Exception as error:  # a user's __repr__ may raise anything
        return f"({type(thing).__qualname__}: its text can't be shown: {type(error).__qualname__})"
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return f"{text[:half]} ... {len(text) - 2 * half:,} characters more ... {text[-half:]}"


def _plain(thing: Any, remaining: list[int], parents: tuple[int, ...]) -> Any:
    """Convert a value to numbers, strings, lists and objects, or its text.

    Args:
        thing: Value to convert.
        remaining: Number of items that may still be added, in a list of one.
        parents: Ids of the objects that contain the value.

    Raises:
        _TooMuchError: The value is too large, too deep, or contains itself.
    """
    remaining[0] -= 1
    if remaining[0] < 0 or id(thing) in parents or len(parents) > MAX_DEPTH:
        raise _TooMuchError
    if thing is None or isinstance(thing, bool):
        return thing
    for kind in (int, float, str):
        if isinstance(thing, kind):  # also a subclass, such as an IntEnum
            number = kind(thing)
            return hex(number) if isinstance(number, int) and abs(number) > MAX_INTEGER else number
    parents = (*parents, id(thing))
    if isinstance(thing, list | tuple | set | frozenset):
        return [_plain(item, remaining, parents) for item in thing]
    if isinstance(thing, Mapping):
        items = {str(key): _plain(item, remaining, parents) for key, item in thing.items()}
        if len(items) < len(thing):  # 1 and "1"
            raise _TooMuchError
        return items
    numbers = getattr(thing, "tolist", None)  # a tensor, an array, a scalar of NumPy
    if not callable(numbers):
        return _text(thing)
    if int(thing.numel() if hasattr(thing, "numel") else thing.size) > MAX_ITEMS:
        raise _TooMuchError
    return _plain(numbers(), remaining, parents)
