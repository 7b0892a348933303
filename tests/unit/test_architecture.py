from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import distdemo

PACKAGE = Path(distdemo.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

RECORDS = (
    "model",
    "outcomes",
    "reports",
    "findings",
    "training",
    "remoting",
    "running",
    "measuring",
    "yardsticks",
    "linking",
    "comparing",
    "fitting",
    "recorded",
    "scheduling",
    "tracing",
    "contending",
    "errors",
    "dtypes",
)
WRONG_WAYS = {
    # a layer (or single module): what it must not import
    **dict.fromkeys(RECORDS, ("torch", "rich", "typer")),
    "comm": (
        "distdemo.model",
        "distdemo.launchers",
        "distdemo.programs",
        "distdemo.ops",
        "distdemo.backends",
        "distdemo.render",
        "distdemo.cli",
    ),
    "launchers": (
        "distdemo.programs",
        "distdemo.ops",
        "distdemo.backends",
        "distdemo.render",
        "distdemo.cli",
    ),
    "ops": ("distdemo.launchers", "distdemo.programs", "distdemo.render", "distdemo.cli"),
    "algorithms": (
        "torch",
        "rich",
        "distdemo.ops",
        "distdemo.backends",
        "distdemo.launchers",
        "distdemo.programs",
        "distdemo.render",
        "distdemo.cli",
    ),
    "backends": ("distdemo.launchers", "distdemo.programs", "distdemo.render", "distdemo.cli"),
    "programs": ("distdemo.render", "distdemo.cli"),
    "doctor": ("distdemo.programs", "distdemo.ops", "distdemo.render", "distdemo.cli"),
    "render": (
        "torch",
        "distdemo.ops",
        "distdemo.backends",
        "distdemo.launchers",
        "distdemo.programs",
        "distdemo.doctor",
        "distdemo.cli",
    ),
}


def layer(file: Path) -> str:
    """The folder directly under the package, or the module itself."""
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(file: Path) -> set[str]:
    """Every module that this file imports anywhere: at its top, in functions, for types."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import hides where it points"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def offences(files: list[Path], forbidden: tuple[str, ...]) -> list[str]:
    return [
        f"{file.relative_to(PACKAGE)} imports {name}"
        for file in files
        for name in sorted(imported(file))
        if any(name == wrong or name.startswith(f"{wrong}.") for wrong in forbidden)
    ]


LIBRARY = ("launchers/api.py", "launchers/checks.py")
"""``distdemo.launch`` takes a backend's name from its user, so it asks the registry of backends."""


@pytest.mark.parametrize("name", WRONG_WAYS)
def test_no_import_goes_the_wrong_way(name: str) -> None:
    files = [file for file in FILES if layer(file) == name]
    assert files, f"there is no {name} any more: mend this test"
    own = [file for file in files if file.relative_to(PACKAGE).as_posix() in LIBRARY]
    allowed = tuple(wrong for wrong in WRONG_WAYS[name] if wrong != "distdemo.backends")
    assert offences(own, allowed) == []
    assert offences([file for file in files if file not in own], WRONG_WAYS[name]) == []


@pytest.mark.parametrize(
    ("library", "home"), [("typer", "cli"), ("rich", "render"), ("matplotlib", "render")]
)
def test_one_layer_alone_imports(library: str, home: str) -> None:
    elsewhere = [file for file in FILES if layer(file) != home]
    assert offences(elsewhere, (library,)) == []
    assert offences([file for file in FILES if layer(file) == home], (library,)), (
        f"nothing imports {library} any more: is it still a dependency?"
    )


def test_no_file_is_longer_than_300_lines() -> None:
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {str(file): length for file, length in lengths.items() if length > 300} == {}
