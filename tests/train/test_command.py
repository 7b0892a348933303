"""``distdemo train`` as a user runs it: views, files and exit codes."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch.distributed as dist
from forked import run_command
from golden import golden
from helpers import run_joined

from distdemo.launcher.records import Returned, WorldReport, WorldSpec
from distdemo.train import loop, view
from distdemo.train.data import generate
from distdemo.train.proofs import prove
from distdemo.train.records import Deviation, Epoch, Run, TrainReport, TrainSpec, TrainTask

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
        run = replace(run, collectives_per_step=2, bytes_per_step=38_440, communication_s=1.2)
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


def drawn_twice():
    return [view.plot(RIGHT, Path("curves.svg")) for _ in range(2)]


@pytest.mark.processes
@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")
def test_the_plot_is_the_same_each_time(warm):
    one, other = warm(drawn_twice)
    assert one == other
    assert b"manual" in one


# ------------------------------------------------------------------------------------- failures


@pytest.mark.processes
def test_a_diverging_training_proves_nothing_and_reports_why(warm):
    code, out, err = warm(
        run_command, *SHORT, "--lr", "1e300", "--mode", "flat", "--format", "json"
    )
    found = json.loads(out)
    assert (code, err, found["ok"]) == (1, "", False)
    assert [proof["held"] for proof in found["proofs"]] == [True, None, None]
    assert found["runs"][0]["comparison"]["stopped"] == "diverged"
    whats = [error["what"] for error in found["errors"]]
    assert whats == [f"flat: {claim} could not be compared." for claim in ("loss", "weights")]


def run_hanging(*line):
    """Run the command with a rank 1 that hangs before its first epoch."""
    run_epoch = loop.Training.run_epoch
    loop.Training.run_epoch = lambda training: (  # type: ignore[method-assign, assignment]  # only in this process
        signal.pause() if dist.get_rank() == 1 else run_epoch(training)
    )
    return run_command(*SHORT, "--mode", "flat", *line)


@pytest.mark.processes
def test_a_rank_that_hangs_is_named_and_no_file_is_written(warm, tmp_path):
    kept = tmp_path / "curves.svg"
    kept.write_text("an older one")
    line = ("--stall", "3", "--plot", str(kept), "--format", "json")
    code, out, _ = warm(run_hanging, *line)
    assert code == 1
    (error,) = json.loads(out)["errors"]
    assert error["ranks"] == [1]
    assert kept.read_text() == "an older one"


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


# ------------------------------------------------------------------------------------- the data


def test_generated_data_depends_on_the_seed_only():
    train, test = generate(7)
    for part, same in zip((train, test), generate(7), strict=True):
        assert (part.inputs == same.inputs).all()
        assert (part.labels == same.labels).all()
    assert (train.inputs != generate(8)[0].inputs).any()
    assert set(train.labels.tolist()) == set(range(10))
    assert train.inputs.shape == (len(train.labels), 16)


@pytest.mark.processes
def test_ranks_of_an_engine_train_together_and_rank_0_writes(warm, tmp_path):
    asked = ["train", "--epochs", "1", "--mode", "flat", "--format", "json"]
    (code, out, err), second = warm(run_joined, asked, tmp_path)
    assert second == (0, "", "")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["world"]["engine"] == "environment"
    assert all(proof["held"] for proof in document["proofs"])
