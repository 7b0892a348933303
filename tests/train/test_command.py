"""``distdemo train`` as a user runs it: its views, its files, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import torch.distributed as dist
from golden import golden
from helpers import commanded

from distdemo.launcher.records import Returned, WorldReport, WorldSpec
from distdemo.train import loop, view
from distdemo.train.data import generate, read_data
from distdemo.train.plot import plot
from distdemo.train.records import Comparison, Epoch, Run, Task, TrainReport, TrainSpec
from distdemo.train.report import prove

SHORT = ["train", "-n", "2", "--epochs", "2"]
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def broken(monkeypatch):
    """Makes rank 1 do something before each of its epochs, in what ranks are forked from."""

    def made(trouble):
        run_epoch = loop.Training.run_epoch

        def troubled(training):
            if dist.get_rank() == 1:
                trouble(training)
            return run_epoch(training)

        monkeypatch.setattr(loop.Training, "run_epoch", troubled)

    return made


# ------------------------------------------------------------------------------------- its views


def run_of(mode, slip=0.0, comparison=None, ranks=4, epochs=12):
    sums = ("abc123",) * (1 if mode == "single" else ranks)
    each = [Epoch(2.3 / (at + 1) + slip, 1 - 0.5 / (at + 1), 0.25, sums) for at in range(epochs)]
    if slip:
        each[-1] = replace(each[-1], checksums=("ffffff", *sums[1:]))
    talks = mode != "single"
    per_step = {"manual": 4, "flat": 1, "ddp": 2}.get(mode, 0)
    return Run(
        mode,
        tuple(each),
        steps=12 * epochs,
        collectives_per_step=per_step,
        collectives_in_first_step=1 if mode == "ddp" else per_step,
        bytes_per_step=38_440 * talks,
        communication_s=1.2 * talks,
        overlapped_s=0.4 * (mode == "ddp"),
        comparison=comparison or (Comparison(epochs, 3.4e-7, 1.2e-7) if talks else None),
    )


def made(*runs):
    outcomes = tuple(Returned(rank=rank) for rank in range(4))
    mode = "compare" if len(runs) > 1 else runs[0].mode
    return TrainReport(
        TrainSpec(mode=mode, epochs=12, batch_size=126),
        WorldReport(WorldSpec(4), outcomes, None, 1.5, "fork", "it is quick"),
        Task("generated points", 1536, 512, 16, 10, 1738, 31, 12),
        run_of("single"),
        runs,
        tuple(proof for run in runs for proof in prove(run)),
        versions={"distdemo": "1.2.3", "torch": "2.13"},
    )


RIGHT = made(run_of("manual"), run_of("flat"), run_of("ddp"))
WRONG = made(run_of("manual"), run_of("flat", 0.5, Comparison(1, 0.2, float("nan"), "wrong")))
OPEN = made(run_of("flat", comparison=Comparison(stopped="rounding")))
PART = made(run_of("flat", comparison=Comparison(3, 1e-15, 1e-15, "rounding")))


@pytest.mark.parametrize("name", ["RIGHT", "WRONG", "OPEN", "PART"])
def test_the_table(name):
    report = globals()[name]
    golden(GOLDEN / f"{name.lower()}.txt", lambda console: view.table(report, console))
    assert report.ok is (name in ("RIGHT", "PART"))


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="needs matplotlib")
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_plot_is_the_same_each_time(ending):
    picture = plot(RIGHT, Path(f"curves.{ending}"))
    assert picture == plot(RIGHT, Path(f"curves.{ending}"))
    if ending == "svg":
        assert b"DistributedDataParallel" in picture


def test_all_modes_are_compared_and_written_down(command, tmp_path):
    timeline = tmp_path / "timeline.json"
    code, out, err = command(*SHORT, "--timeline", str(timeline), "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["ok"], found["errors"]) == (True, [])
    assert [run["mode"] for run in found["runs"]] == ["manual", "flat", "ddp"]
    assert all(proof["held"] for proof in found["proofs"])
    for run in found["runs"]:
        losses = [epoch["loss"] for epoch in run["epochs"]]
        assert losses == pytest.approx([each["loss"] for each in found["reference"]["epochs"]])
    check_timeline(json.loads(timeline.read_text(encoding="utf-8")), found)


def check_timeline(document, found):
    """As Perfetto reads it: a process a rank, and in no thread do spans overlap."""
    events = document["traceEvents"]
    named = [each["args"]["name"] for each in events if each["name"] == "process_name"]
    assert named == ["rank 0", "rank 1"]
    spans = [each for each in events if each["ph"] == "X"]
    threads = {each["tid"] for each in spans}
    assert threads == {each["tid"] for each in events if each["name"] == "thread_name"}
    for thread in threads:
        own = sorted((each["ts"], each["dur"]) for each in spans if each["tid"] == thread)
        for (start, lasts), (following, _) in pairwise(own):
            assert start + lasts <= following + 1e-3  # a nanosecond
    backward = [each for each in spans if each["name"] == "backward"]
    steps = sum(run["steps"] for run in found["runs"])
    assert len([each for each in backward if each["args"]["mode"] != "single"]) == 2 * steps
    assert min(each["ts"] for each in spans) == 0


def test_quiet_is_the_verdict_alone(command):
    code, out, err = command(*SHORT, "--mode", "manual", "--quiet", "--seed", "3")
    assert (code, err) == (0, "")
    assert out.startswith("✓ All 3 proofs hold: manual")
    assert len(out.splitlines()) <= 2


# ------------------------------------------------------------------------------------- failures


def test_a_training_that_diverges_proves_nothing_and_says_why(command):
    code, out, err = command(*SHORT, "--lr", "1e300", "--mode", "flat", "--format", "json")
    found = json.loads(out)
    assert (code, err, found["ok"]) == (1, "", False)
    assert [proof["held"] for proof in found["proofs"]] == [True, None, None]
    assert found["runs"][0]["comparison"]["stopped"] == "diverged"
    whats = [error["what"] for error in found["errors"]]
    assert whats == [f"flat: {claim} could not be compared." for claim in ("loss", "weights")]


def test_a_rank_that_fails_is_named_and_no_file_is_written(command, broken, tmp_path):
    def give_up(_):
        raise RuntimeError("no more")

    broken(give_up)
    kept = tmp_path / "timeline.json"
    kept.write_text("an older one")
    code, out, _ = command(*SHORT, "--mode", "flat", "--timeline", str(kept))
    assert code == 1
    assert "Rank 1" in out.splitlines()[0]
    assert "no more" in out
    assert kept.read_text() == "an older one"


def test_a_rank_that_hangs_is_found_long_before_the_outer_limit(command, broken):
    broken(lambda _: signal.pause())
    code, out, _ = command(*SHORT, "--mode", "flat", "--stall", "1", "--format", "json")
    assert code == 1
    (error,) = json.loads(out)["errors"]
    assert error["ranks"] == [1]


REFUSED = [
    ("--mode dpp", "--mode dpp: there is no such choice."),
    ("--epochs 0", "--epochs 0: at least 1 is needed."),
    ("--lr 0", "--lr 0 can't be used."),
    ("--lr nan", "--lr nan can't be used."),
    ("--momentum 1", "--momentum 1 can't be used."),
    ("--bucket-mib 0", "--bucket-mib 0 can't be used."),
    ("--hidden 99999999999", "The tensors of 4 ranks need"),
    ("--batch-size 2 -n 4", "--batch-size 2 is less than one sample a rank."),
    ("--batch-size 1000000", "--batch-size 1000000 is more than the data holds."),
    ("--data-dir here --dataset digits", "--dataset mnist and --data-dir go together."),
    ("--plot curves.txt", "--plot curves.txt: this ending is not known."),
    ("--timeline no/such/folder/t.json", "--timeline no/such/folder/t.json: that can't be"),
]


@pytest.mark.usefixtures("no_rank_starts")
@pytest.mark.parametrize(("line", "first"), REFUSED, ids=[line for line, _ in REFUSED])
def test_what_can_not_be_trained_is_refused_before_any_rank_starts(line, first, command):
    code, out, err = command("train", *line.split())
    assert (code, out) == (2, "")
    assert err.startswith(first)


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is here")
def test_mnist_without_torchvision_is_refused_with_what_to_install(command, tmp_path):
    code, out, err = command("train", "--data-dir", str(tmp_path))
    assert (code, out) == (2, "")
    assert "pip install 'distdemo[mnist]'" in err


@pytest.mark.skipif(find_spec("torchvision") is None, reason="needs torchvision")
def test_a_folder_without_mnist_is_refused(command, tmp_path):
    code, out, err = command("train", "--data-dir", str(tmp_path))
    assert (code, out) == (2, "")
    assert "there is no MNIST" in err


# ------------------------------------------------------------------------------------- the data


def test_generated_data_is_that_of_its_seed():
    train, test = generate(7)
    assert (train, test) == generate(7)
    assert train.inputs != generate(8)[0].inputs
    assert set(train.labels) == set(range(10))
    assert len(train.inputs) == len(train) * 16


@pytest.mark.skipif(find_spec("sklearn") is None, reason="needs scikit-learn")
def test_digits_are_those_of_scikit_learn_and_no_sample_is_in_both_parts():
    data = read_data(TrainSpec(dataset="digits"))
    assert (len(data.train), len(data.test)) == (1438, 359)
    train, test = (
        {part.inputs[start : start + 64] for start in range(0, len(part.inputs), 64)}
        for part in (data.train, data.test)
    )
    assert len(train) == 1438
    assert not train & test


# ----------------------------------------------------------------------------------- as processes


def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path):
    temporary, files = tmp_path / "tmp", tmp_path / "files"
    temporary.mkdir()
    files.mkdir()
    long = ["train", "-n", "2", "--epochs", "100000", "--timeline", str(files / "timeline.json")]
    with commanded(long, temporary) as run:
        run.ranks(2)
        os.kill(run.process.pid, signal.SIGINT)
        code, out, err = run.finish()
        run.leaves_nothing()
    assert (code, out) == (130, "")
    assert err.startswith("Interrupted.")
    assert list(files.iterdir()) == []


def test_ranks_that_others_started_train_together_and_rank_0_writes(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    timeline = tmp_path / "timeline.json"
    asked = ["train", "--epochs", "1", "--timeline", str(timeline), "--format", "json"]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    temporary = [tmp_path / "0", tmp_path / "1"]
    for folder in temporary:
        folder.mkdir()
    with (
        commanded(asked, temporary[0], env={**where, "RANK": "0"}) as first,
        commanded(asked, temporary[1], env={**where, "RANK": "1"}) as second,
    ):
        code, out, err = first.finish()
        assert second.finish() == (0, "", "")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["world"]["engine"] == "environment"
    assert all(proof["held"] for proof in found["proofs"])
    check_timeline(json.loads(timeline.read_text(encoding="utf-8")), found)
