"""A training as a JSON document."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

from trainings import broken_report, made_report, made_world, wild_report

from distdemo.launcher.records import Died, Returned, Verdict
from distdemo.train.records import TrainReport, TrainSpec
from distdemo.train.view_document import train_document
from distdemo.view.document import SCHEMA_VERSION, dumps

SETTINGS = {"timeout": 30.0, "plot": None, "trace": "t.json"}


def document(report: TrainReport) -> Any:
    return json.loads(dumps(train_document(report, SETTINGS)))


def test_it_says_what_was_trained_on_what_and_how_it_went() -> None:
    made = document(made_report())
    assert list(made)[:3] == ["schema_version", "command", "ok"]
    assert (made["schema_version"], made["command"], made["ok"]) == (SCHEMA_VERSION, "train", True)
    assert made["errors"] == []
    assert set(made["spec"]) == {field.name for field in fields(TrainSpec)} | set(SETTINGS)
    assert {name: made["spec"][name] for name in SETTINGS} == SETTINGS
    assert made["world"]["timeout"] == 30, "of the world without progress, not of the launcher"
    assert made["comparable_epochs"] == 3
    assert made["spec"]["mode"] == "compare"
    assert (made["world"]["world_size"], made["world"]["backend"]) == (4, "gloo")
    assert made["task"]["samples"] == 1536
    assert made["seconds"] == 1.5
    assert made["versions"] == {"distdemo": "1.2.3", "torch": "2.13"}
    assert made["notes"] == ["The data has 1,536 samples."]


def test_every_epoch_of_every_mode_is_there() -> None:
    made = document(made_report(epochs=30))
    assert [run["mode"] for run in made["runs"]] == ["manual", "flat", "ddp"]
    for run in (made["reference"], *made["runs"]):
        assert [epoch["epoch"] for epoch in run["epochs"]] == list(range(1, 31))
    ddp = made["runs"][-1]
    assert (ddp["steps"], ddp["collectives_per_step"], ddp["bytes_per_step"]) == (360, 2, 38440)
    assert ddp["overlapped_seconds"] < ddp["communication_seconds"] < ddp["seconds"]
    assert ddp["epochs"][0]["checksums"] == ["abc123"] * 4
    assert ddp["epochs"][0]["replicas_identical"] is True


def test_each_proof_that_failed_is_an_error() -> None:
    made = document(broken_report())
    assert made["ok"] is False
    assert [proof["held"] for proof in made["proofs"]] == [True] * 3 + [False] + [True] * 6
    assert [proof["mode"] for proof in made["proofs"][2:4]] == ["manual", "flat"]
    assert [proof["difference"] for proof in made["proofs"][-2:]] == [1.2e-7, 0]
    (error,) = made["errors"]
    assert error["what"].startswith("flat: all replicas are the same after every epoch")
    assert error["why"] == "Rank 0 differs in epoch 3."
    assert "distdemo check" in error["hint"]
    assert error["ranks"] == [0]
    assert made["runs"][1]["epochs"][-1]["replicas_identical"] is False


def test_proofs_that_could_not_be_made_are_one_error() -> None:
    made = document(wild_report())
    assert made["ok"] is False
    assert [proof["held"] for proof in made["proofs"]] == [True, None, None] * 3 + [None]
    assert {proof["difference"] for proof in made["proofs"]} == {None}
    assert made["runs"][0]["weight_difference"] is None
    assert made["runs"][0]["loss_difference"] is None
    (error,) = made["errors"]
    assert "neither proved nor refuted: 7 of 10 proofs could not be made." in error["what"]
    assert error["why"] == "Rounding grows too fast."
    assert error["hint"] == "Try a smaller --lr."


def test_a_world_that_failed_has_its_verdict_and_how_each_rank_ended() -> None:
    outcomes = (Returned(rank=0), Died(rank=1, signal=9))
    verdict = Verdict("Rank 1 was killed.", "By signal 9.", "Look at the memory.", (1,))
    world = replace(made_world(2), outcomes=outcomes, verdict=verdict)
    made = document(TrainReport(TrainSpec(), world))
    assert made["ok"] is False
    assert [error["what"] for error in made["errors"]] == ["Rank 1 was killed."]
    assert [rank["outcome"] for rank in made["ranks"]] == ["returned", "died"]
    assert (made["task"], made["reference"], made["runs"]) == (None, None, [])


def test_where_nothing_was_proved_there_is_an_error() -> None:
    made = document(replace(made_report(), proofs=()))
    assert made["ok"] is False
    assert [error["what"] for error in made["errors"]] == ["Nothing was proved."]


def test_a_loss_that_is_no_number_is_a_string() -> None:
    report = made_report("flat")
    (run,) = report.runs
    lost = replace(run, epochs=(replace(run.epochs[0], loss=float("nan")),))
    made = document(replace(report, runs=(lost,)))
    assert made["runs"][0]["epochs"][0]["loss"] == "NaN"
