"""Exercises fail until they are solved, with the ranks' calls and without the solution."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from helpers import PATIENCE
from processes import Start

from distdemo.errors import UsageError
from distdemo.learn.catalogue import EXERCISES, MISTAKES, STEPS
from distdemo.learn.folder import exercise_files, exercises_of, write_folder

WRONG = Path(__file__).parent / "wrong"
MODULES = [program.module for name, program in EXERCISES.items() if name not in MISTAKES]
"""Modules in which a function must be written, and those with a program to repair: parity."""
BROKEN = {
    "shape": "the sizes don't match",
    "early_read": "Rank 0 returned",
    "uneven_batches": "Rank 1 failed. Rank 0 waited for it",
    "late_call": "finding",
}
"""What the tests of some mistakes print."""
REPAIRED = ("rank-0-only", "send-send", "sum-not-mean")
EXPECTED = re.compile("# expected: (.*)")
"""First line of a wrong solution: pattern of what its test on four ranks prints."""


@pytest.mark.processes
@pytest.mark.timeout(400)  # on a loaded machine
def test_an_exercise_fails_until_it_is_solved(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "lesson"
    report = tmp_path / "report.xml"
    write_folder(folder, exercise_files(exercises_of(None), solutions=False))
    wrong = wrong_solutions(folder)
    solved_files = exercise_files(exercises_of(None), solutions=True)
    for module in MODULES:
        (folder / f"{module}.py").write_text(solved_files[f"solutions/{module}.py"])
    program = (folder / "programs/train_fsdp.py").read_text()  # other order of the calls backward
    (folder / "fsdp_program.py").write_text(f"{program}\n\nlayer = Gathered.apply\n")
    copy_test(folder, "fsdp", "fsdp_program")
    repaired = [MISTAKES[name].module for name in REPAIRED]
    for name in REPAIRED:
        file = folder / f"mistakes/{MISTAKES[name].module}.py"
        file.write_text(MISTAKES[name].repaired)
    files = [f"test_{module}.py" for module in (*wrong, *MODULES, "fsdp_program")]
    files += [f"mistakes/test_{module}.py" for module in (*BROKEN, *repaired)]
    only = ["-k", "ranks4 or mistakes"]  # the number of ranks
    words = ["-m", "pytest", *only, "-p", "no:cacheprovider", f"--junit-xml={report}"]
    run = start("python", *words, *(str(folder / file) for file in files))
    _, out, _ = run.finish(3 * PATIENCE)
    failures: dict[str, str] = {}
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by our pytest
        text = "".join(failed.text or "" for failed in case.findall("failure"))
        failures[f"{case.get('classname')}.{case.get('name')}"] = text
    solved = [f"test_{module}.test_{module}[ranks4]" for module in MODULES]
    solved += ["test_fsdp_program.test_fsdp[ranks4]"]
    solved += [f"mistakes.test_{module}.test_{module}" for module in repaired]
    for name in solved:
        assert failures.pop(name) == "", out
    for module, expected in BROKEN.items():
        text = failures.pop(f"mistakes.test_{module}.test_{module}")
        assert expected in " ".join(text.split()), text
        assert f" {module}.py:" in text.partition("calls of all ranks")[2], text
    for module, (exercise, pattern) in wrong.items():
        text = failures.pop(f"test_{module}.test_{exercise}[ranks4]")
        assert re.search(pattern, text), text
        assert f" {module}.py:" in text.partition("calls of all ranks")[2], text
    assert not failures


def wrong_solutions(folder: Path) -> dict[str, tuple[str, str]]:
    """Write wrong solutions, and a copy of its test for each.

    Returns:
        The module of the exercise, and what the test prints, by module of the solution.
    """
    solutions = {}
    for file in WRONG.glob("*.py"):
        (exercise,) = [module for module in MODULES if file.stem.startswith(f"{module}_")]
        text = file.read_text()
        expected = EXPECTED.match(text)
        assert expected, file
        solutions[file.stem] = (exercise, expected[1])
        (folder / file.name).write_text(text)
        copy_test(folder, exercise, file.stem)
    return solutions


def copy_test(folder: Path, exercise: str, module: str) -> None:
    """Write a copy of an exercise's test that imports another module."""
    test = (folder / f"test_{exercise}.py").read_text()
    renamed = test.replace(f"from {exercise} import", f"from {module} import")
    (folder / f"test_{module}.py").write_text(renamed)


def test_the_folder_has_solutions_only_if_they_are_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "lesson"
    written = exercise_files(exercises_of(None), solutions=False)
    write_folder(folder, written)
    files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
    assert {*files} == {*written}
    modules = [file.name for file in files.values() if file.suffix == ".py"]
    assert len({*modules}) == len(modules)  # pytest needs different names
    for mistake in MISTAKES.values():
        assert files[f"mistakes/{mistake.module}.py"].read_text() == mistake.program
        hints = files[f"hints/{mistake.module}.md"].read_text()
        assert hints.count("\n") == 2 * len(mistake.hints) - 1
    for module in MODULES:
        is_program = bool(EXERCISES[module.replace("_", "-")].repaired)
        end = "    raise NotImplementedError\n"
        assert files[f"{module}.py"].read_text().endswith(end) is not is_program, module
    rows = re.findall(r"\| `(\w+).py` \|", files["README.md"].read_text())
    assert rows == MODULES
    assert rows[0] == "all_reduce"  # the mean is the easiest
    assert rows.index("scatter_gather") < rows.index("broadcast")  # a send before a tree of them
    solved = exercise_files(exercises_of(None), solutions=True)
    own = {f"{module}.py" for module in MODULES}
    own |= {f"mistakes/{mistake.module}.py" for mistake in MISTAKES.values()}
    assert solved.keys() - written.keys() == {f"solutions/{name}" for name in own}


@pytest.mark.parametrize(
    ("step", "names"),
    [("ring", ["ring"]), ("parity", ["parity"]), ("hello", []), ("mistakes", [*MISTAKES])],
)
def test_a_step_has_its_own_exercises(step: str, names: list[str]) -> None:
    assert [exercise.name for exercise in exercises_of(STEPS[step])] == names


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists"):
        write_folder(tmp_path, {"file": ""})
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UsageError, match=r"can't be written"):
        write_folder(file / "folder", {"file": ""})
    assert [*tmp_path.iterdir()] == [file]
