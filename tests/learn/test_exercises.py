"""Exercises fail until they are solved, with the ranks' calls and without the solution."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from golden import golden
from helpers import PATIENCE, warmed

from distdemo.errors import UsageError
from distdemo.learn.exercises import EXERCISES, NAMES, hint, write_exercises
from distdemo.learn.exercises_view import exercises_view, hint_view
from distdemo.learn.mistakes.catalogue import MISTAKES
from distdemo.learn.records import ExerciseFolder

GOLDEN = Path(__file__).parent / "golden"
SOLUTIONS = Path(__file__).parent / "solutions"
WRONG = Path(__file__).parent / "wrong"
BROKEN = {
    "shape": "the sizes don't match",
    "early-read": "Rank 0 returned",
    "uneven-batches": "Rank 1 failed. Rank 0 waited for it",
    "late-call": "finding",
}
"""What the tests of some mistakes print."""
REPAIRED = ("rank-0-only", "send-send", "sum-not-mean")
EXPECTED = re.compile("# expected: (.*)")
"""First line of a wrong solution: pattern of what its test on four ranks prints."""


@pytest.mark.timeout(400)  # on a loaded machine
def test_an_exercise_fails_until_it_is_solved(tmp_path: Path) -> None:
    folder, report = tmp_path / "lesson", tmp_path / "report.xml"
    write_exercises(folder)
    wrong = wrong_solutions(folder)
    files = [folder / f"test_{module}.py" for module in wrong]
    for name in NAMES:
        module = name.replace("-", "_")
        shutil.copy(SOLUTIONS / f"{module}.py", folder)
        files.append(folder / f"test_{module}.py")
    for name in REPAIRED:
        module = MISTAKES[name].module
        (folder / f"mistakes/{module}.py").write_text(MISTAKES[name].text(repaired=True))
    files += [folder / f"mistakes/test_{MISTAKES[name].module}.py" for name in (*BROKEN, *REPAIRED)]
    words = ["-m", "pytest", "-p", "no:cacheprovider", f"--junit-xml={report}", *map(str, files)]
    with warmed(words, tmp_path) as run:
        _, out, _ = run.finish(3 * PATIENCE)
    failures: dict[str, str] = {}
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by our pytest
        text = "".join(failed.text or "" for failed in case.findall("failure"))
        failures[f"{case.get('classname')}.{case.get('name')}"] = text
    for name in NAMES:
        module = name.replace("-", "_")
        for n in (1, 3, 4):
            assert failures.pop(f"test_{module}.test_{module}[ranks{n}]") == "", out
    for name in REPAIRED:
        module = MISTAKES[name].module
        assert failures.pop(f"mistakes.test_{module}.test_{module}") == "", out
    for name, expected in BROKEN.items():
        module = MISTAKES[name].module
        text = failures.pop(f"mistakes.test_{module}.test_{module}")
        assert expected in " ".join(text.split()), text
        assert f" {module}.py:" in text.partition("calls of all ranks")[2], text
    for module, (exercise, expected) in wrong.items():
        text = failures.pop(f"test_{module}.test_{exercise}[ranks4]")
        assert re.search(expected, text), text
        calls = text.partition("calls of all ranks")[2]
        assert f" {module}.py:" in calls or "No torch.distributed calls were seen." in calls, text
    assert not failures


def wrong_solutions(folder: Path) -> dict[str, tuple[str, str]]:
    """Write wrong solutions, and a copy of its test on four ranks for each.

    Returns:
        The module of the exercise, and what the test prints, by module of the solution.
    """
    found = {}
    for name in NAMES:
        exercise = name.replace("-", "_")
        texts = {f"{exercise}_unsolved": (folder / f"{exercise}.py").read_text()}
        for file in WRONG.glob(f"{exercise}_*.py"):
            texts.setdefault(file.stem, file.read_text())
        for module, text in texts.items():
            expected = EXPECTED.match(text)
            found[module] = (exercise, expected[1] if expected else "NotImplementedError")
            (folder / f"{module}.py").write_text(text)
            test = (folder / f"test_{exercise}.py").read_text()
            test = test.replace(f"from {exercise} import", f"from {module} import")
            (folder / f"test_{module}.py").write_text(test.replace("[1, 3, 4]", "[4]"))
    return found


def test_the_folder_has_neither_solutions_nor_hints(tmp_path: Path) -> None:
    written = write_exercises(tmp_path / "new" / "lesson")
    folder = Path(written.folder)
    files = [each for each in folder.rglob("*") if each.is_file()]
    assert {str(each.relative_to(folder)) for each in files} == {*written.files}
    texts = {each.name: each.read_text() for each in files}
    assert len(texts) == len(files)  # pytest needs different names of modules
    for exercise in EXERCISES.values():
        assert 3 <= len(exercise.hints) <= 5
        for text in texts.values():
            assert not any(each in text for each in exercise.hints)
    for name, mistake in MISTAKES.items():
        assert texts[f"{mistake.module}.py"] == mistake.text()
        assert name not in NAMES
    for name in NAMES:
        assert "    raise NotImplementedError\n" in texts[f"{name.replace('-', '_')}.py"]
    lines = texts["README.md"].splitlines()
    assert len(lines) <= 40
    assert "pip install 'distdemo[learn]'" in texts["README.md"]
    for name in NAMES:
        assert f"`{name.replace('-', '_')}.py`" in texts["README.md"]


@pytest.mark.usefixtures("no_rank_starts")
def test_invalid_requests_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"is not empty"):
        write_exercises(tmp_path)
    with pytest.raises(UsageError, match=r"can't be written"):
        write_exercises(tmp_path / "notes.txt")
    with pytest.raises(UsageError, match=r"Did you mean distdemo learn ring"):
        hint("rings", 1)
    for number in (0, 5):
        with pytest.raises(UsageError, match=rf"ring has no hint {number}.\nIt has 4 hints."):
            hint("ring", number)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_the_views() -> None:
    folder = ExerciseFolder("lesson", ("README.md", "ring.py", "test_ring.py"))
    golden(GOLDEN / "exercises.txt", partial(exercises_view, folder))
    golden(GOLDEN / "hint.txt", partial(hint_view, hint("Zero_1", 2)))
    golden(GOLDEN / "last_hint.txt", partial(hint_view, hint("shape", 3)))
