"""Find the user's program, check its source without executing it, and preload what it imports."""

from __future__ import annotations

import ast
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

from distdemo import backends
from distdemo.errors import UsageError
from distdemo.files import examples, read_file
from distdemo.launcher.program import Program, is_source, no_such_function
from distdemo.launcher.torch_import import without_traces
from distdemo.view.format import some

MAX_LINE = 160  # characters shown of a line
MAX_NAMES = 8  # files of a folder that are named
TRY = "Try train.py, train.py:step or -m package.module."


def parse_program(words: list[str], module: str | None) -> Program:
    """Parse the program; everything after the first ``--`` is its arguments.

    Raises:
        UsageError: There is no such program.
    """
    end = words.index("--") if "--" in words else len(words)
    arguments = tuple(words[end + 1 :])
    given = [*([] if module is None else [module]), *words[:end]]
    if len(given) > 1:
        first = given[0] if module is None else f"-m {module}"
        raise UsageError(
            f"Unexpected argument {given[-1]!r}.",
            "Put the program's arguments after --.",
            f"Try {first} -- {' '.join(given[1:])}",
        )
    text = given[0] if given else ""
    if not text:
        raise UsageError("No program is given.", "It is a file or, with -m, a module.", TRY)
    home, colon, function = text.rpartition(":")
    if not colon or os.path.exists(text):  # noqa: PTH110 - Path.exists raises for long names
        home = text
        function = ""
    elif not function.isidentifier():
        raise UsageError(
            f"{text}: {function!r} is not a function name.",
            "Write the name of a function after the colon.",
            f"Try {home}, or {home}:NAME.",
        )
    if module is None:
        _check_file(Path(home), function)
        return Program(home, "", function, arguments)
    _check_module(home, text)
    return Program("", home, function, arguments)


def _check_module(name: str, text: str) -> None:
    """Raise `UsageError` if there is no such module; import nothing.

    Args:
        name: Dotted name.
        text: Program as it was typed.
    """
    folders: Sequence[str] = [str(Path.cwd()), *sys.path]
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        part = ".".join(parts[:end])
        spec = PathFinder.find_spec(part, folders) if part else None
        if spec is None:
            raise UsageError(
                f"-m {text}: there is no module {part!r}.",
                "It is neither in the current folder nor installed in this Python.",
                "Check the name, or run this in the folder that contains it.",
            )
        folders = spec.submodule_search_locations or []


def _check_file(path: Path, function: str) -> None:
    """Raise `UsageError` for a missing file, or a folder that Python can't run."""
    if not os.path.exists(path):  # noqa: PTH110 - as above
        names = sorted(file.name for file in path.parent.glob("*.py"))
        why = f"Python files in {path.parent}: {some(names, MAX_NAMES) or 'none'}."
        if meant := _meant_file(path):
            hint = f"Did you mean {meant}{function and f':{function}'}?"
        elif not path.suffix and PathFinder.find_spec(path.name, [str(Path.cwd()), *sys.path]):
            hint = f"Try -m {path.name} for a module."
        elif path.parent == Path() and os.path.isfile(examples() / path):  # noqa: PTH113 - as above
            hint = f"distdemo has an example of that name: {examples() / path}."
        else:
            hint = TRY
        raise UsageError(f"There is no file {path}.", why, hint)
    if path.is_dir() and (function or not (path / "__main__.py").is_file()):
        raise UsageError(
            f"{path} is a folder.",
            "Python runs the __main__.py of a folder; a function needs a file.",
            f"Try a file in it: {path / 'FILE.py'}.",
        )


def _meant_file(path: Path) -> Path | None:
    """Return the file that a path probably means, or None.

    It has the suffix that the path lacks, or the same name in the current folder or in a folder
    directly below that of the path.
    """
    full = path if path.suffix else Path(f"{path}.py")
    places = [full, Path(full.name)]
    with suppress(OSError):  # it can't be listed
        folders = sorted(folder for folder in path.parent.iterdir() if folder.is_dir())
        places += [folder / full.name for folder in folders]
    return next((place for place in places if os.path.isfile(place)), None)  # noqa: PTH113 - as above


# -------------------------------------------------------------------------------------- the source

