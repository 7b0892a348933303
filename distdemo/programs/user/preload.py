"""What of torch a program will import, imported once in the launcher instead of once a rank.

Only torch's own modules: whatever else a program imports may start threads, compute or touch CUDA
at import, after which ranks could not be forked.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distdemo.running import Program

# Making any optimizer imports this, half as long as torch itself (torch/_compile.py).
OPTIMIZERS = "torch._dynamo"


def preload(program: Program) -> None:
    """Import them, quietly; what can't be imported here will say so where the program does it."""
    for name in sorted(wanted(program)):
        with warnings.catch_warnings(), suppress(Exception):
            warnings.simplefilter("ignore")
            import_module(name)


def wanted(program: Program) -> set[str]:
    """The modules of torch that the program's file names, by its text alone."""
    if not program.file:
        return set()
    try:
        tree = ast.parse(Path(program.file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    named = set(_named(tree))
    found = {name for name in named if name.startswith("torch.")}
    if any("optim" in name.split(".") for name in named):
        found |= {OPTIMIZERS}
    return found


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
