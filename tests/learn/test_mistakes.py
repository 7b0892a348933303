"""Mistakes behave as documented on real ranks."""

from __future__ import annotations

import faulthandler
import json
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import pytest
from forked import in_a_child
from golden import golden
from json_schema import document_schema
from mpi.worlds import needs_mpi

from distdemo import backends
from distdemo.launcher import workers
from distdemo.launcher.records import WorldSpec
from distdemo.learn.mistakes import trial, view
from distdemo.learn.mistakes.catalogue import BACKENDS, MISTAKES
from distdemo.learn.mistakes.records import (
    Mistake,
    MistakeList,
    MistakeReport,
    RankOutcome,
    Trial,
)
from distdemo.sanitizer.records import Finding, Row
from distdemo.view.blocks import quiet

GOLDEN = Path(__file__).parent / "golden"
MPI = [pytest.mark.mpi, needs_mpi]
OVER_MPI = ("dtype", "order", "small-receive")  # different outcome from gloo
EACH = [(name, "gloo") for name in MISTAKES]
EACH += [pytest.param(name, "mpi", marks=MPI) for name in OVER_MPI]  # type: ignore[misc]  # pytest's


def tried(mistake: Mistake, backend: str) -> Trial:
    """Try a mistake with a shorter hang timeout and a faster poll than usual.

    If the machine is too slow for that, ``trial.STALL_TIMEOUT_S`` applies.
    """
    faulthandler.disable()  # pytest's: a backend that aborts would write its whole stack
    world = WorldSpec(mistake.world_size, backend, deadline=60, start_method="fork", capture=True)
    with patch.object(trial, "HANG_TIMEOUT_S", 0.7), patch.object(workers, "POLL_S", 0.03):
        return trial.try_mistake(mistake, backends.prepared(world))


# ---------------------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize(("name", "backend"), EACH)
def test_a_mistake_behaves_as_documented(name: str, backend: str) -> None:
    mistake = MISTAKES[name]
    found = in_a_child(tried, mistake, backend)
    assert found.problems == (), found.outcomes
    for each in found.outcomes:
        if each.kind == "hang":  # on a line with a call
            number = int(re.fullmatch(rf"in \w+ at {mistake.module}\.py:(\d+)", each.what)[1])  # type: ignore[index]  # or it fails
            line = mistake.text().splitlines()[number - 1]
            assert "dist." in line, line


def test_a_program_is_short_and_holds_both_versions() -> None:
    for name, mistake in MISTAKES.items():
        assert len(mistake.expected) == mistake.world_size
        for backend in BACKENDS:
            assert len(mistake.documented(backend)) == mistake.world_size
        texts = [mistake.text(), mistake.text(repaired=True)]
        assert texts[0] != texts[1]
        for text in texts:
            compile(text, name, "exec")
            assert 10 <= len(text.splitlines()) <= 25, name
            assert max(map(len, text.splitlines())) <= 73, name  # 80 columns with the line number
            assert not re.search("# (wrong|right)", text), name
        roles = [each.role for each in mistake.program]
        assert ("right", "wrong") not in pairwise(roles), name  # - before +


# ------------------------------------------------------------------------ the reports, the command


def test_the_list() -> None:
    found = MistakeList(tuple(MISTAKES.values()))
    golden(GOLDEN / "list.txt", partial(view.list_view, found))


def test_the_report() -> None:
    row = Row((1, 2), "all_reduce(SUM, float32[3])", "shape.py:11 in work")
    finding = Finding("shape", "The sizes don't fit together.", (row,), "", "They must.")
    shift = replace(finding, kind="shift", what="Call 1 came from different lines.")
    right = tuple(RankOutcome(rank, "right", 20.0, 20.0) for rank in range(3))
    long = f"ValueError: {'never ' * 20}"
    outcomes = (
        (
            RankOutcome(0, "hang", None, 20.0, "in all_reduce at shape.py:11"),
            RankOutcome(1, "wrong", 13.0, 20.0),
            RankOutcome(2, "right", 20.0, 20.0),
        ),
        (
            RankOutcome(0, "abort", None, 20.0, "SIGABRT"),
            RankOutcome(1, "lost", None, 20.0, "lost a peer"),
            RankOutcome(2, "error", None, 20.0, long),
        ),
        right,
    )
    trials = (
        Trial("gloo", outcomes[0], (finding,), right, ()),
        Trial("mpi", outcomes[1], (shift,), outcomes[0], ("The repaired program is wrong.",)),
        Trial("ucc", outcomes[2], (), right, ()),
    )
    mistake = replace(MISTAKES["shape"], link="https://github.com/pytorch/pytorch/issues/1")
    found = MistakeReport(mistake, trials, {"torch": "2.13"})
    golden(GOLDEN / "report.txt", partial(view.report_view, found, explain=True))
    found = replace(found, trials=trials[:1])
    golden(GOLDEN / "summary.txt", lambda sign: quiet(view.report_view(found, sign)))


def test_the_document_and_exit_code_1_if_it_differs_from_the_documentation(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake = MISTAKES["reduce-op"]
    wrong = replace(mistake, expected=(7, 7, 7), outcomes={"gloo": "hang right wrong"})
    monkeypatch.setitem(MISTAKES, "reduce-op", replace(wrong, finding="root"))
    code, out, err = command("mistakes", "Reduce_Op", "--format", "json")
    document = json.loads(out)
    assert (code, err, document["ok"]) == (1, "", False)
    jsonschema.validate(document, document_schema(MistakeReport, "mistakes"))
    (only,) = document["trials"]
    assert (only["backend"], only["findings"][0]["kind"]) == ("gloo", "reduce_op")
    assert only["problems"] == [
        "The documented outcome differs: hang right wrong.",
        "The sanitizer found reduce_op, not root.",
        "The repaired program is wrong on ranks [0, 1, 2].",
    ]
    assert {each.get("role", "both") for each in document["program"]} == {"both", "wrong", "right"}


@pytest.mark.usefixtures("no_rank_starts")
def test_invalid_options_are_rejected(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mpi = backends.REGISTRY["mpi"]
    monkeypatch.setattr(mpi, "missing", lambda: "mpi4py is not installed.")
    for line, expected in {
        "mistakes shap": "There is no mistake 'shap'.\nChoices: shape, ",
        "mistakes shap -q": "Did you mean distdemo mistakes shape?",
        "mistakes shape --backend gloo,mpj": "--backend mpj: there is no such choice.",
        "mistakes shape --backend gloo,mpi": "mpi4py is not installed.",
        "mistakes --explain": "--explain requires a mistake to run.",
    }.items():
        code, out, err = command(*line.split())
        assert (code, out) == (2, ""), line
        assert " ".join(expected.split()) in " ".join(err.split()), line
