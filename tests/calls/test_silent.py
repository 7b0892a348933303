"""Mistakes that don't hang are found with rank and line, and right programs have no findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes import Start

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("compiler")]
PROGRAMS = Path(__file__).with_name("silent.py")
BUFFERS = "--sanitize=buffers"
REPLICAS = "--check-replicas"
ALL = [0, 1, 2, 3]
FINDINGS = {
    "skipped_batch": ("", "step", [1], "averaged the gradients"),
    "skipped_step": ("", "step", [1], "averaged the gradients"),
    "skipped_batch_in_fsdp": ("", "step", [1], "averaged the gradients"),
    "drift": (REPLICAS, "replicas", [2], "2.weight differs from ranks 0, 1, 3 after step 3."),
    "unequal_start": (REPLICAS, "replicas", [1, 2, 3], "rank 0 after DDP's first broadcast."),
    "named_tensors": (REPLICAS, "replicas", [3], "Rank 3: statistics differs from ranks 0, 1, 2"),
}
"""Option, kind, ranks at fault and a part of the text, by program."""
WARNINGS = {
    "severed": ("", "severed", ALL, "all_reduce backward"),
    "severed_loss": ("", "severed", ALL, "all_reduce backward"),
    "severed_gather": (BUFFERS, "severed", ALL, "all_gather uses the result"),
    "severed_experts": (BUFFERS, "severed", ALL, "all_to_all_single uses the result"),
    "unwaited": ("", "buffers", [1, 2, 3], "Ranks 1, 2, 3: a call is never waited for."),
    "swapped": ("", "shift", [2], "all_reduce, got tensors of different"),
}
"""Likewise, but the text is in the summary or the calls."""
RIGHT = [
    ("right_steps", REPLICAS),
    ("skipped_batch_in_fsdp", REPLICAS),
    ("right_gradients", ""),
    ("right_gradients", BUFFERS),
]
backends = pytest.mark.parametrize("backend", ["gloo", "mpi"])


def document_of(start: Start, backend: str, name: str, *words: str, wrong: bool) -> dict[str, Any]:
    """Run a program on four ranks and return the document."""
    if backend == "mpi":
        pytest.importorskip("mpi4py")
    options = ["--backend", backend] if backend == "mpi" else []
    line = ["run", str(PROGRAMS), "-n", "4", *options, "--format", "json", *filter(None, words)]
    with start("distdemo", *line, "--", backend, name, *["wrong"] * wrong) as run:
        code, out, _ = run.finish()
    document: dict[str, Any] = json.loads(out)
    assert document.get("stopped") is None, out
    assert code == (1 if document.get("findings") else 0), out
    return document


@backends
@pytest.mark.parametrize("name", [*FINDINGS, *WARNINGS])
def test_a_mistake_is_found_and_its_repair_is_not(start: Start, backend: str, name: str) -> None:
    option, kind, ranks, text = {**FINDINGS, **WARNINGS}[name]
    right = document_of(start, backend, name, option, wrong=False)
    assert not {"findings", "warnings"} & {*right}, right
    wrong = document_of(start, backend, name, option, wrong=True)
    (finding,) = wrong["findings" if name in FINDINGS else "warnings"]
    assert (finding["kind"], finding["ranks"]) == (kind, ranks)
    calls = " ".join(row["did"].partition("(")[0] for row in finding["rows"])
    assert text in finding["what"] or text == calls
    assert all("silent.py:" in row["source_line"] for row in finding["rows"]), finding
    if name in WARNINGS:
        assert "findings" not in wrong
        assert all(f"in {name}" in row["source_line"] for row in finding["rows"]), finding


@backends
@pytest.mark.parametrize(("name", "option"), RIGHT)
def test_right_programs_have_no_findings(
    start: Start, backend: str, name: str, option: str
) -> None:
    document = document_of(start, backend, name, option, wrong=False)
    assert not {"findings", "warnings"} & {*document}, document


def test_a_check_without_replicas_says_so(start: Start) -> None:
    for name, nothing in (("swapped", True), ("drift", None)):
        document = document_of(start, "gloo", name, REPLICAS, wrong=False)
        assert document.get("no_replicas") is nothing


def test_replicas_are_checked_only_as_often_as_asked(start: Start) -> None:
    for every, step in (("2", 4), ("5", 5)):
        document = document_of(start, "gloo", "drift", f"{REPLICAS}={every}", wrong=True)
        assert f"after step {step}." in document["findings"][0]["what"]
    assert "findings" not in document_of(start, "gloo", "drift", wrong=True)
