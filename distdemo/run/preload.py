"""What of torch a program will import, imported once in the launcher instead of once a rank.

Only parts of torch that do nothing at import: whatever else a program imports may start threads,
compute or touch CUDA, after which ranks could not be forked.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from distdemo import backends
from distdemo.files import read_file
from distdemo.launcher.torch_import import without_traces

if TYPE_CHECKING:
    from distdemo.run.records import Program

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
# Making any optimizer imports this, half as long as torch itself (torch/_compile.py).
COMPILER = "torch._dynamo"
FILES = 100  # of a program that are read


def preload(program: Program) -> None:
    """Import them quietly. What can't be imported here raises where the program imports it.

    Torch's compiler asks for GPUs, which could keep forked ranks from theirs: where there are any,
    each rank imports it on its own.
    """
    found = wanted(program)
    with without_traces():
        for name in sorted(found - ({COMPILER} if backends.gpus_in_sight() else set())):
            with suppress(Exception):
                import_module(name)


def wanted(program: Program) -> set[str]:
    """The modules of torch that the program's files name, by their text alone."""
    named = {name for tree in _trees(program) for name in _named(tree)}
    found = {name for name in named if name.startswith(HARMLESS)}
    if any("optim" in name.split(".") for name in named):
        found.add(COMPILER)
    return found


def _trees(program: Program) -> Iterator[ast.AST]:
    """The program's file, and those beside it that it imports."""
    first, home = _place(program)
    waiting, seen = [first], set[Path]()
    while waiting and len(seen) < FILES:
        file = waiting.pop(0)
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        try:
            tree = ast.parse(read_file(file))
        except (OSError, SyntaxError, ValueError):  # the program itself will say so
            continue
        yield tree
        waiting += [home.joinpath(*name.split(".")).with_suffix(".py") for name in _named(tree)]


def _place(program: Program) -> tuple[Path, Path]:
    """The program's file, and the folder that its imports begin at."""
    if program.module:
        home = Path(os.getcwd())  # noqa: PTH109 - as Python sets sys.path
        file = home.joinpath(*program.module.split("."))
        return (file / "__main__.py" if file.is_dir() else file.with_suffix(".py")), home
    file = Path(os.path.realpath(program.file))
    return (file / "__main__.py", file) if file.is_dir() else (file, file.parent)


def _named(tree: ast.AST) -> Iterator[str]:
    """Modules that are imported, what is imported from them, and ``torch.optim`` used in place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and node.attr == "optim":
            yield "torch.optim"
