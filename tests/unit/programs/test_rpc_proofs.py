from __future__ import annotations

import math
from dataclasses import replace

import pytest

from distdemo.rpc.proofs import proofs
from distdemo.rpc.records import Call, Lesson, Weights

PING = Call("worker0", "worker1", "rpc_async", "swap('ping')", "pong", "pong", 1.0, 0.5)
PONG = Call("worker0", "worker1", "rpc_async", "swap('pong')", "ping", "ping", 1.1, 0.4)
BIAS = Weights("output.bias", "worker1", (2,), (0.5, 1.5), (0.5, 1.5))
LESSON = Lesson((PING, PONG), (2.0, 1.0), (2.0, 1.0), (BIAS,), 0.1, 0.01)


def held(lesson: Lesson, *, one_host: bool = True) -> list[bool | None]:
    return [proof.held for proof in proofs(lesson, one_host=one_host)]


def found(lesson: Lesson, number: int) -> str:
    return proofs(lesson, one_host=True)[number].found


def test_everything_holds() -> None:
    assert held(LESSON) == [True] * 5


def test_a_wrong_value_is_told_with_the_right_one() -> None:
    wrong = replace(LESSON, calls=(replace(PING, value="ping"), PONG))
    assert held(wrong) == [False, True, True, True, True]
    assert (
        found(wrong, 0) == "1 of 2 are wrong; rpc_async swap('ping') on worker1 gave ping, not pong"
    )


@pytest.mark.parametrize("calls", [(PING,), (PING, replace(PONG, start=1.5)), ()])
def test_calls_one_after_the_other_are_no_proof(calls: tuple[Call, ...]) -> None:
    assert not held(replace(LESSON, calls=calls))[1]


@pytest.mark.parametrize("losses", [(2.0, 2.0), (1.0, 2.0), (2.0, math.nan), (math.nan, 1.0), ()])
def test_a_loss_has_to_fall(losses: tuple[float, ...]) -> None:
    assert held(replace(LESSON, losses=losses, local_losses=losses))[2] is False


def test_losses_are_compared_bit_for_bit() -> None:
    apart = replace(LESSON, losses=(2.0, math.nextafter(1.0, 0.0)))
    assert held(apart) == [True, True, True, False, True]
    assert found(apart, 3) == "2 losses, differing by up to 1.11e-16, at step 1"


@pytest.mark.parametrize("losses", [(2.0,), (2.0, 1.0, 0.5), (2.0, math.nan)])
def test_a_loss_too_few_too_many_or_not_a_number_is_seen(losses: tuple[float, ...]) -> None:
    assert held(replace(LESSON, losses=losses))[3] is False


def test_where_both_trainings_break_down_only_the_fall_of_the_loss_fails() -> None:
    broken = (2.0, math.inf, math.nan)
    bias = replace(BIAS, remote=(math.nan, 1.0), local=(math.nan, 1.0))
    lesson = replace(LESSON, losses=broken, local_losses=broken, weights=(bias,))
    assert held(lesson) == [True, True, False, True, True]
    assert found(lesson, 2).startswith("2 before the first step, nan after the last")
    assert found(lesson, 3) == "3 losses, 1 of them NaN in both"
    assert found(lesson, 4) == "2 numbers in 1 tensors, 1 of them NaN in both"


def test_weights_are_compared_bit_for_bit_and_the_worst_is_named() -> None:
    apart = replace(LESSON, weights=(BIAS, replace(BIAS, name="hidden.bias", remote=(0.5, 1.75))))
    assert held(apart) == [True, True, True, True, False]
    assert found(apart, 4) == "4 numbers in 2 tensors; hidden.bias on worker1 differs by up to 0.25"
    assert held(replace(LESSON, weights=()))[4] is False


def test_processors_of_several_hosts_may_round_differently() -> None:
    near = replace(LESSON, losses=(2.0, 1.00001), weights=(replace(BIAS, remote=(0.5, 1.50001)),))
    assert held(near) == [True, True, True, False, False]
    assert held(near, one_host=False) == [True] * 5
    assert held(replace(near, losses=(2.0, 1.001)), one_host=False)[3] is False
    assert "within 0.0001" in proofs(near, one_host=False)[4].claim
