"""The reports of learn and mistakes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from golden import Blocks, golden

from distdemo.calls.records import Finding, Row, SourceLine
from distdemo.learn import view
from distdemo.learn.catalogue import MISTAKES, STEPS, find
from distdemo.learn.records import ExampleList, Lesson, MistakeReport, PlayedStep, RankOutcome
from distdemo.view.blocks import quiet

GOLDEN = Path(__file__).parent / "golden"


def outcomes(*endings: Any) -> tuple[RankOutcome, ...]:
    """Return an outcome for each rank, from its other fields."""
    return tuple(RankOutcome(rank, *ending) for rank, ending in enumerate(endings))


def returned(name: str) -> tuple[RankOutcome, ...]:
    """Return the outcomes of a step that runs as documented."""
    return outcomes(*(("right", value, value) for value in STEPS[name].expected))


def report() -> MistakeReport:
    """Return a mistake that differs from its documentation, with every kind of outcome."""
    row = Row((1, 2), "all_reduce(SUM, float32[3])", SourceLine("shape.py", 11, "work"))
    finding = Finding("shape", "The sizes don't fit together.", (row,), "", "They must.")
    what = "Call 1 came from different lines."
    shift = replace(finding, kind="shift", what=what, level="warn")
    right = outcomes(*[("right", 20.0, 20.0)] * 6)
    wrong = outcomes(
        ("hang", None, 20.0, "in all_reduce at shape.py:11"),
        ("wrong", 13.0, 20.0),
        ("right", 20.0, 20.0),
        ("abort", None, 20.0, "SIGABRT"),
        ("lost", None, 20.0, "lost a peer"),
        ("error", None, 20.0, f"ValueError: {'never ' * 20}"),
    )
    problems = ("The repaired program is wrong.",)
    mistake = replace(MISTAKES["shape"], link="https://github.com/pytorch/pytorch/issues/1")
    return MistakeReport(
        mistake,
        "gloo",
        wrong,
        (finding,),
        right,
        problems,
        warnings=(shift,),
        stopped="rank 3 left no notes",
        versions={"torch": "2.13"},
    )


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


FOUND = replace(report(), warnings=(), stopped="", problems=())
VIEWS: dict[str, Blocks] = {
    "steps": partial(view.steps_view, ExampleList(tuple(STEPS.values()))),
    "lesson": partial(view.lesson_view, LESSON),
    "list": partial(view.mistakes_view, ExampleList(tuple(MISTAKES.values()))),
    "report": partial(view.report_view, report(), explain=True),
    "summary": lambda sign: quiet(view.report_view(FOUND, sign)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_report(name: str) -> None:
    golden(GOLDEN / f"{name}.txt", VIEWS[name])


def test_an_example_has_a_name_and_a_number() -> None:
    assert find(MISTAKES, "3") is find(MISTAKES, "Reduce_Op") is MISTAKES["reduce-op"]
    assert find(STEPS, "1") is STEPS["hello"]
    assert find(STEPS, "0") is find(MISTAKES, "deadlock") is None
