"""Check that imports go one way: features depend on the core, never on another feature."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import requires
from pathlib import Path

import distdemo

PACKAGE = Path(distdemo.__file__).parent
FILES = {
    file.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", "."): file
    for file in PACKAGE.rglob("*.py")
    if file.parent.parent != PACKAGE / "learn/exercises"  # for a learner's folder, not imported
}
BASE = {"errors", "dtypes", "encoding", "files", "platform", "signals", "text", "versions", "words"}
CORE = {"launcher", "joined", "ops", "backends", "view"}
MAY = {
    # room: the rooms below it, which its modules may import
    "errors": set(),
    "versions": set(),
    "dtypes": set(),
    "signals": {"errors"},
    "words": set(),
    "text": set(),
    "files": {"platform"},
    "encoding": {"text", "versions"},
    "platform": set(),
    "comm": {"errors"},  # an op runs one of these helpers for users' programs
    "launcher": BASE,
    "joined": {*BASE, "launcher"},
    "mpi": BASE,
    "view": {*BASE, "launcher"},  # the records of how ranks ended
    "ops": {*BASE, "launcher", "comm"},
    "backends": {*BASE, "launcher", "ops", "mpi"},
    "schedules": {*BASE, "ops", "backends"},
    "measure": {*BASE, *CORE, "schedules"},
    "cli": {*BASE, *CORE},
    "observe": set(),
    "calls": {*BASE, *CORE, "observe"},
    "sanitizer": {"calls"},
    "api": {*BASE, *CORE, "calls"},
    "__init__": {"errors", "versions", "api", "comm"},
    "__main__": {"errors", "signals", "launcher", "joined", "cli"},
}
FEATURES = {
    "demo",
    "check",
    "bench",
    "trace",
    "train",
    "rpc",
    "run",
    "doctor",
    "learn",
    "testing",
    "postmortem",
    "parity",
    "interactive",
    "warm",
}
MAY |= dict.fromkeys(FEATURES, set(MAY) - {"__main__"})
MAY["__init__"] |= {"interactive", "parity"}


def room(module: str) -> str:
    """Return the folder directly under the package, or the module itself."""
    if module.endswith(".__main__"):
        return "__main__"
    return [*module.split("."), "__init__"][1]


@cache
def nodes_of(module: str) -> list[ast.AST]:
    """Return the nodes of a module's syntax tree."""
    return [*ast.walk(ast.parse(FILES[module].read_text("utf-8")))]


@cache
def imported(module: str) -> set[str]:
    """Return the modules that a module imports anywhere, in functions and for types, too."""
    return {
        name
        for node in nodes_of(module)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _named(module, node)
    }


def _named(module: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, f"{module}: a relative import hides where it points"
    for alias in node.names:
        whole = f"{node.module}.{alias.name}"
        yield whole if whole in FILES or f"{whole}.__init__" in FILES else str(node.module)


def test_imports_go_one_way_and_no_feature_imports_another() -> None:
    assert {room(module) for module in FILES} == set(MAY)
    assert [
        f"{module} imports {other}"
        for module in FILES
        for other in sorted(imported(module))
        if other.split(".")[0] == "distdemo"
        and room(other) not in MAY[room(module)] | {room(module)}
    ] == []


def test_a_library_is_imported_only_where_it_belongs() -> None:
    homes = {
        "rich": ("view", "plot"),
        "typer": ("cli", "command", "options"),
        "matplotlib": ("plot", "view"),
        "psutil": ("platform",),
    }
    light = ("view", "records", "command", "options", "plot")
    for module in FILES:
        libraries = {name.split(".")[0] for name in imported(module)}
        last = module.split(".")[-1]
        for library in libraries & set(homes):
            assert room(module) in homes[library] or last.startswith(homes[library]), module
        if room(module) in ("view", "cli") or last.startswith(light):
            assert "torch" not in libraries, module


def test_no_circle_not_even_for_types_or_within_functions() -> None:
    below: dict[str, set[str]] = {}
    for module in FILES:
        known = {file for name in imported(module) for file in (name, f"{name}.__init__")}
        below[module] = known & FILES.keys()
    TopologicalSorter(below).prepare()  # raises CycleError with the modules of a circle


WRITERS = re.compile(
    r"print|typer\.echo|sys\.(stdout|stderr)\.(write|writelines)|os\.write\([12],.*"
    r"|(rich\.console\.)?Console|Text\.from_(ansi|markup)"
)
MAY_WRITE = {
    "distdemo.interactive.command",  # the lines of a session
    "distdemo.view.foreign",  # the writer of messages
    "distdemo.view.console",  # the consoles
    "distdemo.view.progress",  # the line of a spinner
    "distdemo.signals",  # what stopped a command that has imported nothing yet
    "distdemo.cli.main",  # documents, and what stdout refused
    "distdemo.cli.runner",  # documents, and files as text
    "distdemo.cli.app",  # the versions
    "distdemo.cli.session",  # numbers of ranks and of the exit code
    "distdemo.doctor.gpus",  # JSON for its parent
    "distdemo.testing.rank",  # the number of a rank
    "distdemo.launcher.rank",  # the exception of a child that it has forked, as Python writes it
}


PROGRAMS = ("distdemo.learn.mistakes.", "distdemo.learn.steps.")


def test_text_reaches_the_terminal_through_few_modules() -> None:
    for module in FILES:
        if module in MAY_WRITE or module.startswith(PROGRAMS):
            continue
        for node in nodes_of(module):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called == "os.write":
                    called = ast.unparse(node)
                assert not WRITERS.fullmatch(called), f"{module}:{node.lineno}: {called}"


MODULES = {"sklearn", "_pytest"}  # of scikit-learn and pytest
USED_IF_INSTALLED = {"hypothesis", "IPython"}


def test_every_library_is_a_declared_dependency() -> None:
    declared = [
        library for library in requires("distdemo") or () if 'extra == "dev"' not in library
    ]
    names = {re.split(r"[^\w-]", library)[0].replace("-", "_") for library in declared}
    known = {"distdemo", *names, *MODULES, *USED_IF_INSTALLED, *sys.stdlib_module_names}
    undeclared = {
        (library, module)
        for module in FILES
        for library in {name.split(".")[0] for name in at_run_time(module)} - known
    }
    assert undeclared == set()


def at_run_time(module: str) -> Iterator[str]:
    """Yield the modules that a module imports, except those only for types."""
    nodes = nodes_of(module)[:1]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _named(module, node)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
        else:
            nodes += ast.iter_child_nodes(node)
