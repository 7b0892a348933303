"""The JSON document of a program of the user's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from distdemo.launcher.records import Died, Stopped, Verdict, WorldReport
from distdemo.run.records import Program, RunReport, Transcript, Value
from distdemo.run.view_document import run_document
from distdemo.view.document import dumps


def document(report: RunReport, only: frozenset[int] | None = None) -> Any:
    return json.loads(dumps(run_document(report, only)))


def test_a_function(world: Callable[..., WorldReport]) -> None:
    report = RunReport(
        Program("a/prog.py", "", "run", ("1",)),
        2,
        "gloo",
        "cpu",
        world(2),
        (Transcript("hi\n"), Transcript("ho\n", 7)),
        (Value("nan", float("nan")), None),
        {"torch": "2.13"},
    )
    found = document(report)
    assert (found["command"], found["ok"], found["errors"]) == ("run", True, [])
    assert found["program"] == {
        "name": "prog.py:run",
        "file": "a/prog.py",
        "module": None,
        "function": "run",
        "arguments": ["1"],
        "mode": "function",
        "makes_group": False,
    }
    assert found["world"]["backend"] == "gloo"
    assert found["world"]["timeout"] == 30.0
    assert found["world"]["idle"] is None
    first, second = found["ranks"]
    assert (first["output"], first["left_out_bytes"], first["returned"]) == ("hi\n", 0, "NaN")
    assert (second["output"], second["left_out_bytes"], second["returned"]) == ("ho\n", 7, None)
    assert second["outcome"] == "returned"
    assert [each["rank"] for each in document(report, frozenset({1}))["ranks"]] == [1]


def test_a_whole_program_that_fails(world: Callable[..., WorldReport]) -> None:
    verdict = Verdict("Rank 0 ended.", "Why.", "Try.", (0,), (1,))
    failed = world(2, (Died(rank=0, exit_code=3, output="tail"), Stopped(rank=1)), verdict)
    report = RunReport(Program("", "a.b"), 2, "", "", failed, (Transcript("all"), Transcript()))
    found = document(report)
    assert found["ok"] is False
    assert (found["program"]["mode"], found["program"]["makes_group"]) == ("whole", True)
    assert found["world"]["backend"] is None
    assert [each["outcome"] for each in found["ranks"]] == ["died", "stopped"]
    assert found["ranks"][0]["output"] == "all"
    assert found["errors"][0]["ranks"] == [0]


def test_an_interrupted_run() -> None:
    report = RunReport(Program("x.py"), 1, "", "", None, (Transcript("so far"),))
    found = document(report)
    assert (found["ok"], found["interrupted"], found["world"]) == (False, True, None)
    assert found["ranks"][0] == {
        "rank": 0,
        "outcome": "interrupted",
        "output": "so far",
        "left_out_bytes": 0,
        "returned": None,
    }
    assert found["errors"][0]["what"] == "Interrupted."
