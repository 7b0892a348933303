"""Trainings on real ranks: all proofs hold for correct ones and fail for broken ones."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import replace
from multiprocessing import active_children

import pytest
import torch
import torch.distributed as dist

from distdemo.launcher.clock import Clock
from distdemo.launcher.local import run_world
from distdemo.launcher.records import WorldSpec
from distdemo.train import records
from distdemo.train.averaging import (
    AVERAGING_METHODS,
    Averaging,
    Step,
    StepTimer,
    ddp,
    gradients_of,
    manual,
)
from distdemo.train.data import order
from distdemo.train.loop import train
from distdemo.train.proofs import make_report
from distdemo.train.records import MODES, TrainSpec, TrainTask

pytestmark = pytest.mark.processes
SMALL = TrainSpec(epochs=2, batch_size=240)
"""8 steps per epoch of 2000 samples, for 1, 2, 3 and 4 ranks alike."""


def trained(spec, ranks, on_message=None, **world):
    """Return the report of a training, run in the ``warm`` process."""
    task = TrainTask.split(spec.batch_size, ranks)
    asked = WorldSpec(ranks, **{"deadline": 60, "lazy": True, **world})
    ended = run_world(asked, train, (spec, task), on_message=on_message)
    return make_report(spec, task, ended)


# ---------------------------------------------------------------------------------------- right


def trained_with_messages():
    messages = []
    result = trained(SMALL, 3, lambda _, value: messages.append(value))
    return result, [value for value in messages if value]


def test_all_modes_prove_what_they_claim(warm):
    result, messages = warm(trained_with_messages)
    assert result.ok, (result.world.verdict, result.failed)
    assert len(result.proofs) == 9
    assert [run.collectives_per_step for run in result.runs] == [4, 1, 2]
    assert {run.bytes_per_step for run in result.runs} == {1738 * 8}
    assert {run.steps for run in result.runs} == {16}
    assert [value.mode for value in messages][:4] == ["single", *MODES]
    assert [value.done for value in messages] == list(range(1, 9))
    for run in result.runs:
        assert run.comparison.epochs == 2
        assert all(len(epoch.checksums) == 3 for epoch in run.epochs)
        assert 0 <= run.overlapped_s <= run.communication_s <= run.time_s
    assert [run.overlapped_s > 0 for run in result.runs] == [False, False, True]


def test_one_rank_trains_as_one_process_and_learns(warm):
    alone = warm(trained, replace(SMALL, epochs=5, batch_size=64), 1)
    assert alone.ok, alone.failed
    accuracies = [epoch.accuracy for epoch in alone.runs[0].epochs]
    assert accuracies[-1] >= 0.95 > accuracies[0]


def test_comparison_ends_when_rounding_has_grown(warm):
    wild = warm(trained, TrainSpec(mode="flat", learning_rate=2.0, epochs=6), 2)
    assert wild.ok, wild.failed
    assert 0 < wild.runs[0].comparison.epochs < 6
    assert wild.runs[0].comparison.stopped == "rounding"


def stopped_in_the_reference():
    stopped: list[int] = []

    def stop(_, message):
        if message is not None and message.mode == "single" and not stopped:
            stopped.extend(each.pid or 0 for each in active_children() if each.name == "rank-0")
            os.kill(stopped[0], signal.SIGSTOP)

    spec = replace(SMALL, mode="manual", epochs=100)
    return trained(spec, 2, stop, stall=3.0, start_method="fork").world.verdict


def test_a_rank_stopped_during_the_reference_is_reported(warm):
    found = warm(stopped_in_the_reference)
    assert found is not None
    assert found.ranks == (0,), found


# --------------------------------------------------------------------------------------- broken


def add_up(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)


def average(tensors, by=3):
    add_up(tensors)
    for tensor in tensors:
        tensor /= by  # noqa: PLW2901 - in place


def nothing(tensors):
    """Leave each rank its own gradients."""


def average_not_taken(tensors):
    own = [tensor.clone() for tensor in tensors]
    average(tensors)
    if dist.get_rank() == 2:
        for tensor, mine in zip(tensors, own, strict=True):
            tensor.copy_(mine)


def parameter_forgotten(tensors):
    average(tensors[:-1])


def a_little_off(tensors):
    """Average with an error too large for rounding in one step."""
    average(tensors, 3.0003)


def late(model, timer):
    """Change the gradients in one step of the second epoch."""
    right, steps = manual(model, timer), []

    def average():
        right.average()
        steps.append(1)
        if len(steps) == 12:
            for parameter in model.parameters():
                parameter.grad *= 1.001

    return Averaging(model, average)


def by_hand(average):
    """Return an averaging method that applies `average` to the gradients."""

    def method(model, _):
        return Averaging(model, lambda: average(gradients_of(model)))

    return method


VALUES = ("loss", "weights")
BROKEN = {
    # failed claims, and the rank reported
    add_up: (VALUES, ()),
    nothing: (("replicas", *VALUES), ()),
    average_not_taken: (("replicas", *VALUES), (2,)),
    parameter_forgotten: (("replicas", *VALUES), ()),
    a_little_off: (VALUES, ()),
}


def trained_wrongly():
    """Train with all broken methods, a correct one, and DDP with a wrong hook, in one world."""
    original = dist.all_reduce

    def undivided_bucket(tensor, op=dist.ReduceOp.SUM, *, async_op=False):
        if async_op:
            tensor *= dist.get_world_size()
        return original(tensor, op=op, async_op=async_op)

    vars(dist).update(all_reduce=undivided_bucket)
    methods = {how.__name__: by_hand(how) for how in BROKEN} | {"late": late, "ddp": ddp}
    AVERAGING_METHODS.update(methods)
    records.MODES = ("manual", *methods)
    return trained(SMALL, 3)


def test_broken_averages_are_detected(warm):
    result = warm(trained_wrongly)
    assert result.world.ok, result.world.verdict
    failed: dict[str, list[str]] = {run.mode: [] for run in result.runs}
    for proof in result.failed:
        failed[proof.mode].append(proof.claim)
    expected = {how.__name__: list(claims) for how, (claims, _) in BROKEN.items()}
    assert failed == {"manual": [], **expected, "late": list(VALUES), "ddp": list(VALUES)}
    named = {proof.mode: proof.ranks for proof in result.failed if proof.ranks}
    assert named == {how.__name__: ranks for how, (_, ranks) in BROKEN.items() if ranks}
    assert {proof.epoch for proof in result.failed if proof.mode == "late"} == {2}


# ------------------------------------------------------------------------------------- its parts


def test_each_epoch_sees_every_sample_once_in_a_new_order():
    epochs = [
        [order(7, 4, rank, epoch, samples=20).tolist() for rank in range(4)] for epoch in (0, 1)
    ]
    for orders in epochs:
        assert Counter(number for each in orders for number in each) == Counter(range(20))
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0][1]) == sorted(epochs[1][1]), "each rank keeps its part"


def test_overlapping_communication_is_counted_once():
    class Ticks(Clock):
        now = 0.0

        def mark(self):
            return self.now

    timer = StepTimer(clock := Ticks())
    timer.steps.append(Step())
    gradients = torch.zeros(3, dtype=torch.float64)
    clock.now = 1
    first = timer.begin(gradients)
    clock.now = 4
    timer.computed()
    second = timer.begin(gradients[:1])
    clock.now = 5
    timer.end(first)
    clock.now = 7
    timer.end(second)
    clock.now = 9
    timer.computed()  # later than the hook's call, which counts
    third = timer.begin(gradients)
    clock.now = 10
    timer.end(third)
    assert timer.communication() == (7, 3)
    assert [transfer.size_bytes for transfer in timer.steps[0].transfers] == [24, 8, 24]
