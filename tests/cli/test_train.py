"""``distdemo train`` as a user runs it: its views, its files, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
from dataclasses import replace

import pytest
import torch.distributed as dist
from helpers import commanded, wait_until
from trace_format import problems, threads

from distdemo.train import loop
from distdemo.train.records import Progress
from distdemo.train.run_train import _now

SHORT = ["train", "-n", "2", "--epochs", "2"]


@pytest.fixture
def no_rank(monkeypatch):
    """Starting a rank fails the test."""

    def start(*_):
        pytest.fail("a rank was started")

    monkeypatch.setattr("distdemo.launcher.crew.Crew.start", start)


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


def test_all_modes_are_compared_and_written_down(command, tmp_path):
    plot, trace = tmp_path / "curves.svg", tmp_path / "trace.json"
    files = ["--plot", str(plot), "--trace", str(trace)]
    code, out, err = command(*SHORT, *files, "--format", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["ok"] is True
    assert found["spec"]["timeout"] == found["world"]["timeout"] == 30
    assert [found["spec"][name] for name in ("plot", "trace")] == [str(plot), str(trace)]
    assert [run["mode"] for run in found["runs"]] == ["manual", "flat", "ddp"]
    assert all(proof["held"] for proof in found["proofs"])
    assert found["reference"]["mode"] == "single"
    for run in found["runs"]:
        losses = [epoch["loss"] for epoch in run["epochs"]]
        assert losses[1] < losses[0]
        assert losses == pytest.approx([each["loss"] for each in found["reference"]["epochs"]])
        assert 0 < run["communication_seconds"] < run["seconds"] < found["seconds"]
        assert 0 <= run["overlapped_seconds"] <= run["communication_seconds"]
    manual, flat, ddp = (run["collectives_per_step"] for run in found["runs"])
    assert manual > ddp > flat == 1
    assert plot.read_text(encoding="utf-8").startswith("<?xml")
    check_trace(json.loads(trace.read_text(encoding="utf-8")), found)


def check_trace(document, found):
    """A valid one, with a process a rank, and every step of every mode in each."""
    assert problems(document) == []
    tracks = threads(document)
    assert list(tracks) == ["rank 0", "rank 1"]
    for names in tracks.values():
        assert names[:2] == ["compute", "communication"]
    steps = {
        (event["pid"], event["args"]["mode"], event["args"]["step"])
        for event in document["traceEvents"]
        if event["ph"] == "X" and event["name"] == "backward"
    }
    wanted = sum(run["steps"] for run in found["runs"])
    assert len([step for step in steps if step[1] != "single"]) == 2 * wanted


def test_a_table_shows_one_mode_beside_one_process(command):
    code, out, err = command(*SHORT, "--mode", "flat", "--partition", "sampler")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("train · flat · 2 ranks · gloo")
    assert next(line for line in lines if "Epoch" in line).split("│")[2:4] == [
        "        single ",
        "          flat ",
    ]
    assert "✗" not in out
    assert "✓ All 3 proofs hold: flat trained as one process" in " ".join(out.split())


def test_quiet_is_the_verdict_alone(command):
    code, out, err = command(*SHORT, "--mode", "manual", "--quiet", "--seed", "3")
    assert (code, err) == (0, "")
    assert out.startswith("✓ All 3 proofs hold: manual")
    assert len(out.splitlines()) <= 2


# ------------------------------------------------------------------------------------- failures


def test_a_training_that_diverges_proves_nothing_and_says_why(command, tmp_path):
    trace = tmp_path / "trace.json"
    wild = (*SHORT, "--lr", "5", "--mode", "flat", "--trace", str(trace))
    code, out, err = command(*wild, "--format", "json")
    found = json.loads(out)
    assert (code, err, found["ok"]) == (1, "", False)
    assert [proof["held"] for proof in found["proofs"]] == [True, None, None]
    (error,) = found["errors"]
    assert "neither proved nor refuted" in error["what"]
    assert "magnifies rounding errors" in error["why"]
    assert error["hint"] == "Try a smaller --lr."
    assert found["runs"][0]["weight_difference"] is None
    assert trace.exists()
    code, out, err = command(*wild, "-q")
    assert (code, err) == (1, "")
    assert out.startswith("? That flat trains as one process does is neither proved nor refuted")


def test_a_replica_that_goes_its_own_way_is_found(command, broken):
    def nudge(training):
        training.optimizer.param_groups[0]["params"][0].data[0] += 1e-9

    broken(nudge)
    code, out, err = command(*SHORT, "--mode", "flat", "--format", "json")
    found = json.loads(out)
    assert (code, err, found["ok"]) == (1, "", False)
    assert found["errors"][0]["what"].startswith("flat: all replicas")
    assert not found["runs"][0]["epochs"][0]["replicas_identical"]


def test_a_rank_that_fails_is_named_and_no_file_is_written(command, broken, tmp_path):
    def give_up(_):
        raise RuntimeError("no more")

    broken(give_up)
    kept = tmp_path / "trace.json"
    kept.write_text("an older one")
    code, out, _ = command(*SHORT, "--mode", "flat", "--trace", str(kept))
    assert code == 1
    assert "Rank 1" in out.splitlines()[0]
    assert "no more" in out
    assert kept.read_text() == "an older one"


def test_a_rank_that_hangs_is_found_long_before_the_outer_limit(command, broken):
    def wait(_):
        signal.pause()

    broken(wait)
    code, out, _ = command(*SHORT, "--mode", "flat", "--timeout", "1", "--format", "json")
    assert code == 1
    (error,) = json.loads(out)["errors"]
    assert "No progress for 1 s" in error["what"] + error["why"]
    assert 1 in error["ranks"]


def test_a_file_that_can_not_be_written_in_the_end_costs_no_result(command):
    code, out, err = command(*SHORT, "--mode", "flat", "--trace", "/dev/full")
    assert code == 1
    assert "✓ All 3 proofs hold" in out
    assert "--trace /dev/full: that could not be written." in err


@pytest.mark.usefixtures("no_rank")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train --mode dpp", ["--mode ddp"]),
        ("train --epochs 0", ["--epochs 0"]),
        ("train --hidden 99999999999", ["--hidden 99999999999 does not fit", "Try --hidden "]),
        ("train --trace=", ["--trace '': that names nothing"]),
        ("train --batch-size 2 -n 4", ["--batch-size 2"]),
        ("train --batch-size 1000000", ["--batch-size 1000000", "Try --batch-size 2000."]),
        ("train --data-dir no/such/folder", ["no/such/folder"]),
        ("train --plot curves.txt", ["--plot curves.png"]),
        ("train --trace no/such/folder/t.json", ["can't be written"]),
        ("train --plot a.png --trace a.png", ["both name a.png"]),
        ("train --root 1", ["--root means nothing to train"]),
        ("train --backend nccl", ["needs a GPU"]),
    ],
)
def test_what_can_not_be_trained_is_refused_before_any_rank_starts(
    line, words, command, monkeypatch
):
    monkeypatch.setattr("distdemo.backends.gpus_in_sight", lambda: False)
    code, out, err = command(*line.split())
    assert (code, out) == (2, "")
    assert len(err.splitlines()) >= 3
    for word in words:
        assert word in " ".join(err.split())


def test_what_the_bar_says_fits_beside_it():
    longest = Progress("manual", 100_000, 1, 1, 1.234e300, 0.96789)
    assert _now(Progress("ddp", 3, 1, 20, 0.1284, 0.966), 5) == "ddp 3/5, loss 0.13, 97%"
    assert len(_now(replace(longest, epoch=999), 1000)) <= 36


# ----------------------------------------------------------------------------------- as processes


def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path):
    temporary, files = tmp_path / "tmp", tmp_path / "files"
    temporary.mkdir()
    files.mkdir()
    long = ["train", "-n", "2", "--epochs", "100000", "--trace", str(files / "trace.json")]
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
    trace = tmp_path / "trace.json"
    asked = ["train", "--epochs", "1", "--trace", str(trace), "--format", "json"]
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
        assert wait_until(lambda: second.process.poll() is not None)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["world"]["launcher"] == "environment"
    assert all(proof["held"] for proof in found["proofs"])
    check_trace(json.loads(trace.read_text(encoding="utf-8")), found)
