"""Mistakes behave as documented on real ranks; exercises fail until they are repaired."""

from __future__ import annotations

import faulthandler
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from golden import golden
from helpers import running
from mpi.worlds import needs_mpi
from warm import Warm, run_command

from distdemo import backends
from distdemo.encoding import document_schema
from distdemo.launcher import workers
from distdemo.launcher.records import WorldSpec
from distdemo.mistakes import trial, view
from distdemo.mistakes.catalogue import BACKENDS, MISTAKES, program_of, text_of
from distdemo.mistakes.exercises import write_exercises
from distdemo.mistakes.records import (
    Mistake,
    MistakeList,
    MistakeReport,
    RankEnd,
    Trial,
)
from distdemo.sanitizer.records import Finding, Row

GOLDEN = Path(__file__).parent / "golden"
EVERY = list(MISTAKES)
MPI = [pytest.mark.mpi, needs_mpi]
OVER_MPI = ("dtype", "order", "small-receive")  # different outcome from gloo
EACH = [(name, "gloo") for name in EVERY]
EACH += [pytest.param(name, "mpi", marks=MPI) for name in OVER_MPI]  # type: ignore[misc]  # pytest's


def tried(mistake: Mistake, backend: str) -> Trial:
    """Try a mistake with a shorter hang timeout and a faster poll than usual.

    If the machine is too slow for that, ``trial.STALL_TIMEOUT_S`` applies.
    """
    faulthandler.disable()  # pytest's: a backend that aborts would write its whole stack
    world = WorldSpec(mistake.world_size, backend, deadline=60, start_method="fork", capture=True)
    with patch.object(trial, "HANG_TIMEOUT_S", 0.7), patch.object(workers, "POLL_S", 0.03):
        return trial.try_mistake(mistake, backends.prepared(world))


# ---------------------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize(("name", "backend"), EACH)
def test_a_mistake_behaves_as_documented(name: str, backend: str, warm: Warm) -> None:
    mistake = MISTAKES[name]
    found = warm(tried, mistake, backend)
    assert found.problems == (), found.ends
    assert [each.end for each in found.repaired] == ["right"] * mistake.world_size
    assert {each.kind for each in found.findings} == {mistake.finding} - {""}
    for each in found.ends:
        if each.end == "hang":  # on a line with a call
            number = int(re.fullmatch(rf"in \w+ at {mistake.module}\.py:(\d+)", each.what)[1])  # type: ignore[index]  # or it fails
            line = text_of(program_of(mistake)).splitlines()[number - 1]
            assert "dist." in line, line


def test_a_wrong_documentation_is_a_problem(warm: Warm) -> None:
    mistake = MISTAKES["reduce-op"]
    mistake = replace(mistake, expected=(7, 7, 7), happens={"gloo": "hang right wrong"})
    happened, repaired = warm(tried, mistake, "gloo").problems
    assert happened == "The documented outcome differs: hang right wrong."
    assert repaired == "The repaired program is wrong on ranks [0, 1, 2]."
    added = MISTAKES["reduce-op"]
    for changed, problem in (
        (replace(added, finding="root"), "The sanitizer found reduce_op, not root."),
        (replace(added, finding=""), "The sanitizer found reduce_op, not nothing."),
    ):
        assert warm(tried, changed, "gloo").problems == (problem,)


@pytest.mark.parametrize("name", EVERY)
def test_a_program_is_short_and_holds_both_versions(name: str) -> None:
    mistake = MISTAKES[name]
    assert len(mistake.expected) == mistake.world_size
    for backend in BACKENDS:
        assert len(mistake.documented(backend)) == mistake.world_size
    lines = program_of(mistake)
    texts = [text_of(lines), text_of(lines, repaired=True)]
    assert texts[0] != texts[1]
    for text in texts:
        compile(text, name, "exec")
        assert 10 <= len(text.splitlines()) <= 25
        assert max(map(len, text.splitlines())) <= 73  # 80 columns with the line number
        assert not re.search("# (wrong|right)", text)


# ------------------------------------------------------------------------ the reports, the command


def test_the_list() -> None:
    found = MistakeList(tuple(MISTAKES.values()))
    golden(GOLDEN / "list.txt", lambda console: view.table(found, console))


