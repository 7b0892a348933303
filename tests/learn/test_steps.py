"""The lesson: its programs on real ranks, its questions, and sessions in a pipe and a terminal."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import termios
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import pytest
from forked import as_command
from golden import golden
from helpers import MARK, PATIENCE, marked_processes, wait_until
from json_schema import document_schema

from distdemo.cli.app import command_names, typer_command
from distdemo.cli.arguments import normalize_argv
from distdemo.launcher.records import WorldSpec
from distdemo.learn import trial, view
from distdemo.learn.answers import fits, matches
from distdemo.learn.catalogue import NAMES, STEPS
from distdemo.learn.mistakes.records import RankOutcome
from distdemo.learn.records import Lesson, PlayedStep, StepList
from distdemo.view.blocks import quiet
from distdemo.view.console import Signs

GOLDEN = Path(__file__).parent / "golden"
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


# --------------------------------------------------------------------------------------- the steps


def played(name: str) -> PlayedStep:
    """Play a step."""
    step = STEPS[name]
    with patch.object(trial, "HANG_TIMEOUT_S", 0.7):
        return trial.play_step(step, WorldSpec(step.world_size, deadline=60, capture=True), "")


@pytest.mark.parametrize("name", NAMES)
def test_a_program_runs_as_documented(name: str, warm: Any) -> None:
    step = STEPS[name]
    found = warm(played, name) if step.needs_compiler else played(name)
    assert found.ok, found.outcomes
    assert found.answer == step.answer
    assert fits(view.text_of(found.answer, Signs()), found.answer)
    for each in found.outcomes:
        if each.kind == "hang":
            line = int(each.what.rpartition(":")[2])
            assert "dist.recv" in step.program.splitlines()[line - 1]


def test_a_step_is_short_and_its_commands_exist() -> None:
    assert [each.number for each in STEPS.values()] == [*range(1, len(NAMES) + 1)]
    for name, step in STEPS.items():
        lines = step.program.splitlines()
        assert len(lines) <= 26, name
        assert max(map(len, lines)) <= 56, name  # 60 columns with the line number
        assert len(step.expected) == step.world_size
        assert step.rank < step.world_size
        compile(step.program, name, "exec")
        for line in step.commands:
            program, *words = shlex.split(line)
            command, *rest = normalize_argv(words, command_names(), typer_command)
            assert (program, command in command_names()) == ("distdemo", True), line
            typer_command(command).make_context(command, rest)  # raises what the parser refuses


# ----------------------------------------------------------------------------------- the comparison


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1 2]", [1.0, 2.0]),
        ("1,2", [1, 2]),
        ("1 2", [1, 2]),
        (" tensor([1., 2.]) ", [1, 2]),
        ("tensor([1, 2], dtype=torch.int64)", [1, 2]),
        ("(1; 2)", [1, 2]),
        ("[[0 1] [2 3]]", [[0, 1], [2, 3]]),
        ("−3", -3.0),
        ("-0.5", -0.5),
        ("5/2", 2.5),
        ("2.5", 2.5),
        ("8 bytes", 8),
        ("8B", 8),
        ("nothing", None),
        ("it hangs forever", "hangs"),
        ("Deadlock!", "hangs"),
        ("raises an exception", "error"),
        ("OK", "right"),
    ],
)
def test_the_form_of_an_answer_is_free(text: str, value: Any) -> None:
    assert matches(text, value)
    assert fits(text, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 1", [1, 2]),
        ("1 2 0", [1, 2]),
        ("1", [1, 1]),
        ("12", [1, 2]),
        ("3", -3),
        ("1/0", 1),
        ("hangs", 3),
        ("right", "hangs"),
        ("hangs, or right", "hangs"),
        ("", 3),
    ],
)
def test_the_content_of_an_answer_is_not(text: str, value: Any) -> None:
    assert not matches(text, value)


def test_an_answer_in_another_form_is_asked_for_again() -> None:
    assert fits("7 7", [1, 2])
    assert fits("right", "hangs")
    assert fits("hangs", 3)
    for text, value in (
        ("?", 3),
        ("dunno", 3),
        ("7", [1, 2]),
        ("3", "hangs"),
        ("does not", "right"),
    ):
        assert not fits(text, value), text


# ---------------------------------------------------------------------------------------- the views


def outcomes(name: str) -> tuple[RankOutcome, ...]:
    """The documented outcomes of a step."""
    step = STEPS[name]
    return tuple(
        RankOutcome(rank, step.outcome, value, value, "in recv at mistakes.py:10" * (value is None))
        for rank, value in enumerate(step.expected)
    )


def test_the_list() -> None:
    golden(GOLDEN / "steps.txt", partial(view.list_view, StepList(tuple(STEPS.values()))))


def test_the_steps_that_were_played() -> None:
    failed = tuple(
        RankOutcome(each, "error", None, [5, 2], "RuntimeError: no") for each in range(3)
    )
    steps = (
        PlayedStep(STEPS["scatter-gather"], outcomes("scatter-gather"), "1 5 9"),
        PlayedStep(STEPS["mistakes"], outcomes("mistakes"), "right"),
        PlayedStep(STEPS["ddp"], failed),
    )
    lesson = Lesson(steps, "zero-1")
    golden(GOLDEN / "lesson.txt", partial(view.lesson_view, lesson))
    golden(GOLDEN / "lesson_summary.txt", lambda sign: quiet(view.lesson_view(lesson, sign)))


# ---------------------------------------------------------------------------------------- in a pipe


def test_a_prediction_from_a_pipe_and_the_document(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("0, 1\nnever read\n"))
    code, out, err = command("learn", "2", "--format", "json")
    document = json.loads(out)
    assert (code, err, document["ok"]) == (0, "", True)  # though the prediction is wrong
    jsonschema.validate(document, document_schema(Lesson, "learn"))
    (only,) = document["steps"]
    assert (only["step"]["name"], only["prediction"]) == ("broadcast", "0, 1")
    assert (only["answer"], only["predicted"]) == ([10, 11], False)
    assert [each["value"] for each in only["outcomes"]] == [[10, 11]] * 4


def test_a_prediction_in_another_form_is_not_counted(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("1 2 3"))
    code, out, err = command("learn", "broadcast")
    assert (code, err) == (0, "")
    assert "1 2 3 isn't counted: type two numbers, such as 7 8." in out
    assert "Not quite" not in out
    assert out.endswith("✓ 1 step played.\n")


def test_without_input_the_program_runs_without_a_prediction(
    command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    file = tmp_path / "step.md"
    code, out, err = command("learn", "All_Gather", "--output", str(file))
    assert (code, err) == (0, f"Wrote {file}\n")
    assert "Prediction" not in out
    assert "Your prediction" not in out
    assert out.endswith("✓ 1 step played.\n")
    assert "| 1 | [2 4] |" in file.read_text()


@pytest.mark.usefixtures("no_rank_starts")
def test_without_a_step_they_are_listed_and_an_unknown_one_is_refused(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, out, err = command("learn")
    assert (code, err) == (0, "")
    assert all(name in out for name in NAMES)
    for word in ("rign", "0", "13"):
        code, out, err = command("learn", word)
        assert (code, out) == (2, "")
        assert f"There is no step '{word}'." in err


# ------------------------------------------------------------------------------------ in a terminal


class Terminal:
    """The command in a terminal of its own, with somebody who answers its prompts."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self._main, side = pty.openpty()
        whole = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CI")}
        settings = {"TERM": "xterm-256color", "COLUMNS": "80", "TMPDIR": str(folder)}
        self._mark = f"{os.getpid()}-{time.monotonic_ns()}"
        env = {**whole, **settings, MARK: self._mark}
        self._folder = folder
        self.process = subprocess.Popen(
            ["distdemo"],
            stdin=side,
            stdout=side,
            stderr=side,
            **as_command(words, env, own_terminal),
        )
        os.close(side)
        self.text = ""

    def answer(self, prompt: str, keys: str) -> None:
        """Wait for a prompt, and type something."""
        self._read_until(lambda text: prompt in text)
        os.write(self._main, keys.encode())
        self._shown, self.text = self.text, ""

    def _read_until(self, found: Any) -> None:
        until = time.monotonic() + PATIENCE
        while not found(self.text):
            assert time.monotonic() < until, self.text
            if select.select([self._main], [], [], 1.0)[0]:
                data = os.read(self._main, 1 << 16)
                self.text += ESCAPES.sub("", data.decode(errors="replace")).replace("\r\n", "\n")

    def end(self) -> int:
        """Return the exit code; ``text`` is what was written since the last answer."""
        with suppress(OSError):  # the other side is closed
            self._read_until(lambda _: False)
        os.close(self._main)
        code = self.process.wait(PATIENCE)
        assert wait_until(lambda: not marked_processes(self._mark)), "a process is left"
        assert list(self._folder.iterdir()) == []
        return code


