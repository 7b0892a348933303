"""Mistakes that don't hang are found with rank and line, and right programs have no findings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from processes import Start

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("compiler")]
PROGRAMS = Path(__file__).with_name("silent.py")
BUFFERS = "--sanitize=buffers"
REPLICAS = "--check-replicas"
ALL = [0, 1, 2, 3]
STEP = "averaged gradients of a different step"
SEVERED = "a gradient ignores a collective in place"
SEVERED_RESULT = "a gradient ignores the result of a collective"
UNWAITED = "a call is never waited for"
SHAPES = "got tensors of different shapes"


class Case(NamedTuple):
    """What is reported on a program of silent.py that is wrong.

    Attributes:
        program: Its name.
        level: ``error`` or ``warning``.
        kind: Kind of the finding.
        ranks: Ranks at fault.
        text: Part of the summary.
        option: Option that makes it an error.
        backend: The only backend to use; empty for both.
    """

    program: str
    level: str
    kind: str
    ranks: list[int] | None
    text: str
    option: str = ""
    backend: str = ""


CASES = [
    Case("skipped_batch", "error", "step", [1], STEP, "", "gloo"),
    Case("skipped_step", "error", "step", [1], STEP, "", "gloo"),
    Case("skipped_batch_in_fsdp", "error", "step", [1], STEP, "", "gloo"),
    Case("drift", "error", "replicas", [2], "2.weight differs from ranks 0, 1", REPLICAS, "gloo"),
    Case("unequal_start", "error", "replicas", None, "weight differs between", REPLICAS, "mpi"),
    Case("named_tensors", "error", "replicas", [3], "Rank 3: statistics differs", REPLICAS, "gloo"),
    Case("unwaited", "error", "buffers", [1, 2, 3], UNWAITED, BUFFERS),
    Case("severed", "warning", "severed", ALL, SEVERED),
    Case("severed_loss", "warning", "severed", ALL, SEVERED),
    Case("severed_gather", "warning", "severed", ALL, SEVERED_RESULT),
    Case("severed_experts", "warning", "severed", ALL, SEVERED_RESULT),
    Case("swapped", "warning", "shift", [2], SHAPES),
    Case("transposed", "warning", "shift", [3], SHAPES),
    Case("unwrapped", "warning", "unreduced", ALL, "4 of 4 steps changed parameters without"),
    Case("never_synchronized", "warning", "unreduced", ALL, "backward passes ran in no_sync()"),
    Case("unreduced", "warning", "unreduced", ALL, "no call carried a gradient"),
    Case("other_seed", "warning", "replicas", None, "weight differs between all ranks before the"),
    Case("other_parameter", "warning", "shift", [1], "Rank 1 reduced a different parameter from"),
    Case("same_batches", "warning", "data", ALL, "reduced bit-identical gradients in every step"),
    Case("same_order", "warning", "data", ALL, "gave the same order in two epochs"),
    Case(
        "drift_in_hybrid_shards", "warning", "replicas", None, "weight differs between rank 1 and"
    ),
    Case("drift_beside_shards", "warning", "replicas", None, "0.weight differs between all ranks"),
    # the last one, as its last step shows only at the end, if its model still exists
    Case("unfinished", "warning", "unreduced", ALL, "1 of 4 steps changed parameters without"),
]
WARNED = [case.program for case in CASES if case.level == "warning"]
RIGHT = [*WARNED, "unwaited", "right_replicas", "skipped_step", "right_gradients", "right_steps"]
RIGHT += ["drift", "unequal_start", "named_tensors", "skipped_batch_in_fsdp", "right_changes"]
RIGHT += ["right_optimizers", "right_reductions"]
backends = pytest.mark.parametrize("backend", ["gloo", "mpi"])


def document_of(start: Start, backend: str, names: str, *words: str, wrong: bool) -> dict[str, Any]:
    """Run programs on four ranks and return the document."""
    if backend == "mpi":
        pytest.importorskip("mpi4py")
    options = ["--backend", backend] if backend == "mpi" else []
    line = ["run", str(PROGRAMS), "-n", "4", *options, "--format", "json", *filter(None, words)]
    with start("distdemo", *line, "--", backend, names, *["wrong"] * wrong) as run:
        code, out, _ = run.finish()
    document: dict[str, Any] = json.loads(out)
    assert document.get("stopped") is None, out
    assert code == (1 if document.get("findings") else 0), out
    return document


ERRORS = [
    pytest.param(case, backend, id=f"{case.program}-{backend}")
    for case in CASES
    for backend in ("gloo", "mpi")
    if case.level == "error" and case.backend in ("", backend)
]


@pytest.mark.parametrize(("case", "backend"), ERRORS)
def test_an_error_ends_the_run(start: Start, case: Case, backend: str) -> None:
    document = document_of(start, backend, case.program, case.option, wrong=True)
    (finding,) = document["findings"]
    assert (finding["kind"], finding.get("ranks")) == (case.kind, case.ranks)
    assert case.text in finding["what"]
    assert all("silent.py:" in row["source_line"] for row in finding["rows"]), finding
    if case.kind == "step":  # batches are counted from 0; skipped_step begins with distdemo.step()
        steps = 2 if case.program == "skipped_step" else 1
        assert finding["rows"][0]["did"].endswith(f" after step {steps}")


@backends
def test_a_warning_does_not_end_the_run(start: Start, backend: str) -> None:
    found: dict[str, dict[str, Any]] = {}
    document = document_of(start, backend, ",".join(WARNED), BUFFERS, wrong=True)
    for warning in document["warnings"]:
        lines = " ".join(row["source_line"] for row in warning["rows"])
        name = next((name for name in re.findall(r" in (\w+)", lines) if name in WARNED), lines)
        found.setdefault(name, warning)
    assert found.keys() == {*WARNED}
    for case in CASES:
        if case.level == "warning":
            warning = found[case.program]
            assert (warning["kind"], warning.get("ranks")) == (case.kind, case.ranks), case
            assert case.text in warning["what"], case


@backends
def test_right_programs_have_no_findings(start: Start, backend: str) -> None:
    words = (REPLICAS, "--except=expert.*", BUFFERS)
    document = document_of(start, backend, ",".join(RIGHT), *words, wrong=False)
    assert not {"findings", "warnings"} & {*document}, document
    (note,) = document["notes"]  # each rank mixes its parameters with those of its neighbours
    assert "right_reductions" in note["rows"][0]["source_line"]
    assert note["rule"].startswith("The program changes these parameters between steps")
    assert document["replicas"]["parameters"] > 50


def test_replicas_are_checked_only_as_often_as_asked(start: Start) -> None:
    document = document_of(start, "gloo", "drift", f"{REPLICAS}=2", wrong=True)
    assert "after step 4." in document["findings"][0]["what"]
    nothing = document_of(start, "gloo", "swapped", REPLICAS, wrong=False)["replicas"]
    assert not {"parameters", "compared_steps", "checks"} & {*nothing}
