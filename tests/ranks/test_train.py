"""Trainings on real ranks: right ones prove all they claim, broken ones are found out."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import active_children
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist

from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.train.averaging import Averaging
from distdemo.train.main import train
from distdemo.train.manual import manual
from distdemo.train.prepare import preload, prepare
from distdemo.train.records import MODES, Progress, TrainReport, TrainSpec
from distdemo.train.report import report
from distdemo.train.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable

    from distdemo.train.averaging import Way

SMALL = TrainSpec(epochs=2, batch_size=240)
"""8 steps of 2000 samples each, the same for 1, 2, 3 and 4 ranks."""


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    preload()


def trained(
    spec: TrainSpec, ranks: int, hear: Callable[[int, Any], None] | None = None
) -> TrainReport:
    data = prepare(spec, ranks)
    world = WorldSpec(ranks, deadline=60, lazy=True)
    return report(spec, run_world(world, train, (spec, data), hear=hear), data)


@pytest.mark.parametrize("mode", ["single", "manual"])
def test_a_rank_that_stands_still_is_named_whatever_is_trained(mode):
    """Rank 0 trains the reference while the others wait: it is not ahead of them for that."""
    spec = replace(SMALL, mode="manual", epochs=100)
    data = prepare(spec, 2)
    world = WorldSpec(2, deadline=60, stall=1.5, lazy=True, start_method="fork")
    stopped: list[int] = []

    def stop(_: int, told: Progress | None) -> None:
        if told is not None and told.mode == mode and not stopped:
            stopped.extend(each.pid or 0 for each in active_children() if each.name == "rank-0")
            os.kill(stopped[0], signal.SIGSTOP)

    found = run_world(world, train, (spec, data), hear=stop).verdict
    assert found is not None
    assert found.ranks == (0,), found


def proofs_that_failed(result: TrainReport) -> list[str]:
    return [f"{proof.claim}: {proof.found}" for proof in result.proofs if proof.held is False]


# ---------------------------------------------------------------------------------------- right


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_all_modes_prove_what_they_claim(ranks):
    told: list[tuple[int, Progress]] = []
    partition = "sampler" if ranks % 2 else "shuffle"
    spec = replace(SMALL, partition=partition, trace=True)
    result = trained(spec, ranks, lambda rank, value: told.append((rank, value)))
    assert result.ok, (result.world.verdict, proofs_that_failed(result))
    assert len(result.proofs) == 10
    assert [run.mode for run in result.runs] == list(MODES)
    assert [run.collectives for run in result.runs] == [4, 1, 2]
    assert [run.first_collectives for run in result.runs[:2]] == [4, 1]
    assert 1 <= result.runs[2].first_collectives <= 2, "torch may group anew after the first step"
    assert {run.step_bytes for run in result.runs} == {1738 * 8}
    assert {run.steps for run in result.runs} == {16}
    assert all(epoch.alike for run in result.runs for epoch in run.epochs)
    assert all(len(epoch.checksums) == ranks for run in result.runs for epoch in run.epochs)
    assert_progress([(rank, value) for rank, value in told if value is not None])
    assert_times(result)
    assert_spans(result, ranks)
    if ranks > 1:
        assert result.world.start_method == "fork"


def assert_progress(told):
    assert {rank for rank, _ in told} == {0}
    assert [value.done for _, value in told] == list(range(1, 9))
    assert {value.total for _, value in told} == {8}
    assert [value.mode for _, value in told[::2]] == ["single", *MODES]


def assert_times(result):
    for run in result.runs:
        assert 0 < run.communication <= run.seconds
        assert 0 <= run.overlapped <= run.communication
    overlapped = {run.mode: run.overlapped for run in result.runs}
    assert overlapped["manual"] == overlapped["flat"] == 0 < overlapped["ddp"]


def assert_spans(result, ranks):
    assert {span.rank for span in result.spans} == set(range(ranks))
    assert result.spans[0].start == 0
    assert all(span.seconds >= 0 for span in result.spans)
    starts = [span.start for span in result.spans]
    assert starts == sorted(starts)
    for run in result.runs:
        last = [s for s in result.spans if s.mode == run.mode and s.rank == 0 and s.step == 15]
        sizes = [span.size for span in last if span.track == "communication"]
        assert len(sizes) == run.collectives
        assert sum(sizes) == run.step_bytes
        names = [span.name for span in last if span.track == "compute"]
        assert names == ["forward", "backward", "optimizer step"]


def test_one_mode_alone_is_compared_with_the_reference_and_what_is_dropped_is_said():
    result = trained(replace(SMALL, mode="ddp", epochs=1, batch_size=200, bucket_mb=25.0), 3)
    assert result.ok, proofs_that_failed(result)
    assert [run.collectives for run in result.runs] == [1]
    assert len(result.proofs) == 3
    assert any("198 samples, not 200" in note for note in result.notes)
    assert result.spans == ()


@pytest.mark.skipif(
    find_spec("sklearn") is None, reason="needs scikit-learn: pip install 'distdemo[digits]'"
)
@pytest.mark.parametrize("seed", [1234, 2])
def test_digits_are_learned(seed):
    result = trained(TrainSpec(mode="flat", dataset="digits", seed=seed), 2)
    assert result.ok, proofs_that_failed(result)
    assert result.runs[0].epochs[-1].accuracy >= 0.95


def test_generated_points_are_learned_but_not_at_once():
    result = trained(TrainSpec(mode="flat"), 2)
    accuracies = [epoch.accuracy for epoch in result.runs[0].epochs]
    assert accuracies[-1] >= 0.95 > accuracies[0]
    losses = [epoch.loss for epoch in result.runs[0].epochs]
    assert losses == sorted(losses, reverse=True)


def test_a_training_that_magnifies_rounding_is_compared_as_long_as_that_makes_sense():
    spec = TrainSpec(mode="flat", dataset="generated", learning_rate=2.0, epochs=6)
    result = trained(spec, 2)
    assert result.ok, proofs_that_failed(result)
    assert 0 < result.comparable < 6
    assert any("magnifies rounding errors" in note for note in result.notes)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (replace(SMALL, learning_rate=1e308), "the training diverges"),  # its loss is no number
        (replace(SMALL, learning_rate=1e300), "the training diverges"),  # it is absurd
        # rounding grows in the first epoch
        (TrainSpec(epochs=2, learning_rate=5.0, momentum=0.95), "magnifies rounding errors"),
    ],
    ids=["burst", "absurd", "wild"],
)
def test_a_training_in_which_nothing_can_be_compared_proves_and_refutes_nothing(spec, why):
    result = trained(replace(spec, mode="flat"), 2)
    assert result.world.ok
    assert not result.ok
    assert proofs_that_failed(result) == []
    assert [proof.held for proof in result.proofs] == [True, None, None]
    assert all(why in proof.found for proof in result.open)


# --------------------------------------------------------------------------------------- broken


def gradients(model) -> list[torch.Tensor]:
    return [each.grad for each in model.parameters()]


def by_hand(average) -> Way:
    """A broken ``manual`` or ``flat``: this is done with the gradients."""

    def way(model, ledger, spec):
        def noted():
            with ledger.moving("broken", gradients(model)[0]):
                average(gradients(model))

        return Averaging(model, noted)

    return way


def add_up(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)


def divide(tensors, by):
    for tensor in tensors:
        tensor.div_(by)


def last() -> bool:
    return dist.get_rank() == dist.get_world_size() - 1


def undivided(tensors):
    add_up(tensors)


def nothing(tensors):
    """Every rank goes its own way."""


def rank_left_out(tensors):
    if last():
        divide(tensors, float("inf"))  # it adds zeros
    add_up(tensors)
    divide(tensors, dist.get_world_size() - 1)


def divided_by_one_too_many(tensors):
    add_up(tensors)
    divide(tensors, dist.get_world_size() + 1)


def average_not_taken(tensors):
    own = [tensor.clone() for tensor in tensors]
    add_up(tensors)
    divide(tensors, dist.get_world_size())
    if last():
        for tensor, mine in zip(tensors, own, strict=True):
            tensor.copy_(mine)


def parameter_forgotten(tensors):
    add_up(tensors[:-1])
    divide(tensors[:-1], dist.get_world_size())


def largest_instead(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)


BROKEN = [
    # how, which claims fail, and the rank that is named
    (undivided, ("loss", "weight"), ()),
    (nothing, ("replicas", "loss", "weight"), ()),
    (rank_left_out, ("loss", "weight"), ()),
    (divided_by_one_too_many, ("loss", "weight"), ()),
    (average_not_taken, ("replicas", "loss", "weight"), (2,)),
    (parameter_forgotten, ("replicas", "loss", "weight"), ()),
    (largest_instead, ("loss", "weight"), ()),
]


@pytest.mark.parametrize(
    ("how", "claims", "named"), BROKEN, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_broken_average_is_found_out(how, claims, named, monkeypatch):
    monkeypatch.setitem(WAYS, "manual", by_hand(how))
    result = trained(replace(SMALL, mode="manual", epochs=1), 3)
    assert result.world.ok, result.world.verdict
    assert not result.ok
    told = proofs_that_failed(result)
    assert len(told) == len(claims)
    for claim, text in zip(claims, told, strict=True):
        assert text.startswith("manual: ")
        assert claim in text
    assert {rank for proof in result.proofs for rank in proof.ranks} == set(named)


def test_of_several_modes_the_broken_one_is_named(monkeypatch):
    monkeypatch.setitem(WAYS, "flat", by_hand(undivided))
    result = trained(replace(SMALL, epochs=1), 2)
    told = proofs_that_failed(result)
    assert [text.split(":")[0] for text in told[:2]] == ["flat", "flat"]
    assert "manual, flat and ddp have the same weights" in told[2]
    assert len(told) == 3


@pytest.mark.parametrize("part", ["division", "a rank"])
def test_a_broken_hook_of_ddp_is_found_out(part, monkeypatch):
    original = dist.all_reduce

    def broken(tensor, *, async_op=False):
        if async_op and part == "division":
            tensor *= dist.get_world_size()
        elif async_op and last():
            tensor.zero_()
        return original(tensor, async_op=async_op)

    monkeypatch.setattr("torch.distributed.all_reduce", broken)
    result = trained(replace(SMALL, mode="ddp", epochs=1), 2)
    assert result.world.ok, result.world.verdict
    told = proofs_that_failed(result)
    assert len(told) == 2
    assert all(text.startswith("ddp: ") for text in told)


def test_a_rank_that_sees_samples_of_another_is_found_out(monkeypatch):
    def way(model, ledger, spec):
        if last():  # its gradients are those of other samples: here, of none but a constant
            for parameter in model.parameters():
                parameter.register_hook(lambda gradient: gradient + 1e-3)
        return manual(model, ledger, spec)

    monkeypatch.setitem(WAYS, "manual", way)
    result = trained(replace(SMALL, mode="manual", epochs=1), 2)
    assert len(proofs_that_failed(result)) == 2
