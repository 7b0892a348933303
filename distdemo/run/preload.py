"""Import the parts of torch that a program needs once in the launcher, not once per rank.

Only parts of torch that do nothing at import are imported. Other modules may start threads, compute
or use CUDA, after which ranks can't be forked.
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
# Creating an optimizer imports this, which takes half as long as torch (torch/_compile.py).
COMPILER = "torch._dynamo"
MAX_FILES = 100  # of a program that are read


def preload(program: Program) -> None:
    """Import the modules silently; errors are left to the program's own import.

    Torch's compiler queries the GPUs, after which forked ranks may be unable to use them. So on a
    machine with GPUs each rank imports the compiler itself.
    """
    found = torch_imports(program)
    with without_traces():
        for name in sorted(found - ({COMPILER} if backends.has_gpu() else set())):
            with suppress(Exception):
                import_module(name)


def torch_imports(program: Program) -> set[str]:
    """Return the torch modules that the source of the program imports."""
    named = {name for tree in _syntax_trees(program) for name in _imported_names(tree)}
    found = {name for name in named if name.startswith(HARMLESS)}
    if any("optim" in name.split(".") for name in named):
        found.add(COMPILER)
    return found


def _syntax_trees(program: Program) -> Iterator[ast.AST]:
    """Yield the syntax trees of the program's file and of the files next to it that it imports."""
    first, home = _locate(program)
    queue, seen = [first], set[Path]()
    while queue and len(seen) < MAX_FILES:
        file = queue.pop(0)
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        try:
            tree = ast.parse(read_file(file))
        except (OSError, SyntaxError, ValueError):  # the program itself will say so
            continue
        yield tree
        queue += [
            home.joinpath(*name.split(".")).with_suffix(".py") for name in _imported_names(tree)
        ]


def _locate(program: Program) -> tuple[Path, Path]:
    """Return the program's file and the folder in which its imports are looked up."""
    if program.module:
        home = Path(os.getcwd())  # noqa: PTH109 - as Python sets sys.path
        file = home.joinpath(*program.module.split("."))
        return (file / "__main__.py" if file.is_dir() else file.with_suffix(".py")), home
    file = Path(os.path.realpath(program.file))
    return (file / "__main__.py", file) if file.is_dir() else (file, file.parent)


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
