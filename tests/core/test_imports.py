"""Imports go one way: features stand on the core, and the core on nothing but errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import distdemo

PACKAGE = Path(distdemo.__file__).parent
FILES = {
    file.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", "."): file
    for file in PACKAGE.rglob("*.py")
}
BASE = {"errors", "dtypes", "encoding", "files", "versions", "__init__"}
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
def imported(module: str) -> dict[str, bool]:
    """What a module imports anywhere, of ours and others, and whether as it is imported itself."""
    found: dict[str, bool] = {}
    nodes: list[tuple[ast.AST, bool]] = [(ast.parse(FILES[module].read_text("utf-8")), True)]
    while nodes:
        node, at_once = nodes.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in _named(module, node):
                found[name] = found.get(name, False) or at_once
        elif isinstance(node, ast.stmt | ast.mod | ast.excepthandler):
            later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            below = at_once and not later and not types
            nodes += [(child, below) for child in ast.iter_child_nodes(node)]
    return found


def _named(module: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, f"{module}: a relative import hides where it points"
    for alias in node.names:
        whole = f"{node.module}.{alias.name}"
        yield whole if whole in FILES or f"{whole}.__init__" in FILES else str(node.module)


def ours(modules: Callable[[str], bool]) -> list[tuple[str, str]]:
    """What of ours these modules import."""
    return [
        (module, other)
        for module in FILES
        if modules(module)
        for other in sorted(imported(module))
        if other.startswith("distdemo.")
    ]


def test_the_core_imports_no_feature_and_no_room_above_it() -> None:
    assert [
        f"{module} imports {other}"
        for module, other in ours(lambda each: room(each) in MAY and each not in EXCEPT)
        if room(other) not in MAY[room(module)] | BASE | {room(module)}
    ] == []


def test_a_feature_takes_what_another_offers_and_neither_views_nor_commands() -> None:
    taken = [
        (module, other)
        for module, other in ours(lambda each: room(each) in FEATURES)
        if room(other) in FEATURES - {room(module)}
    ]
    parts = {other.split(".")[-1] for _, other in taken}
    assert [part for part in parts if part.startswith(("view", "command", "plot"))] == [], taken
    for _, other in taken:
        offers = ast.get_docstring(ast.parse(FILES[f"distdemo.{room(other)}.__init__"].read_text()))
        assert other.split(".")[-1] in (offers or ""), f"{other} is taken and not offered"


def test_a_library_has_its_places() -> None:
    homes = {
        "rich": ("view", "plot"),
        "typer": ("cli", "command"),
        "matplotlib": ("plot", "view"),
    }
    light = ("view", "records", "command", "plot")
    for module in FILES:
        libraries = {name.split(".")[0] for name in imported(module)}
        last = module.split(".")[-1]
        for library in libraries & set(homes):
            assert room(module) in homes[library] or last.startswith(homes[library]), module
        if room(module) in ("view", "cli") or last.startswith(light):
            assert "torch" not in libraries, module


def test_no_circle() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module in done:
            return
        for name, at_once in sorted(imported(module).items()):
            for other in (name, f"{name}.__init__"):
                if at_once and other in FILES and other != module:
                    visit(other, (*path, module))
        done.add(module)

    for module in sorted(FILES):
        visit(module, ())


WRITERS = re.compile(
    r"print|typer\.echo|sys\.(stdout|stderr)\.(write|writelines)|os\.write\([12],.*"
    r"|(rich\.console\.)?Console|Text\.from_(ansi|markup)"
)
MAY_WRITE = {
    "distdemo.view.foreign",  # the writer of messages
    "distdemo.view.console",  # the consoles
    "distdemo.view.progress",  # the line of a spinner
    "distdemo.cli.main",  # documents, and what stdout refused
    "distdemo.cli.runner",  # documents, and files as text
    "distdemo.cli.app",  # the versions
    "distdemo.cli.session",  # numbers of ranks and of the exit code
    "distdemo.doctor.gpu_child",  # JSON for its parent
    "distdemo.doctor.mpi",  # a program in a text, likewise
    "distdemo.testing.rank",  # the number of a rank
}


def test_text_reaches_the_terminal_through_few_modules() -> None:
    for module, file in FILES.items():
        if module in MAY_WRITE or module.startswith("distdemo.mistakes.programs"):
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called == "os.write":
                    called = ast.unparse(node)
                assert not WRITERS.fullmatch(called), f"{module}:{node.lineno}: {called}"
