"""Find the user's program, and check its source before a rank starts, without executing it."""

from __future__ import annotations
import __future__

import ast
import difflib
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from distdemo.errors import UsageError
from distdemo.files import read_file
from distdemo.run.records import Program
from distdemo.run.value import bind

MAX_LINE = 160  # characters shown of a line
TRY = "Try distdemo run train.py, distdemo run train.py:step or distdemo run -m package.module."
# With one of these in its source, a module may have names that its source doesn't contain.
DYNAMIC = {
    *("*", "globals", "locals", "vars", "eval", "exec", "setattr", "modules"),
    *("f_globals", "__globals__", "__dict__", "__getattr__"),
}


def parse_program(words: list[str], module: str | None) -> Program:
    """Parse the program; everything after the first ``--`` is its arguments.

    Raises:
        UsageError: There is no such program.
    """
    end = words.index("--") if "--" in words else len(words)
    given, arguments = words[:end], tuple(words[end + 1 :])
    if len(given) > (module is None):
        stray = given[-1]
        first = f"-m {module}" if module is not None else given[0]
        raise UsageError(
            f"Unexpected argument {stray!r}.",
            "Put the program's arguments after --.",
            f"Try distdemo run {first} -- {' '.join(given[module is None :])}",
        )
    text = module if module is not None else given[0] if given else ""
    if not text:
        raise UsageError("No program is given.", "run takes a file or, with -m, a module.", TRY)
    home, colon, function = text.rpartition(":")
    if not colon or _exists(Path(text)):
        home, function = text, ""
    elif not function.isidentifier():
        raise UsageError(
            f"{text}: {function!r} is not a function name.",
            "Write the name of a function after the colon.",
            f"Try {home}, or {home}:NAME.",
        )
    if module is None:
        _check_file(Path(home), function)
        return Program(home, "", function, arguments)
    top = home.partition(".")[0]
    if not top or PathFinder.find_spec(top, [os.getcwd(), *sys.path]) is None:  # noqa: PTH109 - where -m looks first
        raise UsageError(
            f"-m {text}: there is no module {top!r}.",
            "It is neither in the current folder nor installed in this Python.",
            "Check the name, or run this in the folder that contains it.",
        )
    return Program("", home, function, arguments)


def _check_file(path: Path, function: str) -> None:
    """Raise `UsageError` for a missing file, or a folder that Python can't run."""
    if not _exists(path):
        names = [each.name for each in path.parent.glob("*.py")]
        near = difflib.get_close_matches(path.name, names, n=2, cutoff=0.5)
        hint = f"Did you mean {' or '.join(str(path.parent / name) for name in near)}?"
        if not near and not path.suffix:
            hint = f"Try -m {path.name} for a module."
        listed = ", ".join(sorted(names)[:8]) or "none"
        why = f"Python files in {path.parent}: {listed}."
        raise UsageError(f"There is no file {path}.", why, hint if near or not path.suffix else TRY)
    if path.is_dir() and (function or not (path / "__main__.py").is_file()):
        raise UsageError(
            f"{path} is a folder.",
            "Python runs the __main__.py of a folder; a function needs a file.",
            f"Try a file in it: {path / 'FILE.py'}.",
        )


def _exists(path: Path) -> bool:
    """Return True if the path exists and can be accessed."""
    try:
        return path.exists()
    except (OSError, ValueError):  # no permission, a name that is too long, a null byte
        return False


# -------------------------------------------------------------------------------------- the source


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
    if program.function:
        _check_function(program, path.name, tree)


def _check_function(program: Program, file: str, tree: ast.Module) -> None:
    """Check the function as far as the source is certain; the ranks check the rest.

    Raises:
        UsageError: There is no such function, or it can't take the arguments.
    """
    name, functions = program.function, (ast.FunctionDef, ast.AsyncFunctionDef)
    fields = (value for node in ast.walk(tree) for _, value in ast.iter_fields(node))
    if {value for value in fields if isinstance(value, str)} & DYNAMIC:
        return
    defined = [node.name for node in tree.body if isinstance(node, functions)]
    binding = [node for node in ast.walk(tree) if name in _bound_names(node)]
    if not binding:
        raise no_such_function(program, file, defined)
    if len(binding) > 1:
        return
    (only,) = binding
    for statement in tree.body:
        value = getattr(statement, "value", None)
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        if only in targets and isinstance(value, ast.expr) and _is_literal(value):
            raise no_such_function(program, file, defined)
    if isinstance(only, functions) and only in tree.body and not only.decorator_list:
        bind(_signature_only(only), 0, 1, program.arguments)


def _bound_names(node: ast.AST) -> set[str | None]:
    """Return the names that a node itself may bind, in whatever scope."""
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Load) else {node.id}
    if isinstance(node, ast.Global):
        return set(node.names)
    return {getattr(node, field, None) for field in ("name", "asname", "rest")}


def _signature_only(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Callable[..., Any]:
    """Return a function with the same parameters that does nothing.

    Nothing of the source is executed: defaults are literals or ``...``, annotations are strings.
    """
    given = node.args
    given.defaults[:] = map(_literal, given.defaults)
    given.kw_defaults[:] = [each and _literal(each) for each in given.kw_defaults]
    node.body = [ast.Pass()]
    module = ast.fix_missing_locations(ast.Module([node], []))
    scope: dict[str, Any] = {}
    code = compile(module, "<signature>", "exec", __future__.annotations.compiler_flag)
    exec(code, scope)  # noqa: S102 - a definition with literals only
    return scope[node.name]  # type: ignore[no-any-return]  # the function


def _literal(default: ast.expr) -> ast.expr:
    return default if _is_literal(default) else ast.Constant(...)


def _is_literal(value: ast.expr) -> bool:
    """Return True if an expression is a number, a string, or a collection of them."""
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


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


def no_such_function(program: Program, file: str, defined: Sequence[str]) -> UsageError:
    """Return the error for a name that is not a function of the program.

    Args:
        program: Program whose function was not found.
        file: File or module that was searched.
        defined: Names of the functions it defines.
    """
    names = list(dict.fromkeys(defined))
    near = difflib.get_close_matches(program.function, names, n=1) or names[:1]
    listed = f"{', '.join(names[:20])}{', ...' * (len(names) > 20)}"
    return UsageError(
        f"{program.name}: there is no such function.",
        f"{file} defines: {listed}." if names else f"{file} defines no function.",
        f"Try {program.name.partition(':')[0]}:{near[0]}." if near else "Define it first.",
    )
