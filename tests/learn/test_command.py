"""``distdemo learn`` and ``distdemo mistakes``: in a pipe, in a terminal, and refused."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from json_schema import document_schema
from processes import Start

from distdemo import backends, ops
from distdemo.errors import DistdemoError
from distdemo.learn.catalogue import MISTAKES, STEPS
from distdemo.learn.folder import (
    exercise_files,
    exercises_of,
    slide_files,
    slide_name,
    write_folder,
)
from distdemo.learn.records import Lesson, MistakeReport

DOCS = Path(__file__).parents[2] / "docs"

# --------------------------------------------------------------------------------------- in a pipe


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Set the standard input."""
    return lambda text: monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_prediction_from_a_pipe_and_the_document(command: Any, typed: Any) -> None:
    typed("0, 1\nnever read\n")
    code, out, err = command("learn", "2", "--format", "json")
    document = json.loads(out)
    assert (code, err, document["ok"]) == (0, "", True)  # though the prediction is wrong
    jsonschema.validate(document, document_schema(Lesson, "learn"))
    (only,) = document["steps"]
    assert (only["step"]["name"], only["prediction"]) == ("broadcast", "0, 1")
    assert (only["answer"], only["predicted"]) == ([10, 11], False)
    assert [outcome["value"] for outcome in only["outcomes"]] == [[10, 11]] * 4


def test_without_input_the_program_runs_without_a_prediction(command: Any, typed: Any) -> None:
    typed("")
    code, out, err = command("learn", "All_Gather")
    assert (code, err) == (0, "")
    assert "rediction" not in out
    assert out.endswith("✓ 1 step played.\n")