# With one of these in its source, a module may have names that its source doesn't contain.
_NAME = re.compile(r"\w+")
DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
DYNAMIC = re.compile(
    r"import \*|globals|locals|vars|eval|exec|setattr|__getattr__|__dict__|modules"
)


def check_source(program: Program) -> None:
    """Check that a program can be read and parsed, and that its source contains its function.

    Raises:
        UsageError: The check fails; with the line of a syntax error, or the file's functions.
    """
    path = program.path
    is_stdlib = program.module.partition(".")[0] in sys.stdlib_module_names
    if is_stdlib or not path.is_file() or not is_source(path):  # a pipe can be read only once
        return
    try:
        data = read_file(path)
    except OSError as error:
        raise UsageError(
            f"{path} can't be read.", f"{error.strerror}.", "Check the file and its permissions."
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is too large for a program.", f"{error}.", TRY) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python shows them when a rank compiles the file
            tree = ast.parse(data, path)
            compile(tree, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError) as error:  # null bytes: up to Python 3.11
        number = getattr(error, "lineno", None) or 0
        lines = ["", *data.decode(errors="replace").split("\n"), ""]
        raise UsageError(
            f"{path} has a syntax error: {getattr(error, 'msg', error)}.",
            f"Line {number}: {lines[number].strip()[:MAX_LINE]}" if number else "It has no line.",
            "Fix the file, then run it again.",
        ) from error
    text = data.decode("utf-8", "replace")
    is_named = program.function in _NAME.findall(text) or DYNAMIC.search(text)
    if program.function and not is_named:
        raise no_such_function(program, _functions(tree))


def uncalled_functions(program: Program) -> list[str]:
    """Return the functions of a file that calls nothing outside them; empty for other programs."""
    path = program.path
    if not path.is_file() or not is_source(path):
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(read_file(path), path)
    except (OSError, SyntaxError, ValueError):  # the program has changed its own file
        return []
    run = [part for part in tree.body if not isinstance(part, (*DEFS, ast.ClassDef))]
    is_calling = any(isinstance(node, ast.Call) for part in run for node in ast.walk(part))
    return [] if is_calling else _functions(tree)


def _functions(tree: ast.Module) -> list[str]:
    """Return the names of a module's functions."""
    defined = [statement.name for statement in tree.body if isinstance(statement, DEFS)]
    return list(dict.fromkeys(defined))


# ---------------------------------------------------------------------------------------- preload

# These do nothing at import. Other modules may start threads, compute or use CUDA, after which
# ranks can't be forked.
HARMLESS = (
    "torch.amp",
    "torch.autograd",
    "torch.distributed",
    "torch.func",
    "torch.multiprocessing",
    "torch.nn",
    "torch.optim",
    "torch.utils.data",
)
# Creating an optimizer imports this, which takes half as long as torch (torch/_compile.py).
COMPILER = "torch._dynamo"
MAX_FILES = 100  # of a program that are read


def preload(program: Program) -> None:
    """Import the parts of torch that a program needs once in the launcher, not once per rank.

    Errors are left to the program's own import. Torch's compiler queries the GPUs, after which
    forked ranks may be unable to use them. So on a machine with GPUs each rank imports it itself.
    """
    modules = torch_imports(program) - ({COMPILER} if backends.has_gpu() else set())
    with without_traces():
        for name in sorted(modules):
            with suppress(Exception):
                import_module(name)


def torch_imports(program: Program) -> set[str]:
    """Return the harmless torch modules that the program's files import."""
    names: set[str] = set()
    queue = [Path(os.path.realpath(program.path))]
    seen: set[Path] = set()
    while queue and len(seen) < MAX_FILES:
        file = queue.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        with suppress(OSError, SyntaxError, ValueError):  # the program itself will say so
            imported = set(_imported_names(ast.parse(read_file(file))))
            queue += [
                program.folder.joinpath(*name.split(".")).with_suffix(".py") for name in imported
            ]
            names |= imported
    compiler = {COMPILER} if any("optim" in name.split(".") for name in names) else set()
    return {name for name in names if name.startswith(HARMLESS)} | compiler


def _imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield imported modules, names imported from them, and ``torch.optim`` for an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and node.attr == "optim":
            yield "torch.optim"
