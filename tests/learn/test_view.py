"""The reports of learn and mistakes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from golden import Blocks, golden

from distdemo.calls.records import Finding, Row
from distdemo.learn import view
from distdemo.learn.catalogue import EXERCISES, MISTAKES, STEPS
from distdemo.learn.records import (
    ExerciseFolder,
    Hint,
    Lesson,
    MistakeList,
    MistakeReport,
    PlayedStep,
    RankOutcome,
    StepList,
    Trial,
)
from distdemo.view.blocks import quiet

GOLDEN = Path(__file__).parent / "golden"


def outcomes(*endings: Any) -> tuple[RankOutcome, ...]:
    """Return an outcome for each rank, from its other fields."""
    return tuple(RankOutcome(rank, *ending) for rank, ending in enumerate(endings))


def returned(name: str) -> tuple[RankOutcome, ...]:
    """Return the outcomes of a step that runs as documented."""
    return outcomes(*(("right", value, value) for value in STEPS[name].expected))


def report() -> MistakeReport:
    """Return a mistake that behaves differently over three backends."""
    row = Row((1, 2), "all_reduce(SUM, float32[3])", "shape.py:11 in work")
    finding = Finding("shape", "The sizes don't fit together.", (row,), "", "They must.")
    shift = replace(finding, kind="shift", what="Call 1 came from different lines.")
    right = outcomes(*[("right", 20.0, 20.0)] * 3)
    wrong = outcomes(
        ("hang", None, 20.0, "in all_reduce at shape.py:11"),
        ("wrong", 13.0, 20.0),
        ("right", 20.0, 20.0),
    )
    failed = outcomes(
        ("abort", None, 20.0, "SIGABRT"),
        ("lost", None, 20.0, "lost a peer"),
        ("error", None, 20.0, f"ValueError: {'never ' * 20}"),
    )
    trials = (
        Trial("gloo", wrong, (finding,), right, ()),
        Trial("mpi", failed, (shift,), wrong, ("The repaired program is wrong.",)),
        Trial("ucc", right, (), right, ()),
    )
    mistake = replace(MISTAKES["shape"], link="https://github.com/pytorch/pytorch/issues/1")
    return MistakeReport(mistake, trials, {"torch": "2.13"})


LESSON = Lesson(
    (
        PlayedStep(STEPS["scatter-gather"], returned("scatter-gather"), "1 5 9"),
        PlayedStep(
            STEPS["mistakes"],
            outcomes(*[("hang", None, None, "in recv at mistakes.py:10")] * 3),
            "right",
        ),
        PlayedStep(STEPS["ddp"], outcomes(*[("error", None, [5, 2], "RuntimeError: no")] * 3)),
    ),
    "zero-1",
)


def hint(name: str, number: int) -> Hint:
    hints = EXERCISES[name].hints
    return Hint(name, number, len(hints), hints[number - 1])


FILES = ("README.md", "ring.py", "test_ring.py")
REPORT = report()
FOUND = replace(REPORT, trials=REPORT.trials[:1])
VIEWS: dict[str, Blocks] = {
    "steps": partial(view.steps_view, StepList(tuple(STEPS.values()))),
    "lesson": partial(view.lesson_view, LESSON),
    "lesson_summary": lambda sign: quiet(view.lesson_view(LESSON, sign)),
    "exercises": partial(view.exercises_view, ExerciseFolder("lesson", FILES)),
    "hint": partial(view.hint_view, hint("zero-1", 2)),
    "last_hint": partial(view.hint_view, hint("shape", 3)),
    "list": partial(view.mistakes_view, MistakeList(tuple(MISTAKES.values()))),
    "report": partial(view.report_view, REPORT, explain=True),
    "summary": lambda sign: quiet(view.report_view(FOUND, sign)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_report(name: str) -> None:
    golden(GOLDEN / f"{name}.txt", VIEWS[name])
