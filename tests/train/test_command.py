"""``distdemo train`` as a user runs it: views, files and exit codes."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch.distributed as dist
from forked import in_a_child
from golden import golden

from distdemo.launcher.records import Returned, WorldReport, WorldSpec
from distdemo.train import loop, view
from distdemo.train.proofs import prove
from distdemo.train.records import Deviation, Epoch, Run, TrainReport, TrainSpec, TrainTask

pytestmark = pytest.mark.usefixtures("compiler")
SHORT = ["train", "-n", "2", "--epochs", "2"]
GOLDEN = Path(__file__).parent / "golden"


# ------------------------------------------------------------------------------------- its views


def run_of(mode, slip=0.0, comparison=None):
    sums = ("abc123",) * 4
    epochs = [Epoch(2.3 / (at + 1) + slip, 1 - 0.5 / (at + 1), 0.25, sums) for at in range(12)]
    if slip:
        epochs[-1] = replace(epochs[-1], checksums=("ffffff", *sums[1:]))
    run = Run(mode, tuple(epochs), 144, comparison=comparison or Deviation(12, 3.4e-7, 1.2e-7))
    if mode != "single":
        run = replace(run, collectives_per_step=2, bytes_per_step=38_440)
    return run


def report_of(*runs):
    outcomes = tuple(Returned(rank=rank) for rank in range(4))
    mode = "compare" if len(runs) > 1 else runs[0].mode
    return TrainReport(
        TrainSpec(mode=mode, epochs=12, batch_size=126),
        WorldReport(WorldSpec(4), outcomes, None, 1.5, "fork", "it is quick"),
        TrainTask(1536, 512, 16, 10, 1738, 31, 12),
        run_of("single"),
        runs,
        tuple(proof for run in runs for proof in prove(run)),
        versions={"distdemo": "1.2.3", "torch": "2.13"},
    )


RIGHT = report_of(run_of("manual"), run_of("flat"), run_of("ddp"))
WRONG = report_of(run_of("manual"), run_of("flat", 0.5, Deviation(1, 0.2, float("nan"), "wrong")))
OPEN = report_of(
    run_of("manual", comparison=Deviation(3, 1e-15, 1e-15, "rounding")),
    run_of("flat", comparison=Deviation(stopped="rounding")),
)


def test_the_tables():
    for name, report in (("right", RIGHT), ("wrong", WRONG), ("open", OPEN)):
        golden(GOLDEN / f"{name}.txt", partial(view.train_view, report))
        assert report.ok is (name == "right")


# ------------------------------------------------------------------------------------- failures


@pytest.mark.processes
def test_a_diverging_training_proves_nothing_and_reports_why(command):
    code, out, err = command(*SHORT, "--lr", "1e300", "--mode", "flat", "--format", "json")
    document = json.loads(out)
    assert (code, err, document["ok"]) == (1, "", False)
    assert [proof["held"] for proof in document["proofs"]] == [True, None, None]
    assert document["runs"][0]["comparison"]["stopped"] == "diverged"
    assert [error["what"] for error in document["errors"]] == [
        "flat: loss could not be compared.",
        "flat: weights could not be compared.",
    ]


def run_hanging(command):
    """Run the command with a rank 1 that hangs before its first epoch."""
    run_epoch = loop.Training.run_epoch
    loop.Training.run_epoch = lambda training: (  # type: ignore[method-assign, assignment]  # only in this process
        signal.pause() if dist.get_rank() == 1 else run_epoch(training)
    )
    return command(*SHORT, "--mode", "flat", "--stall", "3", "--format", "json")


@pytest.mark.processes
def test_a_rank_that_hangs_is_named(command):
    code, out, _ = in_a_child(run_hanging, command)
    (error,) = json.loads(out)["errors"]
    assert (code, error["ranks"]) == (1, [1])


@pytest.mark.processes
@pytest.mark.usefixtures("no_rank_starts")
def test_invalid_options_are_rejected_before_any_rank_starts(command):
    for line, first in (
        ("--lr 0", "--lr 0: out of range."),
        ("--batch-size 2 -n 4", "--batch-size 2 is less than one sample per rank."),
        ("--batch-size 1000000", "--batch-size 1000000 is larger than the data set."),
    ):
        code, out, err = command("train", *line.split())
        assert (code, out) == (2, ""), line
        assert err.startswith(first), line


@pytest.mark.processes
def test_ranks_of_an_engine_train_together_and_rank_0_writes(start):
    asked = ["train", "--epochs", "1", "--mode", "flat", "--format", "json"]
    (code, out, err), second = [run.finish() for run in start.by_hand("distdemo", *asked)]
    assert second == (0, "", "")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["world"]["engine"] == "environment"
    assert all(proof["held"] for proof in document["proofs"])
