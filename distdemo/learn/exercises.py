"""Exercises as pytest files: write them to a folder, and print their hints.

The folder ``exercises`` has a program with a header and a test per exercise. The common mistakes
are exercises, too: their programs must be repaired. No solution is in this package.
"""

from __future__ import annotations

from pathlib import Path

from distdemo.cli.types import unknown
from distdemo.errors import UsageError
from distdemo.learn.catalogue import EXERCISES, HERE, MISTAKES, find
from distdemo.learn.records import ExerciseFolder, Hint, Mistake, Program

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
        folder: New or empty folder.

    Raises:
        UsageError: The folder is not empty or can't be written.
    """
    files = {name: _text(name) for name in COMMON}
    for program in EXERCISES.values():
        home = "mistakes/" if program.name in MISTAKES else ""
        files[f"{home}{program.module}.py"] = program.source()
        files[f"{home}test_{program.module}.py"] = _test(program)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(
                f"{folder} is not empty.",
                "Exercises are written to a new folder; nothing is overwritten.",
                "Try --write with a new folder.",
            )
        (folder / "mistakes").mkdir()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        why = f"{error.strerror or error}."
        raise UsageError(
            f"The exercises can't be written to {folder}.", why, "Try another folder."
        ) from error
    return ExerciseFolder(str(folder), tuple(files))


def _text(name: str) -> str:
    return (HERE / "exercises/files" / name).read_text(encoding="utf-8")


def _test(program: Program) -> str:
    """Return the test of an exercise."""
    if not isinstance(program, Mistake):
        return _text(f"test_{program.module}.py")
    first, *others = program.expected
    same = others.count(first) == len(others)
    expected = repr(first) if same else f"{[*program.expected]}[rank]"
    return TEST.format(mistake=program, goal=program.lines[0].text, expected=expected)


def hint(name: str, number: int) -> Hint:
    """Return one hint of an exercise, which may be a mistake.

    Raises:
        UsageError: There is no such exercise or hint.
    """
    exercise = find(EXERCISES, name)
    if exercise is None:
        raise unknown("exercise", EXERCISES, name, "distdemo learn")
    count = len(exercise.hints)
    if not 1 <= number <= count:
        raise UsageError(
            f"{exercise.name} has no hint {number}.",
            f"It has {count} hints.",
            f"Try distdemo learn {exercise.name} --hint 1.",
        )
    return Hint(exercise.name, number, count, exercise.hints[number - 1])
