"""Exercises: each mistake as a broken program, a test that fails, and hints. No solutions."""

from __future__ import annotations

from pathlib import Path

from distdemo.errors import UsageError
from distdemo.mistakes.catalogue import program_of, text_of
from distdemo.mistakes.records import ExerciseFolder, Mistake

TIMEOUT = 20  # seconds of a test; what the sanitizer sees fails at once
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

{count} small programs, each with one mistake. Every rank calls `work(rank, world_size)`, and the
process group is ready. Repair the programs, not the tests, until all tests pass:

```sh
pytest                                         # all of them
pytest test_{module}.py                           # one
distdemo run {module}.py:work -n {size}                # what the sanitizer says, in full
distdemo run {module}.py:work -n {size} --no-sanitize  # the program alone; Ctrl-C if it hangs
```

Where a program would hang, its test fails at once and says which rank made which call on which
line. Other mistakes show in the result alone. If you are stuck, open the hints one by one.
`distdemo mistakes NAME --explain` has the solution, and says why.
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
ABOUT = ("what to look at", "which rank", "which line")


def write_exercises(folder: Path, mistakes: list[Mistake]) -> ExerciseFolder:
    """Write a program and a test for each of these mistakes, and one README.md.

    Args:
        folder: new, or empty.
        mistakes: which.

    Raises:
        UsageError: something is there already, or it can't be written.
    """
    files = {"README.md": _readme(mistakes)}
    for mistake in mistakes:
        files[f"{mistake.module}.py"] = text_of(program_of(mistake))
        files[f"test_{mistake.module}.py"] = TEST.format(**_words(mistake), hint=mistake.hints[0])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(
                f"{folder} is not empty.",
                "Exercises are written to a folder of their own, and nothing is overwritten.",
                "Try --exercises with the name of a new folder.",
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
    parts = [README.format(count=len(mistakes), **_words(mistakes[0]))]
    for mistake in mistakes:
        hints = zip(ABOUT, mistake.hints, strict=True)
        texts = [
            HINT.format(number=number, about=about, text=text)
            for number, (about, text) in enumerate(hints, start=1)
        ]
        parts.append(EXERCISE.format(**_words(mistake), hints="".join(texts)))
    return "".join(parts)


def _words(mistake: Mistake) -> dict[str, object]:
    """Values for the templates; the goal is the first line of the program."""
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