def test_the_report() -> None:
    row = Row((1, 2), "all_reduce(SUM, float32[3])", "shape.py:11 in work")
    finding = Finding("shape", "The sizes don't fit together.", (row,), "", "They must.")
    shift = replace(finding, kind="shift", what="Call 1 came from different lines.")
    right = tuple(RankEnd(rank, "right", 20.0, 20.0) for rank in range(3))
    long = f"ValueError: {'never ' * 20}"
    ends = (
        (
            RankEnd(0, "hang", None, 20.0, "in all_reduce at shape.py:11"),
            RankEnd(1, "wrong", 13.0, 20.0),
            RankEnd(2, "right", 20.0, 20.0),
        ),
        (
            RankEnd(0, "abort", None, 20.0, "SIGABRT"),
            RankEnd(1, "lost", None, 20.0, "lost a peer"),
            RankEnd(2, "error", None, 20.0, long),
        ),
        right,
    )
    trials = (
        Trial("gloo", ends[0], (finding,), right, ()),
        Trial("mpi", ends[1], (shift,), ends[0], ("The repaired program is wrong.",)),
        Trial("ucc", ends[2], (), right, ()),
    )
    mistake = replace(MISTAKES["shape"], link="https://github.com/pytorch/pytorch/issues/1")
    found = MistakeReport(mistake, program_of(mistake), trials, {"torch": "2.13"})
    golden(GOLDEN / "report.txt", lambda console: view.table(found, console, explain=True))
    found = replace(found, trials=trials[:1])
    golden(GOLDEN / "summary.txt", lambda console: view.summary(found, console))


def test_the_document(warm: Warm) -> None:
    code, out, err = warm(run_command, "mistakes", "Reduce_Op", "--format", "json")
    document = json.loads(out)
    assert (code, err, document["ok"]) == (0, "", True)
    jsonschema.validate(document, document_schema(MistakeReport, "mistakes"))
    (only,) = document["trials"]
    assert (only["backend"], only["findings"][0]["kind"]) == ("gloo", "reduce_op")
    assert {each.get("role", "both") for each in document["program"]} == {"both", "wrong", "right"}


def wrongly_documented() -> tuple[int, str, str]:
    MISTAKES["reduce-op"] = replace(MISTAKES["reduce-op"], finding="root")
    return run_command("mistakes", "reduce-op", "-q")


def test_the_exit_code_is_1_if_it_differs_from_the_documentation(warm: Warm) -> None:
    code, out, _ = warm(wrongly_documented)
    assert code == 1
    assert "The sanitizer found reduce_op, not root." in " ".join(out.split())


@pytest.mark.usefixtures("no_rank_starts")
def test_invalid_options_are_rejected(
    command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mpi = backends.REGISTRY["mpi"]
    monkeypatch.setattr(mpi, "missing", lambda: "mpi4py is not installed.")
    (tmp_path / "notes.txt").touch()
    for line, expected in {
        "mistakes shap": "There is no mistake 'shap'.\nChoices: shape, ",
        "mistakes shap -q": "Did you mean distdemo mistakes shape?",
        "mistakes shape --backend gloo,mpj": "--backend mpj: there is no such choice.",
        "mistakes shape --backend gloo,mpi": "mpi4py is not installed.",
        "mistakes --explain": "--explain requires a mistake to run.",
        "mistakes shape --backend gloo --exercises new": "--backend requires a mistake to run.",
        f"mistakes --exercises {tmp_path}": f"{tmp_path} is not empty.",
        f"mistakes --exercises {tmp_path}/notes.txt": "The exercises can't be written to",
    }.items():
        code, out, err = command(*line.split())
        assert (code, out) == (2, ""), line
        assert " ".join(expected.split()) in " ".join(err.split()), line
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


# ------------------------------------------------------------------------------------ the exercises


def outcomes(folder: Path, temporary: Path) -> dict[str, str]:
    """Return each test's failure, or an empty string if it passed."""
    report = temporary / "report.xml"
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}"]
    with running(words, temporary, cwd=folder) as run:
        run.finish(120)
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by our pytest
        failed = case.find("failure")
        found[case.get("name", "")] = "" if failed is None else f"{failed.text}"
    return found


@pytest.mark.timeout(300)  # 36 tests, each in a new world
def test_every_exercise_fails_and_passes_once_it_is_repaired(command: Any, tmp_path: Path) -> None:
    folder, temporary = tmp_path / "exercises", tmp_path / "tmp"
    temporary.mkdir()
    assert command("mistakes", "--exercises", str(folder))[0] == 0
    tests = {f"test_{mistake.module}" for mistake in MISTAKES.values()}
    broken = outcomes(folder, temporary)
    assert broken.keys() == tests
    assert [name for name, failed in broken.items() if not failed] == []
    for mistake in MISTAKES.values():
        text = broken[f"test_{mistake.module}"]
        assert f"{mistake.module}.py:" in text  # a line of the program
        (folder / f"{mistake.module}.py").write_text(text_of(program_of(mistake), repaired=True))
    assert outcomes(folder, temporary) == dict.fromkeys(tests, "")


def test_the_exercises_have_hints_and_no_solution(tmp_path: Path) -> None:
    written = write_exercises(tmp_path / "new" / "lesson", list(MISTAKES.values()))
    folder = Path(written.folder)
    assert sorted(each.name for each in folder.iterdir()) == list(written.files)
    readme = (folder / "README.md").read_text()
    assert readme.count("<details>") == 3 * len(MISTAKES)
    for mistake in MISTAKES.values():
        program = (folder / f"{mistake.module}.py").read_text()
        assert program == text_of(program_of(mistake))
        for hint in mistake.hints:
            assert hint in readme
