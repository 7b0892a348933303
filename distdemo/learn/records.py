"""Exercises and their hints: frozen records; no torch, no rich."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Exercise:
    """An exercise: a program with something to write or repair, and its test.

    Attributes:
        name: Name on the command line, ``zero-1``.
        title: Task in a few words.
        hints: Hints, from vague to precise.
        files: Text of each file, by its path in the folder.
    """

    name: str
    title: str
    hints: tuple[str, ...]
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class ExerciseFolder:
    """Exercises written to a folder.

    Attributes:
        files: Paths of the files in the folder.
    """

    folder: str
    files: tuple[str, ...]
    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Hint:
    """One hint of an exercise.

    Attributes:
        number: Number of the hint, from 1.
        count: Number of hints that the exercise has.
    """

    exercise: str
    number: int
    count: int
    text: str
    ok: ClassVar[bool] = True