def own_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C is a signal."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


PROMPT = "Your prediction: "
NEXT = "; b goes back, q stops: "


def test_a_session_in_a_terminal(tmp_path: Path) -> None:
    terminal = Terminal(["learn"], tmp_path)
    terminal.answer(PROMPT, "2 4 1\n")
    assert "Step 1 of 12 · hello" in terminal._shown
    terminal.answer(NEXT, "\n")
    assert "✓ 2 4 1" in terminal._shown
    terminal.answer(PROMPT, "?\n")
    assert "Step 2 of 12 · broadcast" in terminal._shown
    terminal.answer(PROMPT, "1 2 3\n")
    assert "Type two numbers, such as 7 8." in terminal._shown
    terminal.answer(PROMPT, "[20 21]\n")
    assert "You typed 3 numbers. Type two numbers, such as 7 8." in terminal._shown
    terminal.answer(NEXT, "what\n")
    assert "✗ Not quite. Answer: [10 11]." in terminal._shown
    terminal.answer(NEXT, "\n")
    assert "Enter: the next step. b: one step back. q: stop." in terminal._shown
    terminal.answer(PROMPT, "\n")
    terminal.answer(NEXT, "b\n")
    assert "Prediction" not in terminal._shown
    terminal.answer(PROMPT, "q\n")
    assert "Step 2 of 12 · broadcast" in terminal._shown
    assert terminal.end() == 0
    assert "3 steps played. Predicted 1 of 2 right. Continue with distdemo learn" in terminal.text
    assert terminal.text.rstrip().endswith("broadcast.")
    assert "Step 1 of 12" not in terminal.text  # it was shown


