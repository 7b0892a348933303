"""Check a program's source before a rank starts, without executing it.

Only certain errors are reported. Names that are imported, assigned from a call, decorated or bound
under a condition are left to the ranks, and so is every name in a file that may bind names at run
time.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distdemo.errors import UsageError
from distdemo.files import read_file
from distdemo.launcher.api import leading

if TYPE_CHECKING:
    from distdemo.run.records import Program

MAX_LINE = 160  # characters shown of a line
# Names that can bind names or change parameters without a trace in the syntax tree.
_DYNAMIC = {
    *("globals", "locals", "vars", "exec", "setattr", "delattr", "f_globals", "__globals__"),
    *("__dict__", "__getattr__", "__signature__", "__defaults__", "__kwdefaults__", "__code__"),
}
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

TRUTHS = {"true": True, "yes": True, "on": True, "1": True}
FALSEHOODS = {"false": False, "no": False, "off": False, "0": False}
KINDS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": lambda text: (TRUTHS | FALSEHOODS)[text.lower()],
}


def check_source(program: Program) -> None:
    """Check that a program can be read and parsed, and that its function can be called.

    Raises:
        UsageError: The check fails; with the line of a syntax error, or the file's functions.
    """
    path = Path(program.file) if program.file else _module_file(program.module)
    # A pipe can be read only once, by a rank; Python also runs folders and zip files.
    if path is None or not path.is_file():
        return
    try:
        if not program.function and zipfile.is_zipfile(path):
            return
        data = read_file(path)
    except OSError as error:
        raise UsageError(
            f"{path} can't be read.", f"{error.strerror}.", "Check the file and its permissions."
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{path} is too large for a program.", f"{error}.", "Try distdemo run train.py."
        ) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python shows them when a rank compiles the file
            tree = ast.parse(data)
            compile(data, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise UsageError(
            f"{path} has a syntax error: {error.msg}.",
            _line_text(error, data),
            "Fix the file, then run it again.",
        ) from error
    except ValueError as error:  # a null byte, up to Python 3.11
        raise UsageError(
            f"{path} is not Python source: {error}.",
            "run takes a Python file.",
            "Try distdemo run train.py.",
        ) from error
    except (RecursionError, MemoryError):  # Python may still be able to run it
        return
    if program.function and not _is_dynamic(tree):
        _check_function(program, path.name, tree)


def _module_file(module: str) -> Path | None:
    """Return the file of a top-level module in the current folder, or None if ambiguous."""
    folder = os.getcwd()  # noqa: PTH109 - as Python sets sys.path
    here = PathFinder.find_spec(module, [folder])
    other = PathFinder.find_spec(module, sys.path)
    if "." in module or here is None or not str(here.origin).endswith(".py"):
        return None
    if other is not None and other.origin != here.origin:
        return None
    return Path(str(here.origin))


def _line_text(error: SyntaxError, data: bytes) -> str:
    """Return a sentence with the line of a syntax error."""
    lines = data.decode(errors="replace").split("\n")
    number = error.lineno or 0
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    if not text:
        return f"It is on line {number}." if number else "Python can't parse it."
    return f"Line {number}: {text[:MAX_LINE]}"


# ------------------------------------------------------------------------------------ the function


def _check_function(program: Program, file: str, tree: ast.Module) -> None:
    name, at_top = program.function, list(_module_scope(tree))
    binding = [node for node in at_top if name in _bound_names(node)]
    defined = [node.name for node in at_top if isinstance(node, _FUNCTIONS)]
    if not binding:
        raise no_such_function(program, "there is no such function", file, defined)
    if len(binding) > 1:
        return
    for statement in tree.body:
        if isinstance(statement, _FUNCTIONS) and statement is binding[0]:
            if not statement.decorator_list:
                shown = f"{name}({ast.unparse(statement.args)})"
                bind(shown, _signature(statement.args), 0, 1, program.arguments)
        elif _assigns(statement, binding[0]) and _is_literal(statement.value):  # type: ignore[attr-defined]  # an assignment
            what = f"line {statement.lineno} assigns it a value, not a function"
            raise no_such_function(program, what, file, defined)


def no_such_function(program: Program, what: str, file: str, defined: Sequence[str]) -> UsageError:
    """Return the error for a name that is not a function of the program.

    Args:
        program: Program whose function was not found.
        what: Description of the problem.
        file: File or module that was searched.
        defined: Names of the functions it defines.
    """
    names = list(dict.fromkeys(defined))
    near = difflib.get_close_matches(program.function, names, n=1) or names[:1]
    listed = f"{', '.join(names[:20])}{', ...' * (len(names) > 20)}"
    return UsageError(
        f"{program.name}: {what}.",
        f"{file} defines: {listed}." if names else f"{file} defines no function.",
        f"Try {program.name.partition(':')[0]}:{near[0]}." if near else "Define it first.",
    )


def _is_dynamic(tree: ast.Module) -> bool:
    """Return True if the file may bind names that its syntax tree doesn't show."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(each.name == "*" for each in node.names):
            return True
        if isinstance(node, ast.Name) and node.id in (_DYNAMIC | {"eval"}):
            return True
        if isinstance(node, ast.Attribute):
            of_sys = isinstance(node.value, ast.Name) and node.value.id == "sys"
            if node.attr in _DYNAMIC or (node.attr == "modules" and of_sys):
                return True
        if isinstance(node, _FUNCTIONS) and node.name in _DYNAMIC:
            return True
    return False


