"""Write a folder for a class: exercises with tests, hints and solutions, a notebook, slides."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from distdemo.errors import DistdemoError, UsageError
from distdemo.files import example
from distdemo.learn.catalogue import EXERCISES, HERE, MISTAKES, Example
from distdemo.view.blocks import Block, without_details
from distdemo.view.console import Signs

NOTEBOOK = "collectives.ipynb"
COMMON = ("judge.py", "pytest.ini")
"""Files that all exercises share."""
TEST = """\
{goal}

import pytest
from judge import check_result
from {mistake.module} import work


@pytest.mark.ranks({mistake.world_size}, timeout=20)
def test_{mistake.module}(rank, world_size):
    expected = {expected}
    check_result(rank, work(rank, world_size), expected)
"""


def exercises_of(step: Example | None) -> list[Example]:
    """Return the exercises of a step, or all: functions to write, then mistakes to repair."""
    return [
        exercise
        for name, exercise in EXERCISES.items()
        if step is None or step.name == ("mistakes" if name in MISTAKES else name)
    ]


def exercise_files(exercises: Iterable[Example], *, solutions: bool) -> dict[str, str]:
    """Return the exercises as programs with pytest files, and the notebook, by path.

    The hints in the headers are separate files.

    Args:
        exercises: Exercises to write.
        solutions: True to add their solutions.
    """
    files = {name: _text(name) for name in COMMON}
    table = ["| file | task |", "|---|---|"]
    for exercise in exercises:
        is_mistake = exercise.name in MISTAKES
        file = f"mistakes/{exercise.module}.py" if is_mistake else f"{exercise.module}.py"
        test = f"test_{exercise.module}.py"
        files[file] = exercise.program
        if is_mistake:
            files[f"mistakes/{test}"] = _test_of_mistake(exercise)
        else:
            files[test] = _text(test)
            table.append(f"| `{file}` | {exercise.title} |")
        hints = (f"{number}. {hint}\n" for number, hint in enumerate(exercise.hints, 1))
        files[f"hints/{exercise.module}.md"] = "\n".join(hints)
        if solutions:
            code = exercise.repaired or _text(file, "solutions")
            files[f"solutions/{file}"] = code
    readme = _text("README.md").replace("<!-- exercises -->", "\n".join(table))
    return {"README.md": readme, NOTEBOOK: example(NOTEBOOK), **files}


def slide_files(number: int, command: str) -> dict[str, str | bytes]:
    """Return the pictures of what a command shows, and its page, by path in the folder.

    Args:
        number: Number of its step.
        command: Command line.

    Raises:
        DistdemoError: The command failed.
    """
    from distdemo.cli.app import function_of, result_of
    from distdemo.cli.commands import find_command
    from distdemo.view.slide import draw_picture

    words = command.split()[1:]
    result = result_of([*words, "--quiet"])
    if not result.record.ok:
        raise DistdemoError(f"{command} failed.", "It shows why.", "Run it alone.")
    name = "-".join(word for word in words if word[0].isalpha())
    kinds = ["svg", *["png"] * bool(find_spec("matplotlib"))]

    def blocks(sign: Signs) -> Iterable[Block]:
        return without_details(result.view(result.record, sign))

    draw = partial(draw_picture, title=command, blocks=blocks)
    start = f"slides/{number:02}-{name}"
    exports = function_of(find_command(words)[0]).info.exports
    pages = {suffix: make for suffix, make in exports.items() if suffix == ".html"}
    return {
        **{f"{start}.{kind}": draw(kind) for kind in kinds},
        **{f"{start}{suffix}": page(result.record) for suffix, page in pages.items()},
    }


def check_new(folder: Path) -> None:
    """Check that a folder can be made.

    Raises:
        UsageError: It exists.
    """
    if folder.exists():
        raise UsageError(f"{folder} exists.", "Nothing is overwritten.", "Try a new folder.")


def write_folder(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files to a new folder, all of them or none.

    Args:
        folder: The folder.
        files: Contents by path in the folder.

    Raises:
        UsageError: It exists or can't be written.
    """
    check_new(folder)
    target = Path(os.path.abspath(folder))
    beside = target.with_name(f".distdemo-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        for name, content in files.items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        beside.rename(target)
    except BaseException as error:
        shutil.rmtree(beside, ignore_errors=True)
        if not isinstance(error, OSError):  # a signal
            raise
        what = f"{folder} can't be written."
        why = f"{error.strerror or error}."
        raise UsageError(what, why, "Try --write with another folder.") from error


def _text(name: str, folder: str = "files") -> str:
    return (HERE / "exercises" / folder / name).read_text(encoding="utf-8")


def _test_of_mistake(mistake: Example) -> str:
    first, *others = mistake.expected
    same = others.count(first) == len(others)
    expected = repr(first) if same else f"{[*mistake.expected]}[rank]"
    return TEST.format(mistake=mistake, goal=mistake.program.partition("\n")[0], expected=expected)