def test_a_mistake_that_differs_from_its_documentation(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake = MISTAKES["reduce-op"]
    wrong = replace(mistake, expected=(7, 7, 7), outcomes={"gloo": "hang right wrong"})
    monkeypatch.setitem(MISTAKES, "reduce-op", replace(wrong, finding="root"))
    code, out, err = command("mistakes", "Reduce_Op", "--format", "json")
    document = json.loads(out)
    assert (code, err, document["ok"]) == (1, "", False)
    jsonschema.validate(document, document_schema(MistakeReport, "mistakes"))
    assert (document["backend"], document["findings"][0]["kind"]) == ("gloo", "reduce_op")
    assert document["problems"] == [
        "The documented outcome differs: hang right wrong.",
        "The sanitizer found reduce_op, not root.",
        "The repaired program is wrong on ranks [0, 1, 2].",
    ]
    assert document["mistake"]["program"] != document["mistake"]["repaired"]


@pytest.mark.usefixtures("no_rank_starts")
def test_what_runs_nothing(command: Any, typed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    typed("")
    monkeypatch.setattr(backends.REGISTRY["mpi"], "missing", lambda: "mpi4py is not installed.")
    code, out, err = command("learn")
    assert (code, err) == (0, "")
    assert all(name in out for name in STEPS)
    for line, expected in {
        "learn rign": "There is no step 'rign'.",
        "learn 0": "There is no step '0'.",
        "learn 18": "There is no step '18'.",
        "learn --write /": "/ exists. Nothing is overwritten.",
        "learn ring --solutions": "--solutions requires --write FOLDER.",
        "mistakes shap": "There is no mistake 'shap'. Did you mean shape?",
        "mistakes xyzzy": "Choices: shape, ",
        "mistakes shap -q": "Did you mean shape?",
        "mistakes shape --backend mpj": "--backend mpj: there is no such choice.",
        "mistakes shape --backend mpi": "mpi4py is not installed.",
    }.items():
        code, out, err = command(*line.split())
        assert (code, out) == (2, ""), line
        assert " ".join(expected.split()) in " ".join(err.split()), line


def test_the_folder_of_a_step_has_its_slides(command: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "class"
    code, out, err = command("learn", "ring", "--write", str(folder), "--solutions")
    assert (code, err) == (0, "")
    assert "1 exercise, 5 slides, the notebook and solutions. Start" in " ".join(out.split())
    assert json.loads((folder / "collectives.ipynb").read_text())["nbformat"] == 4
    files = {file.name: file for file in (folder / "slides").iterdir()}
    for name in ("06-p2p.svg", "06-trace-list-all-reduce.png", "06-trace-ring.html"):
        assert name in files
    pages = sorted(name for name in files if re.fullmatch(r"06-trace-ring-\d.svg", name))
    assert len(pages) > 1  # on one slide the text would be too small
    assert "<title>distdemo trace --algorithm ring" in files[pages[0]].read_text()
    assert files[pages[0].replace("svg", "png")].read_bytes().startswith(b"\x89PNG")
    assert "dist.isend" in (folder / "solutions/ring.py").read_text()


def test_every_operation_and_every_plan_has_its_slides() -> None:
    slides = {
        command: slide_name(step.number, command)
        for step in STEPS.values()
        for command in step.slides
    }
    assert len({*slides.values()}) == len(slides)  # no picture overwrites another one
    for name in ops.REGISTRY:
        assert f"distdemo explain {name.replace('_', '-')}" in slides
    page = (DOCS / "teach.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+-\d+) \|.* \| `(.*)` \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) > 10  # two classes
    for minutes, command, named in rows:
        shown = re.findall(r"`(\d\d-\S+)`", named)
        assert {*shown} <= {*slides.values()}, minutes
        assert shown or command.startswith("pytest"), minutes
        if command in slides:
            assert slides[command] in shown, command
    named = re.findall(r"`(?:slides/)?(\d\d-[a-z][\w-]*)(?:\.html)?`", page)
    assert {*named} <= {*slides.values()}


def shown_runs() -> dict[str, list[str]]:
    """Return the outputs that pages show of programs in the folder, by command."""
    outputs: dict[str, list[str]] = {}
    for page in ("teach.md", "learn.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        for block in re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, _, output = part.partition("\n")
                if line.startswith(("distdemo parity", "distdemo run")):
                    outputs.setdefault(line, []).append(output)
    return outputs


@pytest.mark.processes
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("line", shown_runs())
def test_the_pages_show_the_real_output_of_programs_in_the_folder(
    command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str
) -> None:
    folder = tmp_path / "class"
    write_folder(folder, exercise_files(exercises_of(None), solutions=False))
    monkeypatch.chdir(folder)
    program = folder / line.split()[2]
    for output in shown_runs()[line]:
        is_edited = "model.module" in output  # students have removed DDP
        if is_edited:
            text = program.read_text(encoding="utf-8")
            program.write_text(text.replace("model(tokens", "model.module(tokens"))
        code, out, err = command(*line.split()[1:])
        assert code == (1 if "✗" in output else 0)
        in_order = sorted if line.startswith("distdemo run") else list  # ranks print in any order
        lines = iter(in_order(out.splitlines()))
        for shown in in_order(output.splitlines()):
            assert shown == "..." or shown in lines, f"{shown} is missing in:\n{out}{err}"


@pytest.mark.processes
def test_a_slide_may_show_a_command_that_is_meant_to_fail() -> None:
    (command,) = STEPS["parity"].slides
    files = slide_files(16, command)
    assert "is not reduced" in str(files["slides/16-parity-parity.svg"])
    with pytest.raises(DistdemoError, match="did not fail"):
        slide_files(1, "distdemo explain reduce  # fails")


# ------------------------------------------------------------------------------------ in a terminal

PROMPT = "Your prediction: "
NEXT = "; q stops: "


@pytest.mark.processes
def test_a_session_in_a_terminal(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "lesson.json"
    terminal = start.terminal("distdemo", "learn", "--output", str(file))
    for prompt, keys, expected in (
        (PROMPT, "2 4 1", "Step 1 of 17 · hello"),
        (NEXT, "2 4 1", "✓ 2 4 1"),
        (NEXT, "", "Enter alone continues, back returns to the previous step, and q stops."),
        (PROMPT, "?", "Step 2 of 17 · broadcast"),
        (PROMPT, "1 2 3", "Type two numbers, such as 7 8."),
        (PROMPT, "[20 21]", "Type two numbers, such as 7 8."),
        (NEXT, "", "✗ Not quite. Answer: [10 11]."),
        (PROMPT, "back", "Step 3 of 17 · scatter-gather"),
        (PROMPT, "Back", "Step 2 of 17 · broadcast"),
        (PROMPT, "back", "Step 1 of 17 · hello"),  # there is none before it
        (PROMPT, "2 4 0", "Step 1 of 17 · hello"),
        (NEXT, "", "✗ Not quite."),
        (PROMPT, "10 11", "Step 2 of 17 · broadcast"),
        (NEXT, "back", "✓ 10 11"),
        (PROMPT, "q", "Step 1 of 17 · hello"),
    ):
        assert expected in terminal.wait_for(prompt)
        terminal.type(f"{keys}\n")
    assert terminal.end() == 0
    assert "2 steps played, 1 predicted right. Continue" in terminal.text
    assert terminal.text.rstrip().endswith("learn hello.")
    assert "Step 1 of 16" not in terminal.text  # it was shown
    steps = [played["step"]["name"] for played in json.loads(file.read_text())["steps"]]
    assert steps == ["hello", "broadcast"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("prompt", "key", "code", "text"),
    [
        (PROMPT, "\x04", 0, "Continue with distdemo learn mistakes."),
        ("on 3 ranks", "\x03", 130, "Interrupted."),
    ],
)
def test_control_c_and_control_d_end_it(
    start: Start, prompt: str, key: str, code: int, text: str
) -> None:
    terminal = start.terminal("distdemo", "learn", "mistakes")
    if prompt != PROMPT:
        terminal.wait_for(PROMPT)
        terminal.type("\n")
    terminal.wait_for(prompt)
    terminal.type(key)
    assert terminal.end() == code
    assert text in terminal.text
    terminal.run.leaves_nothing()
