"""Trainings on real ranks: right ones prove all they claim, broken ones are found out."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from multiprocessing import active_children
from typing import ClassVar

import pytest
import torch
import torch.distributed as dist

from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.launcher.torch_import import load_compiler
from distdemo.train.command import PRELOADED
from distdemo.train.data import read_data, task_of
from distdemo.train.loop import order, train
from distdemo.train.records import MODES, TrainSpec
from distdemo.train.report import report
from distdemo.train.ways import WAYS, Averaging, Ledger, manual

SMALL = TrainSpec(epochs=2, batch_size=240)
"""8 steps of 2000 samples each, the same for 1, 2, 3 and 4 ranks."""
FLAT = replace(SMALL, mode="flat")


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    load_compiler(PRELOADED)


def trained(spec, ranks, hear=None, **world):
    data = read_data(spec)
    task = task_of(spec, data, ranks)
    asked = WorldSpec(ranks, **{"deadline": 60, "lazy": True, **world})
    return report(spec, run_world(asked, train, (spec, task, data), hear=hear), task)


def failed(result):
    return [(proof.mode, proof.claim) for proof in result.broken]


# ---------------------------------------------------------------------------------------- right


@pytest.mark.parametrize("ranks", [1, 3])
def test_all_modes_prove_what_they_claim(ranks):
    told = []
    partition = "sampler" if ranks == 1 else "shuffle"
    spec = replace(SMALL, partition=partition, timeline=True)
    result = trained(spec, ranks, lambda _, value: told.append(value))
    assert result.ok, (result.world.verdict, result.broken)
    assert len(result.proofs) == 9
    assert [run.collectives_per_step for run in result.runs] == [4, 1, 2]
    assert {run.bytes_per_step for run in result.runs} == {1738 * 8}
    assert {run.steps for run in result.runs} == {16}
    assert [value.mode for value in told if value][:4] == ["single", *MODES]
    assert [value.done for value in told if value] == list(range(1, 9))
    for run in result.runs:
        assert run.comparison.epochs == 2
        assert all(len(epoch.checksums) == ranks for epoch in run.epochs)
        assert 0 <= run.overlapped_s <= run.communication_s <= run.time_s
    assert [run.overlapped_s > 0 for run in result.runs] == [False, False, True]
    for run in result.runs:
        last = [s for s in result.spans if (s.mode, s.rank, s.step) == (run.mode, 0, 15)]
        sizes = [span.size_bytes for span in last if span.track == "communication"]
        assert (len(sizes), sum(sizes)) == (run.collectives_per_step, run.bytes_per_step)
        names = [span.name for span in last if span.track == "compute"]
        assert names == ["forward", "backward", "optimizer step"]


def test_one_mode_alone_is_compared_and_one_bucket_is_one_collective():
    result = trained(replace(SMALL, mode="ddp", epochs=1, bucket_mib=25.0), 2)
    assert result.ok, result.broken
    assert [run.collectives_per_step for run in result.runs] == [1]
    assert len(result.proofs) == 3
    assert result.spans == ()


@pytest.mark.parametrize("dataset", ["generated", "digits"])
def test_the_data_is_learned_but_not_at_once(dataset):
    if dataset == "digits" and find_spec("sklearn") is None:
        pytest.skip("needs scikit-learn: pip install 'distdemo[digits]'")
    result = trained(TrainSpec(mode="flat", dataset=dataset), 2)
    assert result.ok, result.broken
    accuracies = [epoch.accuracy for epoch in result.runs[0].epochs]
    assert accuracies[-1] >= 0.95 > accuracies[0]


def test_a_training_that_magnifies_rounding_is_compared_as_long_as_that_makes_sense():
    result = trained(TrainSpec(mode="flat", learning_rate=2.0, epochs=6), 2)
    assert result.ok, result.broken
    assert 0 < result.runs[0].comparison.epochs < 6
    assert result.runs[0].comparison.stopped == "rounding"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (replace(FLAT, learning_rate=1e308), "diverged"),  # its loss is no number
        (replace(FLAT, learning_rate=1e300), "diverged"),  # it is absurd
        (TrainSpec(mode="flat", epochs=1, learning_rate=5.0, batch_size=8), "rounding"),
    ],
    ids=["burst", "absurd", "wild"],
)
def test_a_training_in_which_nothing_can_be_compared_proves_and_refutes_nothing(spec, why):
    result = trained(spec, 2)
    assert result.world.ok
    assert not result.ok
    assert [proof.held for proof in result.proofs] == [True, None, None]
    assert result.runs[0].comparison.stopped == why


@pytest.mark.parametrize("mode", ["single", "manual"])
def test_a_rank_that_stands_still_is_named_whatever_is_trained(mode):
    """Rank 0 trains the reference while the others wait: it is not ahead of them for that."""
    spec = replace(SMALL, mode="manual", epochs=100)
    stopped: list[int] = []

    def stop(_, told):
        if told is not None and told.mode == mode and not stopped:
            stopped.extend(each.pid or 0 for each in active_children() if each.name == "rank-0")
            os.kill(stopped[0], signal.SIGSTOP)

    found = trained(spec, 2, stop, stall=1.5, start_method="fork").world.verdict
    assert found is not None
    assert found.ranks == (0,), found


# --------------------------------------------------------------------------------------- broken


def add_up(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)


def divide(tensors, by):
    for tensor in tensors:
        tensor.div_(by)


def last():
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


def a_little_off(tensors):
    """Only what has grown from nothing is rounding."""
    add_up(tensors)
    divide(tensors, dist.get_world_size() * 1.0001)


VALUES = ("loss", "weights")
BROKEN = [
    # how, which claims fail, and the rank that is named
    (undivided, VALUES, ()),
    (nothing, ("replicas", *VALUES), ()),
    (rank_left_out, VALUES, ()),
    (divided_by_one_too_many, VALUES, ()),
    (average_not_taken, ("replicas", *VALUES), (2,)),
    (parameter_forgotten, ("replicas", *VALUES), ()),
    (largest_instead, VALUES, ()),
    (a_little_off, VALUES, ()),
]


def by_hand(average):
    """A broken ``manual`` or ``flat``: this is done with the gradients."""

    def way(model, ledger, spec):
        return Averaging(model, lambda: average([each.grad for each in model.parameters()]))

    return way


@pytest.mark.parametrize(
    ("how", "claims", "named"), BROKEN, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_broken_average_is_found_out(how, claims, named, monkeypatch):
    monkeypatch.setitem(WAYS, "manual", by_hand(how))
    result = trained(replace(SMALL, mode="manual", epochs=1), 3)
    assert result.world.ok, result.world.verdict
    assert failed(result) == [("manual", claim) for claim in claims]
    assert {rank for proof in result.proofs for rank in proof.ranks} == set(named)


def test_of_several_modes_the_broken_one_is_named(monkeypatch):
    monkeypatch.setitem(WAYS, "flat", by_hand(undivided))
    result = trained(replace(SMALL, epochs=1), 2)
    assert failed(result) == [("flat", claim) for claim in VALUES]


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
    assert failed(result) == [("ddp", claim) for claim in VALUES]


def test_a_mistake_in_one_late_step_is_found_out(monkeypatch):
    def way(model, ledger, spec):
        right, steps = manual(model, ledger, spec), []

        def average():
            right.average()
            steps.append(1)
            if len(steps) == 12:
                for parameter in model.parameters():
                    parameter.grad *= 1.001

        return Averaging(model, average)

    monkeypatch.setitem(WAYS, "manual", way)
    result = trained(replace(SMALL, mode="manual"), 2)
    assert failed(result) == [("manual", claim) for claim in VALUES]
    assert {proof.epoch for proof in result.broken} == {2}


# ------------------------------------------------------------------------------------- its parts


@pytest.mark.parametrize("partition", ["shuffle", "sampler"])
def test_every_sample_is_seen_once_an_epoch_and_in_another_order(partition):
    spec = TrainSpec(partition=partition)
    epochs = [[order(spec, 20, 4, rank, epoch).tolist() for rank in range(4)] for epoch in (0, 1)]
    for orders in epochs:
        assert Counter(number for each in orders for number in each) == Counter(range(20))
    assert epochs[0] != epochs[1]
    same = sorted(epochs[0][1]) == sorted(epochs[1][1])
    assert same is (partition == "shuffle"), "a shuffle keeps each rank's part"


def test_time_under_way_is_counted_once():
    class Ticks:
        name: ClassVar[str] = "ticks"
        now = 0.0

        def begin(self):
            pass

        def mark(self):
            return self.now

        def settle(self):
            pass

        def read(self, mark):
            return mark

        def between(self, first, second):
            return second - first

    ledger = Ledger(clock := Ticks())
    ledger.begin_step()
    gradients = torch.zeros(3, dtype=torch.float64)
    with ledger.computing("backward"):
        clock.now = 1
        first = ledger.sending("first", gradients)
        clock.now = 4
        ledger.computed()
        second = ledger.sending("second", gradients[:1])
        clock.now = 5
        ledger.arrived(first)
        clock.now = 7
        ledger.arrived(second)
        clock.now = 9
    third = ledger.sending("third", gradients)
    clock.now = 10
    ledger.arrived(third)
    (step,) = ledger.close()
    assert (step.busy(), step.busy(until=step.computed)) == (7, 3)
    assert [each.size_bytes for each in step.communication] == [24, 8, 24]
