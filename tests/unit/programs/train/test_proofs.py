from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from distdemo.launcher.records import Returned, TimedOut, Verdict, WorldReport, WorldSpec
from distdemo.train.checksum import checksum
from distdemo.train.classifier import classifier, count_parameters
from distdemo.train.data import Samples, data_of
from distdemo.train.generated import generate
from distdemo.train.parts import Comparison, EpochPart, ModePart, RankPart
from distdemo.train.proofs import modes_equal, prove, relative, replicas_alike
from distdemo.train.records import TrainSpec
from distdemo.train.reference import difference, nudge, weights_of
from distdemo.train.report import report
from distdemo.train.tensors import tensors


def mode(name="manual", *, losses=(2.0, 1.0), sums=("aa", "bb")):
    epochs = [EpochPart(loss, 0.5, 1.0, each) for loss, each in zip(losses, sums, strict=True)]
    return ModePart(name, tuple(epochs), 4, 4, 100, 0.5, 0.25)


def parts(*, ranks=3, modes=("manual",), losses=(2.0, 1.0), epochs=2, differences=None, apart=0.0):
    off = dict.fromkeys(modes, 0.0) if differences is None else differences
    compared = Comparison(mode("single"), epochs, 0.5, off, apart)
    found = [
        RankPart(rank, tuple(mode(each, losses=losses) for each in modes)) for rank in range(ranks)
    ]
    return [replace(found[0], comparison=compared), *found[1:]]


def failed(found):
    return [proof for proof in found if proof.held is False]


def undecided(found):
    return [proof for proof in found if proof.held is None]


def test_a_right_training_proves_all_that_it_claims():
    found = prove(parts(modes=("manual", "flat", "ddp")))
    assert len(found) == 10
    assert all(proof.held for proof in found)
    assert all(proof.found for proof in found)
    assert "manual, flat and ddp" in found[-1].claim
    assert [proof.mode for proof in found[::3]] == ["manual", "flat", "ddp", ""]
    assert len({proof.about for proof in found}) == 4, "the same words for every mode"
    assert [proof.difference for proof in found[:3]] == [None, 0, 0]


# --------------------------------------------------------------------------------- replicas


def test_a_replica_that_differs_is_named_with_the_epoch():
    proof = replicas_alike([mode(), mode(sums=("aa", "cc")), mode()])
    assert not proof.held
    assert proof.ranks == (1,)
    assert "after epoch 2 rank 1 has cc, the others bb" in proof.found


def test_where_none_is_in_the_majority_no_rank_is_blamed():
    proof = replicas_alike([mode(), mode(sums=("cc", "bb"))])
    assert not proof.held
    assert proof.ranks == ()
    assert "after epoch 1" in proof.found


def test_of_many_that_differ_some_are_named():
    odd = [mode(sums=(f"x{n}", "bb")) for n in range(6)]
    proof = replicas_alike([*odd, *[mode()] * 7])
    assert proof.ranks == (0, 1, 2, 3, 4, 5)
    assert "rank 3 has x3 and 2 more differ" in proof.found


# ----------------------------------------------------------------------------------- losses


def test_a_loss_beyond_the_tolerance_fails_and_is_told_with_its_epoch():
    assert not failed(prove(parts(losses=(2.0, 1.0 + 1e-7))))
    (proof,) = failed(prove(parts(losses=(2.0, 1.0 + 1e-5))))
    assert "manual: the loss" in proof.claim
    assert "in epoch 2" in proof.found


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_while_that_of_one_process_is_one_fails(loss):
    (proof,) = failed(prove(parts(losses=(2.0, loss))))
    assert "loss" in proof.claim
    assert f"in epoch 2 it is {loss:g}, of one process 1" in proof.found


@pytest.mark.parametrize("loss", [math.nan, math.inf, 1e300])
def test_a_training_that_diverges_after_a_while_is_not_proved_by_its_first_epochs(loss):
    found = parts(losses=(2.0, loss), epochs=1)
    first = found[0]
    same = replace(first.comparison, reference=mode("single", losses=(2.0, loss)))
    proofs = prove([replace(first, comparison=same), *found[1:]])
    assert not failed(proofs)
    (proof,) = undecided(proofs)
    assert "loss" in proof.claim
    assert f"in epoch 2 the loss of one process is {loss:g}: the training diverges" in proof.found
    assert proof.difference is None


def test_how_far_a_number_is_from_another():
    assert relative(3.0, 2.0) == 0.5
    assert relative(0.0, 0.0) == 0.0
    assert relative(1.0, 0.0) == math.inf
    assert math.isnan(relative(math.nan, 1.0))
    assert math.isnan(relative(math.inf, math.inf))


# ---------------------------------------------------------------------------------- weights


@pytest.mark.parametrize(("off", "held"), [(4e-7, True), (6e-7, False), (math.nan, False)])
def test_weights_are_compared_with_how_far_they_went(off, held):
    weights = failed(prove(parts(differences={"manual": off})))
    assert [proof.claim.split(" is ")[0] for proof in weights] == [
        *["manual: every weight"] * (not held)
    ]
    compared = parts(apart=off)[0].comparison
    assert compared is not None
    assert modes_equal(["manual", "ddp"], compared).held is held


