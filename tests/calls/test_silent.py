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
    ("gloo", "skipped_batch"): ("", "step", [1], "averaged gradients of a different step"),
    ("gloo", "skipped_step"): ("", "step", [1], "averaged gradients of a different step"),
    ("gloo", "skipped_batch_in_fsdp"): ("", "step", [1], "averaged gradients of a different step"),
    ("gloo", "drift"): (REPLICAS, "replicas", [2], "2.weight differs from ranks 0, 1, 3 after s"),
    ("mpi", "unequal_start"): (
        REPLICAS,
        "replicas",
        None,
        "weight differs between all ranks before",
    ),
    ("gloo", "named_tensors"): (REPLICAS, "replicas", [3], "Rank 3: statistics differs from ranks"),
}
"""Option, kind, ranks at fault and a part of the text, by backend and program."""
WARNINGS = {
    "severed": ("severed", ALL, "all_reduce backward"),
    "severed_loss": ("severed", ALL, "all_reduce backward"),
    "severed_gather": ("severed", ALL, "all_gather uses the result"),
    "severed_experts": ("severed", ALL, "all_to_all_single uses the result"),
    "unwaited": ("buffers", [1, 2, 3], "all_reduce"),
    "swapped": ("shift", [2], "all_reduce all_reduce"),
    "transposed": ("shift", [3], "all_reduce all_reduce"),
}
"""Kind, ranks at fault and what they did, by program."""
TRAINING = {
    "unwrapped": ("unreduced", ALL, "6 of 6 steps changed parameters without a reduction; the DDP"),
    "never_synchronized": ("unreduced", ALL, "their backward passes ran in no_sync()"),
    "unfinished": ("unreduced", ALL, "1 of 6 steps changed parameters without a reduction; DDP di"),
    "unreduced": ("unreduced", ALL, "6 of 6 steps changed parameters without a reduction; no cal"),
    "other_seed": ("replicas", None, "weight differs between all ranks before the first step"),
    "other_parameter": (
        "shift",
        [1],
        "Rank 1 reduced a different parameter from ranks 0, 2, 3",
    ),
    "same_batches": ("data", ALL, "reduced bit-identical gradients in every step that was compare"),
    "same_order": ("data", ALL, "DistributedSampler gave the same order in two epochs"),
    "drift_in_hybrid_shards": ("replicas", None, "weight differs between rank 1 and rank 3 after"),
    "drift_beside_shards": ("replicas", None, "0.weight differs between all ranks after step 1"),
}
"""Kind, ranks at fault and a part of the text of the first warning, by program."""
RIGHT = [*WARNINGS, *TRAINING, "right_replicas", "skipped_step", "right_gradients", "right_steps"]
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


@pytest.mark.parametrize(("backend", "name"), FINDINGS)
def test_a_mistake_is_found(start: Start, backend: str, name: str) -> None:
    option, kind, ranks, text = FINDINGS[backend, name]
    (finding,) = document_of(start, backend, name, option, wrong=True)["findings"]
    assert (finding["kind"], finding.get("ranks")) == (kind, ranks)
    assert text in finding["what"]
    assert all("silent.py:" in row["source_line"] for row in finding["rows"]), finding
    if kind == "step":  # batches are counted from 0; skipped_step begins with distdemo.step()
        steps = 3 if name == "skipped_step" else 2
        assert finding["rows"][0]["did"].endswith(f" after step {steps}")


@backends
def test_possible_mistakes_are_warnings_and_with_buffers_a_lost_handle_is_an_error(
    start: Start, backend: str
) -> None:
    document = document_of(start, backend, ",".join(WARNINGS), BUFFERS, wrong=True)
    assert [finding["kind"] for finding in document["findings"]] == ["buffers"]
    warnings = {}
    for warning in document["findings"] + document["warnings"]:
        _, _, function = warning["rows"][-1]["source_line"].partition(" in ")
        calls = " ".join(row["did"].partition("(")[0] for row in warning["rows"])
        warnings[function.partition(",")[0]] = warning["kind"], warning["ranks"], calls
    assert warnings == WARNINGS


@backends
def test_wrong_training_is_a_warning_without_an_option(start: Start, backend: str) -> None:
    programs = ",".join(TRAINING)
    found: dict[str, dict[str, Any]] = {}
    for warning in document_of(start, backend, programs, wrong=True)["warnings"]:
        line = warning["rows"][0]["source_line"]
        name = next((name for name in TRAINING if f" in {name}" in line), line)
        found.setdefault(name, warning)
    assert found.keys() == TRAINING.keys()
    for name, (kind, ranks, text) in TRAINING.items():
        assert (found[name]["kind"], found[name].get("ranks")) == (kind, ranks), name
        assert text in found[name]["what"], name


@backends
def test_right_programs_have_no_findings(start: Start, backend: str) -> None:
    document = document_of(start, backend, ",".join(RIGHT), REPLICAS, BUFFERS, wrong=False)
    assert not {"findings", "warnings"} & {*document}, document
    assert document["replicas"]["compared"]


def test_replicas_are_checked_only_as_often_as_asked(start: Start) -> None:
    document = document_of(start, "gloo", "drift", f"{REPLICAS}=2", wrong=True)
    assert "after step 4." in document["findings"][0]["what"]
    nothing = document_of(start, "gloo", "swapped", REPLICAS, wrong=False)["replicas"]
    assert (nothing["compared"], nothing["steps"]) == (0, 0)
