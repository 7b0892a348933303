"""Write a folder for a class: exercises with tests, hints and solutions, a notebook, slides."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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
PROGRAMS = {
    "ddp": "ddp",
    "fsdp": "fsdp",
    "tensor-parallel": "tensor_parallel",
    "pipeline": "pipeline",
}
"""Programs to compare with one rank: names in ``examples/parity`` by exercise."""
FAILS = "# fails"
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
        if program := PROGRAMS.get(exercise.name):
            files[f"programs/train_{exercise.module}.py"] = example(f"parity/{program}.py")
        hints = (f"{number}. {hint}\n" for number, hint in enumerate(exercise.hints, 1))
        files[f"hints/{exercise.module}.md"] = "\n".join(hints)
        if solutions:
            code = exercise.repaired or _text(file, "solutions")
            files[f"solutions/{file}"] = code
    readme = _text("README.md").replace("<!-- exercises -->", "\n".join(table))
    return {"README.md": readme, NOTEBOOK: example(NOTEBOOK), **files}


def slide_name(number: int, command: str) -> str:
    """Return the name of a slide without its suffix: ``06-trace-ring``.

    Args:
        number: Number of its step.
        command: Command line.
    """
    words = command.partition(FAILS)[0].split()[1:]
    names = (Path(word).stem for word in words if word[0].isalpha())
    return f"{number:02}-{'-'.join(names)}"


def slide_files(number: int, command: str) -> dict[str, str | bytes]:
    """Return the pictures of what a command shows, and its page, by path in the folder.

    Args:
        number: Number of its step.
        command: Command line, with ``# fails`` if it is meant to fail.

    Raises:
        DistdemoError: The command failed, or was meant to and didn't.
    """
    from distdemo.cli.app import function_of, result_of
    from distdemo.cli.commands import find_command
    from distdemo.view.slide import draw_slides

    line, fails, _ = command.partition(FAILS)
    words = line.split()[1:]
    with _exercise_folder():
        result = result_of([*words, "--quiet"])
    if result.record.ok is bool(fails):
        what = f"{line.strip()} {'did not fail' if fails else 'failed'}."
        raise DistdemoError(what, "It shows why.", "Run it alone.")
    start = f"slides/{slide_name(number, command)}"

    def blocks(sign: Signs) -> Iterable[Block]:
        return without_details(result.view(result.record, sign))

    files: dict[str, str | bytes] = {}
    for kind in ["svg", *["png"] * bool(find_spec("matplotlib"))]:
        pictures = draw_slides(kind, line.strip(), blocks)
        for page, picture in enumerate(pictures, 1):
            files[f"{start}{f'-{page}' if len(pictures) > 1 else ''}.{kind}"] = picture
    exports = function_of(find_command(words)[0]).info.exports
    if page_of := exports.get(".html"):
        files[f"{start}.html"] = page_of(result.record)
    return files


@contextmanager
def _exercise_folder() -> Iterator[None]:
    """Change to a temporary folder with the exercises."""
    from distdemo.launcher.process_tree import temporary_folder

    here = Path.cwd()
    with temporary_folder("distdemo-slides-") as folder:
        write_folder(folder / "exercises", {**exercise_files(exercises_of(None), solutions=False)})
        os.chdir(folder / "exercises")
        try:
            yield
        finally:
            os.chdir(here)


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
