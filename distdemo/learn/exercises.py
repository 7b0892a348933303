"""Write the exercises to a folder, as programs with pytest files.

The folder ``exercises`` has a program with a header and a test per exercise. The common mistakes
are exercises, too: their programs must be repaired. The hints in the headers are written to files
of their own. No solution is in this package.
"""

from __future__ import annotations

from pathlib import Path

from distdemo.errors import UsageError
from distdemo.learn.catalogue import EXERCISES, HERE, MISTAKES, Example
from distdemo.learn.records import ExerciseFolder

COMMON = ("README.md", "judge.py", "pytest.ini")
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


def write_exercises(folder: Path) -> ExerciseFolder:
    """Write the programs and tests of all exercises, and what they share.

    Args:
        folder: New folder.

    Raises:
        UsageError: The folder exists or can't be written.
    """
    files = {name: _text(name) for name in COMMON}
    for name, exercise in EXERCISES.items():
        home = "mistakes/" if name in MISTAKES else ""
        test = f"test_{exercise.module}.py"
        files[f"{home}{exercise.module}.py"] = exercise.program
        files[f"{home}{test}"] = _test_of_mistake(exercise) if home else _text(test)
        hints = (f"{number}. {hint}\n" for number, hint in enumerate(exercise.hints, 1))
        files[f"hints/{name}.md"] = "\n".join(hints)
    try:
        folder.mkdir(parents=True)
        for name in ("hints", "mistakes"):
            (folder / name).mkdir()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"The exercises can't be written to {folder}."
        why = f"{error.strerror or error}."
        raise UsageError(what, why, "Try --write with a new folder.") from error
    return ExerciseFolder(str(folder), tuple(files))


def _text(name: str) -> str:
    return (HERE / "exercises/files" / name).read_text(encoding="utf-8")


def _test_of_mistake(mistake: Example) -> str:
    first, *others = mistake.expected
    same = others.count(first) == len(others)
    expected = repr(first) if same else f"{[*mistake.expected]}[rank]"
    return TEST.format(mistake=mistake, goal=mistake.program.partition("\n")[0], expected=expected)
