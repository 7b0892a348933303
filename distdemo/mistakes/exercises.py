"""Exercises: for each mistake a broken program, a failing test and hints, without solutions."""

from __future__ import annotations

from pathlib import Path

from distdemo.errors import UsageError
from distdemo.mistakes.catalogue import program_of, text_of
from distdemo.mistakes.records import ExerciseFolder, Mistake

TIMEOUT = 20  # seconds per test; findings of the sanitizer fail at once
TEST = '''\
"""{goal}"""

import pytest
from {module} import work


@pytest.mark.ranks({size}, timeout={timeout})
def test_{module}(rank, world_size):
    expected = {expected}
    assert work(rank, world_size) == expected, (
        "{goal}\\n"
        "{hint}"
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
## {name}

`{module}.py`, {size} ranks: {goal}
{hints}"""
HINT = """
<details><summary>Hint {number}: {about}</summary>

{text}

</details>
"""
ABOUT = ("where to look", "the rank", "the line")


def write_exercises(folder: Path, mistakes: list[Mistake]) -> ExerciseFolder:
    """Write a program and a test for each mistake, and one README.md.

    Args:
        folder: New or empty folder.
        mistakes: Mistakes to write.

    Raises:
        UsageError: The folder is not empty or can't be written.
    """
    files = {"README.md": _readme(mistakes)}
    for mistake in mistakes:
        files[f"{mistake.module}.py"] = text_of(program_of(mistake))
        files[f"test_{mistake.module}.py"] = TEST.format(**_values(mistake), hint=mistake.hints[0])
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


def _readme(mistakes: list[Mistake]) -> str:
    parts = [README.format(count=len(mistakes), **_values(mistakes[0]))]
    for mistake in mistakes:
        hints = zip(ABOUT, mistake.hints, strict=True)
        texts = [
            HINT.format(number=number, about=about, text=text)
            for number, (about, text) in enumerate(hints, start=1)
        ]
        parts.append(EXERCISE.format(**_values(mistake), hints="".join(texts)))
    return "".join(parts)


def _values(mistake: Mistake) -> dict[str, object]:
    """Return the values for the templates; the goal is the program's docstring."""
    values = mistake.expected
    expected = f"{values[0]!r}" if values.count(values[0]) == len(values) else f"{[*values]}[rank]"
    return {
        "name": mistake.name,
        "module": mistake.module,
        "size": mistake.world_size,
        "expected": expected,
        "timeout": TIMEOUT,
        "goal": program_of(mistake)[0].text.strip('"'),
    }
