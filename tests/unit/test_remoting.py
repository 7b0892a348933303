from __future__ import annotations

import math

import pytest

from distdemo.rpc.records import Call, Weights, apart, name_of


def weights(remote: tuple[float, ...], local: tuple[float, ...]) -> Weights:
    return Weights("hidden.bias", "worker1", (len(remote),), remote, local)


@pytest.mark.parametrize(
    ("remote", "local", "difference"),
    [
        ((1.0, 2.0), (1.0, 2.0), 0.0),
        ((1.0, 2.5), (1.25, 2.0), 0.5),
        ((), (), 0.0),
        ((1.0,), (1.0, 2.0), math.inf),
        ((math.nan,), (1.0,), math.inf),
        ((1.0, math.nan), (1.5, math.nan), 0.5),
        ((math.nan, math.nan), (math.nan, -math.nan), 0.0),
        ((1.0, math.nan), (math.nan, 1.0), math.inf),
        ((math.inf,), (math.inf,), 0.0),
        ((math.inf,), (-math.inf,), math.inf),
    ],
)
def test_the_largest_difference_of_a_number(
    remote: tuple[float, ...], local: tuple[float, ...], difference: float
) -> None:
    assert weights(remote, local).difference == difference


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        (1.0, 3.5, 2.5),
        (math.nan, math.nan, 0.0),
        (-math.inf, -math.inf, 0.0),
        (math.inf, math.nan, math.inf),
        (0.0, math.nan, math.inf),
    ],
)
def test_two_numbers_that_are_none_are_not_apart(one: float, other: float, distance: float) -> None:
    assert apart(one, other) == apart(other, one) == distance


def test_a_call_is_right_if_the_expected_value_came_back() -> None:
    call = Call("worker0", "worker1", "rpc_sync", "who()", "worker1", "worker1", 0.5, 0.25)
    assert call.ok
    assert call.end == 0.75
    assert call.words == "rpc_sync who()"
    assert Call("worker0", "worker1", "optimizer.step", "", "", "", 0.5, 0.25).words == (
        "optimizer.step"
    )
    assert not Call("worker0", "worker1", "rpc_sync", "who()", "a", "b", 0.5, 0.25).ok


def test_workers_are_named_by_their_rank() -> None:
    assert name_of(11) == "worker11"
