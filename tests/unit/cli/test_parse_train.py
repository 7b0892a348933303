"""From the flags of ``train`` to what is trained, and what is refused before any rank starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distdemo.cli import files, options
from distdemo.errors import UsageError
from distdemo.train import parse_train
from distdemo.train.generated import generate
from distdemo.train.parse_train import OUTER_LIMIT, TrainRequest
from distdemo.train.records import TrainSpec

DEFAULTS: dict[str, Any] = {name: options.ALL[name][1] for name in options.TRAIN}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No engine has started this process."""
    monkeypatch.setattr("os.environ", {})


def request(**flags: Any) -> TrainRequest:
    """What ``distdemo train`` makes of these flags."""
    assert set(flags) <= set(DEFAULTS)
    return parse_train.parse_train(DEFAULTS | flags)


def refused(**flags: Any) -> UsageError:
    """The refusal, which has three lines: what, why and what to try."""
    with pytest.raises(UsageError) as caught:
        request(**flags)
    error = caught.value
    for line in (error.what, error.why, error.hint):
        assert line.strip()
        assert "\n" not in line
    return error


def test_by_default_all_modes_are_compared_on_four_ranks() -> None:
    asked = request()
    assert asked.spec == TrainSpec()
    assert asked.spec.mode == "compare"
    assert (asked.world.world_size, asked.world.backend) == (4, "gloo")
    assert (asked.plot, asked.trace) == (None, None)


def test_everything_is_taken_over(tmp_path: Path) -> None:
    asked = request(
        mode="ddp",
        epochs="7",
        batch_size="96",
        learning_rate="0.05",
        momentum="0",
        hidden="32",
        bucket_mb="0.5",
        train_seed="9",
        dataset="DIGITS",
        partition="sampler",
        plot=str(tmp_path / "curves.SVG"),
        trace=str(tmp_path / "trace.json"),
        start="3",
        start_method="spawn",
        format="json",
        quiet=True,
        traceback=True,
    )
    wanted = TrainSpec("ddp", "digits", "", "sampler", 7, 96, 0.05, 0.0, 32, 9, 0.5, trace=True)
    assert asked.spec == wanted
    assert (asked.plot, asked.trace) == (tmp_path / "curves.SVG", tmp_path / "trace.json")
    assert (asked.world.world_size, asked.world.start_method) == (3, "spawn")
    assert (asked.view.format, asked.view.quiet, asked.view.traceback) == ("json", True, True)
    assert asked.settings == {
        "timeout": 30,
        "plot": str(tmp_path / "curves.SVG"),
        "trace": str(tmp_path / "trace.json"),
    }
    assert list(tmp_path.iterdir()) == [], "trying whether a file can be written leaves none"


def test_a_folder_of_data_means_mnist() -> None:
    assert request(data_dir="some/folder").spec.dataset == "mnist"
    assert request(data_dir="some/folder").spec.data_dir == "some/folder"


def test_a_training_may_last_as_long_as_it_moves() -> None:
    asked = request()
    assert (asked.world.deadline, asked.world.stall) == (30, 30)
    assert (asked.training_world.deadline, asked.training_world.stall) == (OUTER_LIMIT, 30)
    asked = request(stall_timeout="5s")
    assert (asked.world.stall, asked.training_world.deadline) == (5, OUTER_LIMIT)
    assert request(start="200", batch_size="400").world.stall == pytest.approx(60)