def _module_scope(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of the module's scope, and `global` statements in any scope."""
    waiting: list[tuple[ast.AST, bool]] = [(each, True) for each in tree.body]
    while waiting:
        node, at_top = waiting.pop(0)
        if at_top or isinstance(node, ast.Global):
            yield node
        below = at_top and not isinstance(node, _SCOPES)
        waiting[:0] = [(child, below) for child in ast.iter_child_nodes(node)]


def _bound_names(node: ast.AST) -> set[str]:
    """Return the names that a node itself may bind or delete, without its children."""
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Load) else {node.id}
    if isinstance(node, ast.alias):
        return {node.asname or node.name.partition(".")[0]}
    if isinstance(node, ast.Global):
        return set(node.names)
    # Functions, classes, exception handlers, and patterns of match.
    names = (getattr(node, field, None) for field in ("name", "rest"))
    return {name for name in names if isinstance(name, str)}


def _assigns(statement: ast.stmt, target: ast.AST) -> bool:
    """Return True if the statement assigns to this target directly."""
    if isinstance(statement, ast.AnnAssign):
        return statement.target is target and statement.value is not None
    return isinstance(statement, ast.Assign) and any(each is target for each in statement.targets)


def _is_literal(value: ast.expr) -> bool:
    """Return True if an expression can't be a function: a number, a string, a list of them."""
    if isinstance(value, ast.JoinedStr):
        return True
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


# ---------------------------------------------------------------------------------------- arguments


def _signature(given: ast.arguments) -> inspect.Signature:
    """Return a signature from the syntax tree; defaults that aren't literals become objects."""
    empty, kinds = inspect.Parameter.empty, inspect.Parameter

    def parameter(each: ast.arg, kind: Any, default: ast.expr | None) -> inspect.Parameter:  # noqa: ANN401 - an enum of inspect
        value: Any = empty
        if default is not None:
            value = ast.literal_eval(default) if _is_plain(default) else object()
        annotation = empty if each.annotation is None else ast.unparse(each.annotation)
        return kinds(each.arg, kind, default=value, annotation=annotation)

    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    found = []
    for number, (each, default) in enumerate(zip(positional, defaults, strict=True)):
        only = number < len(given.posonlyargs)
        kind = kinds.POSITIONAL_ONLY if only else kinds.POSITIONAL_OR_KEYWORD
        found.append(parameter(each, kind, default))
    if given.vararg is not None:
        found.append(parameter(given.vararg, kinds.VAR_POSITIONAL, None))
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        found.append(parameter(each, kinds.KEYWORD_ONLY, default))
    if given.kwarg is not None:
        found.append(parameter(given.kwarg, kinds.VAR_KEYWORD, None))
    return inspect.Signature(found)


def _is_plain(value: ast.expr) -> bool:
    return not isinstance(value, ast.JoinedStr) and _is_literal(value)


def bind(
    shown: str, signature: inspect.Signature, rank: int, size: int, arguments: Sequence[str]
) -> tuple[Any, ...]:
    """Return the values to call a function with: rank and size if it names them, then arguments.

    Args:
        shown: Function as shown in errors, ``work(rank, steps)``.
        signature: Signature of the function.
        rank: Rank of this process.
        size: World size.
        arguments: Arguments from the command line.

    Raises:
        UsageError: The function can't be called with these arguments.
    """
    parameters = [
        each
        for each in signature.parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.VAR_POSITIONAL)
    ]
    first = leading([each.name for each in parameters])
    taken = parameters[first:]
    if taken and taken[-1].kind is inspect.Parameter.VAR_POSITIONAL:
        taken += [taken[-1]] * (len(arguments) - len(taken))
    typed = [_converted(each, text) for each, text in zip(taken, arguments, strict=False)]
    values = (*(rank, size)[:first], *typed, *arguments[len(typed) :])
    try:
        signature.bind(*values)
    except TypeError as error:
        raise UsageError(
            f"{shown} can't be called with {list(arguments)}.",
            f"{error}.".capitalize(),
            "Put the function's arguments after --.",
        ) from None
    return values


def _converted(parameter: inspect.Parameter, text: str) -> Any:  # noqa: ANN401 - of its type
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