def test_a_difference_of_weights_is_told_as_a_share_of_how_far_they_moved():
    (*_, proof) = prove(parts(differences={"manual": 1e-7}))
    assert proof.difference == 2e-7
    assert proof.claim.endswith("in the end, within 1e-6 of how far the weights moved")
    assert proof.found == "largest difference 2.0e-07"
    compared = replace(parts(apart=1e-300)[0].comparison, moved=0.0)
    assert modes_equal(["manual", "ddp"], compared).difference == math.inf
    assert modes_equal(["manual", "ddp"], replace(compared, apart=0.0)).held


def test_only_epochs_that_can_be_compared_are():
    found = prove(parts(losses=(2.0, 5.0), epochs=1))
    assert not failed(found)
    assert "the loss of epoch 1 " in found[1].claim
    assert "after epoch 1" in found[2].claim


def test_where_no_epoch_can_be_compared_nothing_is_proved():
    found = prove(parts(epochs=0, differences={}))
    assert not failed(found)
    assert [proof.held for proof in found] == [True, None, None]
    assert all("magnifies rounding" in proof.found for proof in undecided(found))


# ----------------------------------------------------------------------------------- report


def world(found, **more):
    outcomes = tuple(Returned(rank=each.rank, value=each) for each in found)
    return WorldReport(WorldSpec(len(found)), outcomes, None, 1.0, "fork", "", **more)


def test_a_report_sums_up_the_ranks():
    spec = TrainSpec(mode="manual", epochs=2, batch_size=64)
    found = parts(differences={"manual": 1e-9}, losses=(2.0, 1.0 + 1e-8))
    slow = replace(found[1].modes[0], communication=2.0)
    slow = replace(slow, epochs=tuple(replace(each, seconds=3.0) for each in slow.epochs))
    found[1] = replace(found[1], modes=(slow,))
    result = report(spec, world(found), generate(1))
    assert result.ok
    (run,) = result.runs
    assert run.seconds == 6.0
    assert run.communication == 1.0
    assert [epoch.seconds for epoch in run.epochs] == [3.0, 3.0]
    assert run.difference == 1e-9
    assert run.loss_difference == pytest.approx(1e-8)
    assert run.epochs[0].checksums == ("aa", "aa", "aa")
    assert result.reference is not None
    assert result.reference.mode == "single"
    assert result.task is not None
    assert result.task.parameters == count_parameters(generate(1), 64)
    assert "63 samples, not 64" in result.notes[0]
    assert "47 of 2,000" in result.notes[1]
    assert result.comparable == 2


def test_a_trace_is_told_that_ddp_groups_its_gradients_anew():
    found = parts(modes=("ddp",))
    for trace in (True, False):
        spec = TrainSpec(mode="ddp", epochs=2, trace=trace)
        changed = [
            replace(each, modes=(replace(each.modes[0], first_collectives=1),)) for each in found
        ]
        told = " ".join(report(spec, world(changed), generate(1)).notes)
        assert ("1 all_reduce in that step, 4 in each later one" in told) == trace


def test_a_report_of_a_world_that_failed_claims_nothing():
    outcomes = (TimedOut(rank=0), TimedOut(rank=1))
    lost = WorldReport(WorldSpec(2), outcomes, Verdict("w", "w", "h"), 1.0, "fork", "")
    result = report(TrainSpec(), lost, generate(1))
    assert not result.ok
    assert result.runs == ()
    assert result.proofs == ()


def test_a_report_says_where_comparing_ended():
    told = report(TrainSpec(mode="manual"), world(parts(epochs=1)), generate(1)).notes[-1]
    assert "after epoch 1" in told
    result = report(TrainSpec(mode="manual"), world(parts(epochs=0, differences={})), generate(1))
    assert "from the first epoch on" in result.proofs[-1].found
    assert math.isnan(result.runs[0].difference)
    assert math.isnan(result.runs[0].loss_difference)
    assert result.comparable == 0
    assert not result.ok


# ------------------------------------------------------------------------- model and weights


def test_the_model_is_that_of_its_seed_and_as_large_as_told():
    data = generate(1)
    model = classifier(data, 8, 3, "cpu")
    assert sum(each.numel() for each in model.parameters()) == count_parameters(data, 8)
    assert checksum(model) == checksum(classifier(data, 8, 3, "cpu"))
    assert checksum(model) != checksum(classifier(data, 8, 4, "cpu"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_single_bit_changes_the_checksum(dtype):
    model = nn.Linear(3, 2, dtype=dtype)
    with torch.no_grad():
        model.bias.zero_()
        before = checksum(model)
        model.bias[1] = -0.0
    assert checksum(model) != before
    assert len(before) == 16


def test_a_nudge_moves_every_weight_by_a_few_units_of_its_last_place():
    model = classifier(generate(1), 8, 3, "cpu")
    before = weights_of(model)
    nudge(model)
    moved = ((weights_of(model) - before) / before).abs()
    assert moved.min() >= 2.0**-52
    assert moved.max() <= 2e-15


def test_a_difference_is_no_number_if_any_is_none():
    wrong = torch.tensor([0.0, math.nan, 5.0])
    assert math.isnan(difference(wrong, torch.zeros(3)))
    assert difference(torch.tensor([1.0, -4.0]), torch.zeros(2)) == 4.0


def test_samples_become_numbers_around_zero_without_a_copy():
    samples = Samples(bytes([0, 2, 4, 6]), bytes([1, 0]))
    held = tensors(data_of("w", 2, samples, samples), samples, "cpu")
    inputs, labels = held.take(torch.tensor([1]))
    assert labels.tolist() == [0]
    assert inputs.tolist() == [[1 / 5**0.5, 3 / 5**0.5]]
    assert held.inputs.dtype == torch.uint8