@pytest.mark.parametrize(
    ("flags", "what", "hint"),
    [
        ({"mode": "dpp"}, "'dpp'", "--mode ddp"),
        ({"dataset": "digit"}, "'digit'", "--dataset digits"),
        ({"partition": "sample"}, "'sample'", "--partition sampler"),
        ({"epochs": "0"}, "--epochs 0", "--epochs"),
        ({"epochs": "many"}, "--epochs many", "--epochs 5"),
        ({"batch_size": "3"}, "--batch-size 3", "--batch-size"),
        ({"batch_size": "1.5"}, "--batch-size 1.5", "--batch-size"),
        ({"hidden": "-1"}, "--hidden -1", "--hidden"),
        ({"epochs": "1000000000"}, "--epochs 1000000000", "--epochs 100000"),
        ({"learning_rate": "0"}, "--lr 0", "--lr 0.1"),
        ({"learning_rate": "nan"}, "--lr nan", "--lr 0.1"),
        ({"learning_rate": "inf"}, "--lr inf", "--lr 0.1"),
        ({"learning_rate": "quick"}, "--lr quick", "--lr 0.1"),
        ({"momentum": "1"}, "--momentum 1", "--momentum 0."),
        ({"momentum": "x"}, "--momentum x", "--momentum 0."),
        ({"bucket_mb": "0"}, "--bucket-mb 0", "--bucket-mb"),
        ({"bucket_mb": "big"}, "--bucket-mb big", "--bucket-mb 0."),
        ({"bucket_mb": "1", "mode": "flat"}, "--bucket-mb means nothing", "--mode ddp"),
        ({"train_seed": "-1"}, "--seed -1", "--seed 1234"),
        ({"train_seed": "x"}, "--seed x", "--seed 1234"),
        ({"dataset": "mnist"}, "--data-dir", "folder"),
        ({"data_dir": ""}, "--data-dir '': that names nothing", "--data-dir ~/mnist"),
        ({"partition": ""}, "''", "--partition"),
        ({"mode": ""}, "''", "--mode"),
        ({"plot": ""}, "--plot '': that names nothing", "--plot plot.png"),
        ({"trace": " "}, "--trace '': that names nothing", "--trace trace.json"),
        ({"dataset": "digits", "data_dir": "."}, "--data-dir", "Try"),
        ({"stall_timeout": "0"}, "--timeout 0", "--timeout 30"),
        ({"start": "0"}, "--world-size 0", "--world-size 2"),
        ({"backend": "nccl"}, "--backend nccl needs a GPU", "--backend gloo"),
        ({"format": "jsn"}, "'jsn'", "--format json"),
        ({"plot": "curves"}, "--plot curves", "--plot curves.png"),
        ({"plot": "curves.gif"}, "--plot curves.gif", "--plot curves.png"),
        ({"plot": "-"}, "--plot -", "--plot"),
        ({"plot": "no/such/folder/c.png"}, "can't be written", "--plot plot.png"),
        ({"trace": "no/such/folder/t.json"}, "can't be written", "--trace trace.json"),
        ({"trace": "-"}, "--trace -", "--trace trace.json"),
        ({"trace": "/"}, "can't be written", "--trace trace.json"),
        ({"plot": "./a.png", "trace": "a.png"}, "both name ./a.png", "--trace trace.json"),
    ],
    ids=str,
)
def test_it_is_refused_with_what_why_and_what_to_try(
    flags: dict[str, Any], what: str, hint: str
) -> None:
    error = refused(**flags)
    assert what in error.what
    assert hint in error.hint


def test_a_plot_without_matplotlib_is_refused_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without: Callable[[str], None] = lambda _: None  # noqa: E731 - as short as what it stands for
    monkeypatch.setattr(files, "find_spec", without)
    assert "pip install 'distdemo[plot]'" in refused(plot="curves.png").hint
    elsewhere = {"nnodes": "2", "node_rank": "1", "master": "127.0.0.1:29500"}
    assert request(plot="curves.png", **elsewhere).plot is None, "node 0 draws it"


def test_the_machine_has_to_hold_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distdemo.launcher.limits._available", lambda: 45 * 2**20)
    assert "5 ranks" in refused(start="5").what


def test_the_machine_has_to_hold_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distdemo.train.parse_train.free_memory", lambda: 2**30)
    request().check_memory(generate(1))
    with pytest.raises(UsageError, match="--hidden 99999999999 does not fit"):
        request(hidden="99999999999").check_memory(generate(1))


@pytest.mark.parametrize(("rank", "writes"), [("0", True), ("1", False)])
def test_in_a_world_of_others_rank_0_alone_writes_the_files(
    rank: str, writes: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    monkeypatch.setattr("os.environ", engine)
    folder = tmp_path if writes else tmp_path / "another host's"
    asked = request(trace=str(folder / "trace.json"))
    assert (asked.trace is not None) == writes
    assert asked.spec.trace, "every rank keeps what it did"
    assert asked.world.world_size == 2
    assert asked.seat is not None
