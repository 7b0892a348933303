"""Exercises: for each mistake a broken program, a failing test and hints, without solutions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distdemo.errors import UsageError
from distdemo.learn.mistakes.records import ExerciseFolder, Mistake

TIMEOUT_S = 20  # per test; findings of the sanitizer fail at once
TEST = '''\
"""{mistake.goal}"""

import pytest
from {mistake.module} import work


@pytest.mark.ranks({mistake.world_size}, timeout={timeout})
def test_{mistake.module}(rank, world_size):
    expected = {expected}
    assert work(rank, world_size) == expected, (
        "{mistake.goal}\\n"
        "{mistake.hints[0]}"
    )
'''
README = """\
# Exercises: mistakes with collectives

{count} small programs, each with one mistake. Every rank calls `work(rank, world_size)` with the
process group initialized. Fix the programs, not the tests, until all tests pass:

```sh
pytest                                         # all exercises
pytest test_{module}.py                           # one
distdemo run {module}.py:work -n {size}                # the full report of the sanitizer
distdemo run {module}.py:work -n {size} --no-sanitize  # without the sanitizer; Ctrl-C if it hangs
```

If a program would hang, its test fails at once and reports each rank's call and line. Other
mistakes show only in the result. If you are stuck, open the hints one by one.
`distdemo mistakes NAME --explain` shows the solution and explains it.
"""
EXERCISE = """
## {mistake.name}

`{mistake.module}.py`, {mistake.world_size} ranks: {mistake.goal}
"""
HINT = """
<details><summary>Hint {}: {}</summary>

{}

</details>
"""
ABOUT = ("where to look", "the rank", "the line")


def write_exercises(folder: Path, mistakes: Sequence[Mistake]) -> ExerciseFolder:
    """Write a program and a test for each mistake, and one README.md.

    Args:
        folder: New or empty folder.
        mistakes: Mistakes to write.

    Raises:
        UsageError: The folder is not empty or can't be written.
    """
    files = {"README.md": _readme(mistakes)}
    for mistake in mistakes:
        first, *others = mistake.expected
        same = others.count(first) == len(others)
        expected = repr(first) if same else f"{[*mistake.expected]}[rank]"
        test = TEST.format(mistake=mistake, expected=expected, timeout=TIMEOUT_S)
        files |= {f"{mistake.module}.py": mistake.text(), f"test_{mistake.module}.py": test}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(
                f"{folder} is not empty.",
                "Exercises are written to a new folder; nothing is overwritten.",
                "Try --exercises with a new folder.",
            )
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        why = f"{error.strerror or error}."
        raise UsageError(
            f"The exercises can't be written to {folder}.", why, "Try another folder."
        ) from error
    return ExerciseFolder(str(folder), tuple(sorted(files)))


def _readme(mistakes: Sequence[Mistake]) -> str:
    first = mistakes[0]
    parts = [README.format(count=len(mistakes), module=first.module, size=first.world_size)]
    for mistake in mistakes:
        parts.append(EXERCISE.format(mistake=mistake))
        parts += map(HINT.format, range(1, 4), ABOUT, mistake.hints)
    return "".join(parts)
