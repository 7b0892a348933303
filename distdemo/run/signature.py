"""What a user's function takes: the rank and the size if it names them, then arguments as text.

Read from its source before any rank starts, so that a mistake is found then, and from the function
itself on every rank. No torch.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distdemo.errors import UsageError
from distdemo.launcher.leading import leading

KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}
TRUTHS = {"true": True, "yes": True, "on": True, "1": True}
FALSEHOODS = {"false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter after the rank and the size.

    Attributes:
        kind: what its text is made into: ``int``, ``float`` or ``bool``; empty: it stays text.
        required: it has no default.
    """

    name: str
    kind: str = ""
    required: bool = True


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes.

    Attributes:
        leading: how many of (rank, size) come first: 0, 1 or 2.
        taken: what it takes by position after these.
        rest: the ``*args`` after those, if it has such.
        by_name: what has to be given by name, which the command line can't do.
    """

    leading: int = 0
    taken: tuple[Parameter, ...] = ()
    rest: Parameter | None = None
    by_name: tuple[str, ...] = ()


def of_source(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Signature:
    """The signature of a function that is only read."""
    args = node.args
    given = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(given) - len(args.defaults))
    defaults += args.defaults
    parameters = [
        Parameter(arg.arg, _kind(_annotated(arg), _constant(default)), default is None)
        for arg, default in zip(given, defaults, strict=True)
    ]
    rest = (
        None if args.vararg is None else Parameter(args.vararg.arg, _kind(_annotated(args.vararg)))
    )
    named = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    return _signature(parameters, rest, [arg.arg for arg, default in named if default is None])


def of_function(function: Callable[..., Any]) -> Signature | None:
    """The signature of a function that is loaded; None if it has none that Python knows."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins
        return None
    parameters: list[Parameter] = []
    rest, by_name = None, []
    for each in found:
        kind = _kind(_text_of(each.annotation), each.default)
        parameter = Parameter(each.name, kind, each.default is each.empty)
        if each.kind is each.VAR_POSITIONAL:
            rest = parameter
        elif each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
            parameters.append(parameter)
        elif each.kind is each.KEYWORD_ONLY and parameter.required:
            by_name.append(each.name)
    return _signature(parameters, rest, by_name)


def bound(
    function: Callable[..., Any], rank: int, size: int, arguments: Sequence[str]
) -> tuple[Any, ...]:
    """What to call the function with, by position.

    Raises:
        UsageError: it can't be called with these.
    """
    signature = of_function(function)
    if signature is None:
        return tuple(arguments)
    name = getattr(function, "__name__", repr(function))
    return ((rank, size)[: signature.leading]) + converted(signature, name, arguments)


def converted(signature: Signature, name: str, arguments: Sequence[str]) -> tuple[Any, ...]:
    """The arguments as the function wants them.

    Args:
        signature: of the function.
        name: of the function, for the message.
        arguments: as they were typed.

    Raises:
        UsageError: they are too few, too many, or not what it wants.
    """
    _check_count(signature, name, len(arguments))
    parameters = [*signature.taken]
    if signature.rest is not None:
        parameters += [signature.rest] * (len(arguments) - len(parameters))
    return tuple(
        _convert(name, parameter, text)
        for parameter, text in zip(parameters, arguments, strict=False)
    )


# ---------------------------------------------------------------------------------------- checks


def _check_count(signature: Signature, name: str, given: int) -> None:
    if signature.by_name:
        raise UsageError(
            f"{name} can't be called from the command line.",
            f"It wants {_listed(signature.by_name)} by name alone: it stands after a * in its "
            "parameters.",
            "Give that a default, or --script runs the whole file.",
        )
    wanted = [parameter.name for parameter in signature.taken]
    needed = [parameter.name for parameter in signature.taken if parameter.required]
    if given < len(needed):
        words = " ".join(each.upper() for each in needed)
        raise UsageError(
            f"{name} needs {_counted(len(needed))}, and {_counted(given) if given else 'none'} "
            f"{'was' if given < 2 else 'were'} given.",
            f"It takes {_listed(needed)}{_beside(signature)}.",
            f"Add -- {words} at the end; or --script runs the whole file.",
        )
    if given > len(wanted) and signature.rest is None:
        takes = f"It takes {_listed(wanted)}" if wanted else "It takes none"
        raise UsageError(
            f"{name} takes {_counted(len(wanted)) if wanted else 'no arguments'}, and {given} "
            f"{'was' if given == 1 else 'were'} given.",
            f"{takes}{_beside(signature)}.",
            "Leave some out; or --script runs the whole file, with all of them in sys.argv.",
        )


def _beside(signature: Signature) -> str:
    return ("", " after the rank", " after the rank and the size")[signature.leading]


def _counted(count: int) -> str:
    return "1 argument" if count == 1 else f"{count} arguments"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


# ------------------------------------------------------------------------------------ conversion


def _convert(name: str, parameter: Parameter, text: str) -> Any:  # noqa: ANN401 - one of the kinds
    try:
        if parameter.kind == "bool":
            return (TRUTHS | FALSEHOODS)[text.lower()]
        return {"int": int, "float": float}.get(parameter.kind, str)(text)
    except (KeyError, ValueError):
        raise UsageError(
            f"{name} can't take {text!r} as {parameter.name}.",
            f"{parameter.name} is {KINDS[parameter.kind]}: the function says {parameter.kind}.",
            "Write another value after --.",
        ) from None


def _signature(
    parameters: Sequence[Parameter], rest: Parameter | None, by_name: Sequence[str]
) -> Signature:
    first = leading([parameter.name for parameter in parameters])
    return Signature(first, tuple(parameters[first:]), rest, tuple(by_name))


def _annotated(arg: ast.arg) -> str:
    if arg.annotation is None:
        return ""
    if isinstance(arg.annotation, ast.Constant) and isinstance(arg.annotation.value, str):
        return arg.annotation.value
    return ast.unparse(arg.annotation)


def _text_of(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, type):
        return annotation.__name__
    return str(annotation)


def _constant(default: ast.expr | None) -> object:
    """The value of a default that is written out; None for others."""
    try:
        return None if default is None else ast.literal_eval(default)
    except ValueError:
        return None


def _kind(annotation: str, default: object = None) -> str:
    """The kind that the annotation names, or else that the default is of; empty: text."""
    if not annotation:
        name = type(default).__name__
        return name if name in KINDS else ""
    named = (
        annotation.strip("'\"").removeprefix("typing.").removeprefix("Optional[").removesuffix("]")
    )
    kinds = [part.strip() for part in named.split("|") if part.strip() != "None"]
    return kinds[0] if len(kinds) == 1 and kinds[0] in KINDS else ""
