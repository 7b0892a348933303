"""Mistakes that don't hang are found with rank and line, and right programs have no findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import commanded

pytestmark = pytest.mark.processes
PROGRAMS = Path(__file__).with_name("silent.py")


def document_of(folder: Path, backend: str, name: str, *words: str, wrong: bool) -> dict[str, Any]:
    """Run a program on four ranks and return the document."""
    if backend == "mpi":
        pytest.importorskip("mpi4py")
    line = ["run", str(PROGRAMS), "-n", "4", "--backend", "mpi"][: 6 if backend == "mpi" else 4]
    arguments = [backend, name, *["wrong"] * wrong]
    with commanded([*line, "--format", "json", *words, "--", *arguments], folder) as run:
        code, out, _ = run.finish()
    document: dict[str, Any] = json.loads(out)
    assert document.get("stopped") is None, out
    assert code == (1 if document.get("findings") else 0), out
    return document


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize("name", ["skipped_batch", "skipped_step", "skipped_batch_in_fsdp"])
def test_gradients_of_different_steps_are_found(tmp_path: Path, backend: str, name: str) -> None:
    assert "findings" not in document_of(tmp_path, backend, name, wrong=False)
    (found,) = document_of(tmp_path, backend, name, wrong=True)["findings"]
    assert (found["kind"], found["ranks"]) == ("step", [1])
    assert all("silent.py:" in row["source_line"] for row in found["rows"]), found


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize("name", ["right_steps", "skipped_batch_in_fsdp"])
def test_right_steps_have_no_findings(tmp_path: Path, backend: str, name: str) -> None:
    document = document_of(tmp_path, backend, name, "--check-replicas", wrong=False)
    assert "findings" not in document


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize(
    ("name", "ranks", "what"),
    [
        ("drift", [2], "Rank 2: 2.weight differs from ranks 0, 1, 3 after step 3."),
        ("unequal_start", [1, 2, 3], "weight differs from rank 0 after DDP's first broadcast."),
        ("named_tensors", [3], "Rank 3: statistics differs from ranks 0, 1, 2 in check 1."),
    ],
)
def test_replicas_that_drift_are_found(
    tmp_path: Path, backend: str, name: str, ranks: list[int], what: str
) -> None:
    options = ["--check-replicas"]
    assert "findings" not in document_of(tmp_path, backend, name, *options, wrong=False)
    (found,) = document_of(tmp_path, backend, name, *options, wrong=True)["findings"]
    assert (found["kind"], found["ranks"]) == ("replicas", ranks)
    assert what in found["what"]
    assert all("silent.py:" in row["source_line"] for row in found["rows"]), found


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize("name", ["severed", "severed_loss"])
def test_a_severed_gradient_is_a_warning(tmp_path: Path, backend: str, name: str) -> None:
    for right in (name, "right_gradients"):
        document = document_of(tmp_path, backend, right, wrong=False)
        assert not {"findings", "warnings"} & {*document}, document
    document = document_of(tmp_path, backend, name, wrong=True)
    (warning,) = document["warnings"]
    assert "findings" not in document
    assert (warning["kind"], warning["ranks"]) == ("severed", [0, 1, 2, 3])
    assert [row["did"].partition("(")[0] for row in warning["rows"]] == ["all_reduce", "backward"]
    assert all(f"in {name}" in row["source_line"] for row in warning["rows"]), warning


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize(
    ("name", "op"), [("severed_gather", "all_gather"), ("severed_experts", "all_to_all_single")]
)
def test_a_result_in_a_loss_is_a_warning(tmp_path: Path, backend: str, name: str, op: str) -> None:
    for right in (name, "right_gradients"):
        document = document_of(tmp_path, backend, right, "--sanitize=buffers", wrong=False)
        assert not {"findings", "warnings"} & {*document}, document
    document = document_of(tmp_path, backend, name, "--sanitize=buffers", wrong=True)
    (warning,) = document["warnings"]
    assert (warning["kind"], warning["ranks"]) == ("severed", [0, 1, 2, 3])
    assert [row["did"].partition("(")[0] for row in warning["rows"]] == [op, "uses the result"]
    assert all(f"in {name}" in row["source_line"] for row in warning["rows"]), warning


@pytest.mark.parametrize("backend", ["gloo", "mpi"])
@pytest.mark.parametrize(
    ("name", "ranks", "what"),
    [
        ("unwaited", [1, 2, 3], "Ranks 1, 2, 3: a call is never waited for."),
        ("swapped", [2], "Call 1 of the default group, all_reduce, got tensors of different"),
    ],
)
def test_calls_that_are_legal_but_hardly_meant_are_a_warning(
    tmp_path: Path, backend: str, name: str, ranks: list[int], what: str
) -> None:
    document = document_of(tmp_path, backend, name, wrong=False)
    assert not {"findings", "warnings"} & {*document}, document
    (warning,) = document_of(tmp_path, backend, name, wrong=True)["warnings"]
    assert (warning["ranks"], what in warning["what"]) == (ranks, True)
    assert all(f"in {name}" in row["source_line"] for row in warning["rows"]), warning


def test_a_check_without_replicas_says_so(tmp_path: Path) -> None:
    for name, nothing in (("swapped", True), ("drift", None)):
        document = document_of(tmp_path, "gloo", name, "--check-replicas", wrong=False)
        assert document.get("no_replicas") is nothing


def test_replicas_are_checked_only_as_often_as_asked(tmp_path: Path) -> None:
    for every, step in (("2", 4), ("5", 5)):
        document = document_of(tmp_path, "gloo", "drift", "--check-replicas", every, wrong=True)
        assert f"after step {step}." in document["findings"][0]["what"]
    assert "findings" not in document_of(tmp_path, "gloo", "drift", wrong=True)
