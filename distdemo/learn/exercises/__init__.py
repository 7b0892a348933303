"""Exercises as pytest files: write them to a folder, and print their hints.

``files`` has a program and a test per exercise, in the form in which they are written, except that
a program starts with a header of its title and hints; see ``learn.programs``. The
common mistakes are exercises, too: their programs must be repaired. No solution is in this package.
"""

from __future__ import annotations

from pathlib import Path

from distdemo.cli.types import unknown
from distdemo.errors import UsageError
from distdemo.learn.mistakes.catalogue import MISTAKES
from distdemo.learn.mistakes.records import Mistake
from distdemo.learn.programs import read_program
from distdemo.learn.records import Exercise, ExerciseFolder, Hint

FILES = Path(__file__).parent / "files"
COMMON = ("README.md", "judge.py", "pytest.ini")
"""Files that all exercises share."""
NAMES = (
    "broadcast",
    "scatter-gather",
    "all-gather",
    "all-reduce",
    "ring",
    "gradients",
    "ddp",
    "zero-1",
    "moe",
    "ring-attention",
)
"""Names of the exercises in which a function must be written, in order of difficulty."""
TEST = '''\
"""{mistake.goal}"""

import pytest
from judge import check_result
from {mistake.module} import work


@pytest.mark.ranks({mistake.world_size}, timeout=20)
def test_{mistake.module}(rank, world_size):
    expected = {expected}
    check_result(rank, work(rank, world_size), expected)
'''


def _to_write(name: str) -> Exercise:
    module = name.replace("-", "_")
    header, program = read_program(FILES / f"{module}.py")
    test = (FILES / f"test_{module}.py").read_text(encoding="utf-8")
    hints = tuple(values[0] for key, values in header.items() if key.startswith("hint "))
    files = {f"{module}.py": "\n".join([*program, ""]), f"test_{module}.py": test}
    return Exercise(name, header["title"][0], hints, files)


def _to_repair(mistake: Mistake) -> Exercise:
    first, *others = mistake.expected
    same = others.count(first) == len(others)
    expected = repr(first) if same else f"{[*mistake.expected]}[rank]"
    files = {
        f"mistakes/{mistake.module}.py": mistake.text(),
        f"mistakes/test_{mistake.module}.py": TEST.format(mistake=mistake, expected=expected),
    }
    return Exercise(mistake.name, mistake.goal, mistake.hints, files)


EXERCISES: dict[str, Exercise] = {
    **{name: _to_write(name) for name in NAMES},
    **{name: _to_repair(mistake) for name, mistake in MISTAKES.items()},
}
"""Exercises by name: first those to write, then those to repair."""


def write_exercises(folder: Path) -> ExerciseFolder:
    """Write the programs and tests of all exercises, and what they share.

    Args:
        folder: New or empty folder.

    Raises:
        UsageError: The folder is not empty or can't be written.
    """
    files = {name: (FILES / name).read_text(encoding="utf-8") for name in COMMON}
    for exercise in EXERCISES.values():
        files |= exercise.files
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


def hint(name: str, number: int) -> Hint:
    """Return one hint.

    Args:
        name: Name of an exercise, also of a mistake.
        number: Number of the hint, from 1.

    Raises:
        UsageError: There is no such exercise or hint.
    """
    exercise = EXERCISES.get(name.lower().replace("_", "-"))
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
