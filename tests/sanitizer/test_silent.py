"""Mistakes that don't hang are found with rank and line, and right programs have no findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import commanded

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
def test_right_steps_have_no_findings(tmp_path: Path, backend: str) -> None:
    document = document_of(tmp_path, backend, "right_steps", wrong=False)
    assert "findings" not in document
