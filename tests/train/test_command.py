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
from distdemo.train.records import Epoch, Run, TrainReport, TrainSpec
from distdemo.view.console import Signs

pytestmark = pytest.mark.usefixtures("compiler")
SHORT = ["train", "-n", "2", "--epochs", "2"]
GOLDEN = Path(__file__).parent / "golden"


# ------------------------------------------------------------------------------------- its views


def run_of(mode, slip=0.0, difference=3.4e-7):
    sums = ("abc123",) * 4
    epochs = [
        Epoch(2.3 / (at + 1) + slip, 1 - 0.5 / (at + 1), 0.25, sums, difference, difference / 3)
        for at in range(12)
    ]
    if slip:
        epochs[-1] = replace(epochs[-1], checksums=("ffffff", *sums[1:]))
    run = Run(mode, tuple(epochs), 144)
    if mode != "single":
        run = replace(run, collectives_per_step=2, bytes_per_step=38_440)
    return run


def report_of(*runs):
    outcomes = tuple(Returned(rank=rank) for rank in range(4))
    mode = "compare" if len(runs) > 1 else runs[0].mode
    return TrainReport(
        TrainSpec(mode=mode, epochs=12),
        WorldReport(WorldSpec(4), outcomes, None, 1.5, "fork", "it is quick"),
        run_of("single"),
        runs,
        tuple(proof for run in runs for proof in prove(run)),
        versions={"distdemo": "1.2.3", "torch": "2.13"},
    )


RIGHT = report_of(run_of("manual"), run_of("flat"), run_of("ddp"))
WRONG = report_of(run_of("manual"), run_of("flat", 0.5, 0.2), run_of("ddp", 0.5, float("nan")))


def test_the_tables():
    for name, report in (("right", RIGHT), ("wrong", WRONG)):
        golden(GOLDEN / f"{name}.txt", partial(view.train_view, report))
        assert report.ok is (name == "right")


def test_the_cost_is_explained_only_where_ranks_are_slower():
    def times(report, time_s):
        epochs = tuple(replace(epoch, time_s=time_s) for epoch in report.reference.epochs)
        return replace(report, reference=replace(report.reference, epochs=epochs))

    for time_s, said in ((0.5, False), (0.25, False), (0.01, True)):
        assert ("4 ranks take 25 times as long:" in drawn(times(RIGHT, time_s))) is said
    alone = replace(RIGHT, world=replace(RIGHT.world, world=WorldSpec(1)))
    assert "nothing to average" in drawn(times(alone, 0.01))
    flat = drawn(report_of(run_of("flat")))
    assert "bucket_cap_mb" not in flat
    assert "float64" in flat


def drawn(report):
    return " ".join(str(getattr(block, "text", "")) for block in view.train_view(report, Signs()))


# ------------------------------------------------------------------------------------- failures


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


@pytest.mark.usefixtures("no_rank_starts")
def test_more_ranks_than_samples_are_rejected(command):
    code, out, err = command("train", "-n", "2001")
    assert (code, out) == (2, "")
    assert err.startswith("--world-size 2001 is too large.")