def test_control_c_and_control_d_say_how_to_continue(tmp_path: Path) -> None:
    for step, prompt, key, code, text in (
        ("broadcast", PROMPT, "\x03", 130, "Interrupted. Continue with distdemo learn broadcast."),
        ("broadcast", PROMPT, "\x04", 0, "Continue with distdemo learn broadcast."),
        ("moe", NEXT, "\x03", 130, "Interrupted. Continue with distdemo learn ring-attention."),
        ("mistakes", "on 3 ranks", "\x03", 130, "Continue with distdemo learn mistakes."),
    ):
        terminal = Terminal(["learn", step], tmp_path)
        if prompt != PROMPT:
            terminal.answer(PROMPT, "\n")
        terminal.answer(prompt, key)
        assert terminal.end() == code
        assert text in terminal.text


def test_the_file_has_all_steps_of_a_session(tmp_path: Path) -> None:
    folder, file = tmp_path / "temporary", tmp_path / "lesson.json"
    folder.mkdir()
    terminal = Terminal(["learn", "moe", "--output", str(file)], folder)
    terminal.answer(PROMPT, "1 11 21\n")
    terminal.answer(NEXT, "\n")
    terminal.answer(PROMPT, "32 bytes\n")
    assert terminal.end() == 0
    assert "✓ 2 steps played. Predicted 2 of 2 right. Next, the exercises" in terminal.text
    document = json.loads(file.read_text())
    assert [each["step"]["name"] for each in document["steps"]] == ["moe", "ring-attention"]
