"""Imports go one way: features stand on the core, and the core on nothing but errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import distdemo

PACKAGE = Path(distdemo.__file__).parent
FILES = {
    file.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", "."): file
    for file in PACKAGE.rglob("*.py")
}
BASE = {"errors", "dtypes", "encoding", "versions", "__init__"}
MAY = {
    # a room of the core: the rooms that it may import beside the base
    "view": {"launcher"},  # the records of how ranks ended
    "launcher": set(),
    "ops": {"comm"},
    "backends": {"launcher", "ops", "mpi"},
    "mpi": set(),
    "comm": set(),
    "cli": {"launcher", "ops", "backends", "view"},
}
FEATURES = {each.name for each in PACKAGE.iterdir() if (each / "__init__.py").exists()} - set(MAY)
EXCEPT = {"distdemo.launcher.api"}
"""``distdemo.launch`` takes a backend's name from its user, so it asks the registry of backends."""


def room(module: str) -> str:
    """The folder directly under the package, or the module itself."""
    return [*module.split("."), "__init__"][1]


@cache
def imported(module: str) -> frozenset[str]:
    """Every module of ours, and every other library, that a module imports anywhere."""
    return frozenset(name for name, _ in _imports(module))


def _imports(module: str) -> Iterator[tuple[str, bool]]:
    """What a module imports, and whether it does so as it is imported itself."""
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    for node, at_once in _walk(tree, at_once=True):
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import hides where it points"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                package = FILES.get(f"{whole}.__init__")
                yield (whole if whole in FILES or package else str(node.module)), at_once


def _walk(node: ast.AST, *, at_once: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        yield child, at_once
        yield from _walk(child, at_once=at_once and not later and not types)


@pytest.mark.parametrize("name", sorted(MAY))
def test_the_core_imports_no_feature_and_no_room_above_it(name: str) -> None:
    allowed = MAY[name] | BASE | {name}
    wrong = [
        f"{module} imports {other}"
        for module in FILES
        if room(module) == name and module not in EXCEPT
        for other in sorted(imported(module))
        if other.startswith("distdemo.") and room(other) not in allowed
    ]
    assert wrong == []


def test_a_feature_takes_neither_views_nor_commands_of_another() -> None:
    wrong = [
        f"{module} imports {other}"
        for module in FILES
        if room(module) in FEATURES
        for other in sorted(imported(module))
        if other.startswith("distdemo.")
        and room(other) in FEATURES - {room(module)}
        and other.split(".")[-1].startswith(("view", "command", "plot"))
    ]
    assert wrong == []


def test_what_a_feature_offers_others_is_named_in_its_docstring() -> None:
    taken = {
        (room(other), other.split(".")[-1])
        for module in FILES
        if room(module) in FEATURES
        for other in imported(module)
        if other.startswith("distdemo.") and room(other) in FEATURES - {room(module)}
    }
    silent = {
        f"{feature}.{part}"
        for feature, part in taken
        if part
        not in (
            ast.get_docstring(ast.parse(FILES[f"distdemo.{feature}.__init__"].read_text())) or ""
        )
    }
    assert silent == set()


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("rich", ("view", "plot")),
        ("typer", ("cli", "command")),
        ("matplotlib", ("plot", "view")),
    ],
)
def test_a_library_has_its_places(library: str, homes: tuple[str, ...]) -> None:
    wrong = [
        module
        for module in FILES
        if any(name.split(".")[0] == library for name in imported(module))
        and room(module) not in homes
        and not module.split(".")[-1].startswith(homes)
    ]
    assert wrong == []


def test_no_view_record_or_command_imports_torch() -> None:
    light = ("view", "records", "command", "plot")
    wrong = [
        module
        for module in FILES
        if (room(module) in ("view", "cli") or module.split(".")[-1].startswith(light))
        and any(name.split(".")[0] == "torch" for name in imported(module))
    ]
    assert wrong == []


def test_no_circle() -> None:
    graph = {
        module: {
            found
            for name, at_once in _imports(module)
            if at_once
            for found in (name, f"{name}.__init__")
            if found in FILES and found != module
        }
        for module in FILES
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module not in done:
            for other in sorted(graph[module]):
                visit(other, (*path, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())
