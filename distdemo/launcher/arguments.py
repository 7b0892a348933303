"""Bind arguments to a user's function, for ``run``, ``parity`` and ``launch``.

Rank and world size come first, if the function's first parameters have these names::

    def work(batch): ...            # work(*arguments)
    def work(rank, batch): ...      # work(rank, *arguments)
    def work(rank, size): ...       # work(rank, size, *arguments); or world_size
    def work(*, rank=0): ...        # work(*arguments, rank=rank)

Arguments from a command line are texts, which are converted to the parameters' types.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

from distdemo.errors import UsageError
from distdemo.text import cut

MAX_SHOWN = 1_000  # characters of arguments in an error
CALLED_AS = (
    "It is called as fn(*args), or fn(rank, size, *args) if its first parameters have these names."
)
SIZES = ("size", "world_size")
TRUTHS = {"true": True, "yes": True, "on": True, "1": True}
FALSEHOODS = {"false": False, "no": False, "off": False, "0": False}
_EMPTY = inspect.Parameter.empty
_IN_ORDER = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def bind(
    function: Callable[..., Any],
    rank: int,
    size: int,
    arguments: Sequence[Any],
    hint: str = CALLED_AS,
) -> functools.partial[Any]:
    """Return a call of the function with its rank and size, if it names them, and the arguments.

    Args:
        function: Function of the user's program.
        rank: Rank of this process.
        size: World size.
        arguments: Arguments as they are.
        hint: How to give the arguments, for the error.

    Raises:
        UsageError: The function can't be called with these arguments.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins
        return functools.partial(function, *arguments)
    preset = function.keywords if isinstance(function, functools.partial) else {}
    numbers = _numbers(signature, preset, rank, size)
    first = [value for parameter, value in numbers if parameter.kind in _IN_ORDER]
    named = {p.name: value for p, value in numbers if p.kind is p.KEYWORD_ONLY}
    try:
        signature.bind(*first, *arguments, **named)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise UsageError(
            f"{name}{signature} can't be called with {cut(repr(tuple(arguments)), MAX_SHOWN)}.",
            f"{error}.".capitalize(),
            hint,
        ) from None
    return functools.partial(function, *first, *arguments, **named)


def bind_texts(
    function: Callable[..., Any], rank: int, size: int, texts: Sequence[str]
) -> functools.partial[Any]:
    """Return a call as `bind` does, with the command line's arguments converted to their types.

    Raises:
        UsageError: The function can't be called with these arguments.
    """
    hint = "Put the function's arguments after --."
    bind(function, rank, size, texts, hint)
    try:
        signature = inspect.signature(function, eval_str=True)
    except (TypeError, ValueError):  # some builtins
        return functools.partial(function, *texts)
    except Exception:  # an annotation with a name that only type checkers import
        signature = inspect.signature(function)
    preset = function.keywords if isinstance(function, functools.partial) else {}
    named = {parameter.name for parameter, _ in _numbers(signature, preset, rank, size)}
    taken = [p for p in signature.parameters.values() if p.name not in {*named, *preset}]
    order = [p for p in taken if p.kind in (*_IN_ORDER, p.VAR_POSITIONAL)]
    order += order[-1:] * (len(texts) - len(order))  # of *args
    values = [_converted(*pair) for pair in zip(order, texts, strict=False)]
    return bind(function, rank, size, values, hint)


def _numbers(
    signature: inspect.Signature, preset: typing.Container[str], rank: int, size: int
) -> list[tuple[inspect.Parameter, int]]:
    """Return the parameters that are rank and world size, with their values.

    They are the first ones; if those are keyword-only, they may have any order.

    Args:
        signature: Signature of the function.
        preset: Names of arguments that a ``functools.partial`` sets.
        rank: Rank of this process.
        size: World size.
    """
    taken = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.name not in preset
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    in_order = [parameter for parameter in taken if parameter.kind in _IN_ORDER][:2]
    by_name = [parameter for parameter in taken if parameter.kind is parameter.KEYWORD_ONLY]
    candidates = [*in_order, *by_name]
    is_first = in_order[0].name == "rank" if in_order else "rank" in [p.name for p in by_name]
    values = {"rank": rank} | dict.fromkeys(SIZES, size)
    return [(p, values[p.name]) for p in candidates if is_first and p.name in values]


# ------------------------------------------------------------------------------------------- types


def _converted(parameter: inspect.Parameter, text: str) -> Any:
    """Convert the text to the type of the annotation or of the default."""
    kind = parameter.annotation
    if kind is _EMPTY:
        kind = _EMPTY if parameter.default in (_EMPTY, None) else type(parameter.default)
    try:
        return _as(kind, text)
    except (LookupError, ValueError):
        raise UsageError(
            f"{parameter.name} can't be {cut(repr(text), MAX_SHOWN)}.",
            f"The function declares it as {inspect.formatannotation(kind)}.",
            "Give a different value after --.",
        ) from None


def _as(kind: Any, text: str) -> Any:
    """Convert the text to a type; a type that no text can have gets the text.

    Raises:
        LookupError, ValueError: The text is no value of this type.
    """
    if isinstance(kind, str):
        kind = _evaluated(kind)
    origin = typing.get_origin(kind) or kind
    inside = typing.get_args(kind)
    if origin is typing.Annotated:
        return _as(inside[0], text)
    if origin is typing.Literal:
        return {str(value): value for value in inside}[text]
    if origin in (typing.Union, types.UnionType):
        return _as_one_of(inside, text)
    if origin is bool:
        return (TRUTHS | FALSEHOODS)[text.lower()]
    if origin in (int, float) or (isinstance(origin, type) and issubclass(origin, PurePath)):
        return origin(text)
    if origin in (list, tuple, set, Sequence):
        return _as_items(origin, inside, text)
    return text


def _as_one_of(kinds: Sequence[Any], text: str) -> Any:
    """Convert the text to the first of a union's types that has it; to a string last."""
    if type(None) in kinds and text.lower() == "none":
        return None
    for kind in sorted(kinds, key=lambda kind: kind is str):
        if kind is not type(None):
            try:
                return _as(kind, text)
            except (LookupError, ValueError):
                continue
    raise ValueError(text)


def _as_items(origin: Any, kinds: Sequence[Any], text: str) -> Any:
    """Convert ``1,2,3`` to a list, tuple or set."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if origin is tuple and kinds and kinds[-1] is not Ellipsis:
        if len(kinds) != len(parts):
            raise ValueError(text)
        return tuple(map(_as, kinds, parts))
    values = [_as(kinds[0] if kinds else str, part) for part in parts]
    return values if origin is Sequence else origin(values)


def _evaluated(annotation: str) -> Any:
    """Return the type that an annotation's text names, or the text itself if it is unknown."""
    try:
        return eval(annotation, {**vars(typing), **vars(builtins)})  # noqa: S307 - the user's program
    except Exception:
        return _EMPTY
