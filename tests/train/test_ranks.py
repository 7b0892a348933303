"""Trainings on real ranks: all proofs hold for correct ones and fail for broken ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch.distributed as dist
from forked import in_a_child

from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.train import records
from distdemo.train.loop import (
    AVERAGING_METHODS,
    manual,
    order,
    train,
)
from distdemo.train.proofs import make_report
from distdemo.train.records import MODES, TrainSpec

pytestmark = pytest.mark.usefixtures("compiler")
SMALL = TrainSpec(epochs=2)


def trained(spec, ranks, on_message=None, **world):
    """Return the report of a training."""
    asked = WorldSpec(ranks, **{"deadline": 60, "lazy": True, **world})
    ended = run_world(asked, train, (spec,), on_message=on_message)
    return make_report(spec, ended)


# ---------------------------------------------------------------------------------------- right


def trained_with_messages():
    messages = []
    result = trained(SMALL, 3, lambda _, value: messages.append(value))
    return result, messages


@pytest.mark.processes
def test_all_modes_prove_what_they_claim():
    result, messages = in_a_child(trained_with_messages)
    assert result.ok, (result.world.verdict, result.failed)
    assert len(result.proofs) == 9
    assert [run.collectives_per_step for run in result.runs] == [4, 1, 2]
    assert {run.bytes_per_step for run in result.runs} == {1738 * 8}
    assert {run.steps for run in result.runs} == {62}
    assert [value.mode for value in messages] == 2 * ["single", *MODES]
    assert [value.epoch for value in messages] == [1] * 4 + [2] * 4
    for run in result.runs:
        assert all(len(epoch.checksums) == 3 for epoch in run.epochs)


@pytest.mark.processes
def test_one_rank_trains_as_one_process_and_learns():
    alone = trained(replace(SMALL, epochs=5), 1)
    assert alone.ok, alone.failed
    accuracies = [epoch.accuracy for epoch in alone.runs[0].epochs]
    assert accuracies[-1] >= 0.95 > accuracies[0]


# --------------------------------------------------------------------------------------- broken


def broken_methods():
    """Return averaging methods that are wrong, by name."""

    def average(tensors, by=3):
        for tensor in tensors:
            dist.all_reduce(tensor)
            tensor.div_(by)
        return ()

    def not_taken_by_rank_2(tensors):
        own = [tensor.clone() for tensor in tensors]
        average(tensors)
        if dist.get_rank() == 2:
            for tensor, unaveraged in zip(tensors, own, strict=True):
                tensor.copy_(unaveraged)
        return ()

    steps = []

    def late(tensors):
        """Change the gradients in one step of the second epoch."""
        steps.append(1)
        yield from manual(tensors)
        if len(steps) == 40:
            for tensor in tensors:
                tensor.mul_(1.001)

    return {
        "undivided": lambda tensors: average(tensors, by=1),
        "not taken by rank 2": not_taken_by_rank_2,
        "parameter forgotten": lambda tensors: average(tensors[:-1]),
        "late": late,
    }


def trained_wrongly():
    """Train with all broken methods, a correct one, and DDP with a wrong hook, in one world."""
    original = dist.all_reduce

    def undivided_bucket(tensor, op=dist.ReduceOp.SUM, *, async_op=False):
        if async_op:
            tensor *= dist.get_world_size()
        return original(tensor, op=op, async_op=async_op)

    vars(dist).update(all_reduce=undivided_bucket)
    AVERAGING_METHODS.update(broken_methods())
    records.MODES = ("manual", *broken_methods(), "ddp")
    return trained(SMALL, 3)


@pytest.mark.processes
def test_broken_averages_are_detected():
    result = in_a_child(trained_wrongly)
    assert result.world.ok, result.world.verdict
    failed: dict[str, list[str]] = {run.mode: [] for run in result.runs}
    for proof in result.failed:
        failed[proof.mode].append(proof.claim)
    replicas_too = ("not taken by rank 2", "parameter forgotten")
    for mode, claims in failed.items():
        if mode == "manual":
            assert claims == []
        else:
            assert claims == ["replicas"] * (mode in replicas_too) + ["loss", "weights"], mode
    named = {proof.mode: proof.ranks for proof in result.failed if proof.ranks}
    assert named == {"not taken by rank 2": (2,)}
    assert {proof.epoch for proof in result.failed if proof.mode == "late"} == {2}


# ------------------------------------------------------------------------------------- its parts


def test_each_epoch_sees_every_sample_once_in_a_new_order():
    epochs = [
        [order(7, 4, rank, epoch, samples=20).tolist() for rank in range(4)] for epoch in (0, 1)
    ]
    for orders in epochs:
        assert Counter(number for own in orders for number in own) == Counter(range(20))
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0][1]) == sorted(epochs[1][1]), "each rank keeps its part"
