"""Convert a function's arguments from text, and its return value to text and plain JSON data.

The launcher has not loaded the user's classes, so it receives no other types.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from distdemo.errors import UsageError
from distdemo.launcher.program import leading, value_text

MAX_NUMBERS = 20_000  # of a tensor or an array in JSON
MAX_JSON_CHARS = 1 << 20
TRUTHS = {"true": True, "yes": True, "on": True, "1": True}
FALSEHOODS = {"false": False, "no": False, "off": False, "0": False}
CONVERTERS: dict[str, Callable[[str], Any]] = {
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
    """Convert the text to the type of the annotation, ``int`` or ``int | None``, or the default."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        annotation = type(parameter.default)
    kind = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    kind = kind.strip("'\"").removesuffix(" | None")
    try:
        return CONVERTERS.get(kind, str)(text)
    except (KeyError, ValueError):
        raise UsageError(
            f"{parameter.name} can't be {text!r}.",
            f"The function declares it as {kind}.",
            "Give a different value after --.",
        ) from None


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
