"""Every op on real ranks: right against plain Python, whatever is asked for."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from running import assert_right, run, shown
from strategies import requests

from distdemo.ops.all_reduce import AllReduce
from distdemo.ops.p2p import PointToPoint
from distdemo.ops.reduce import Reduce
from distdemo.ops.spec import OpSpec


@settings(
    max_examples=24,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(requests(most=5))
@example((PointToPoint(), OpSpec("p2p", 5, shape=(5,), pattern="ring")))
def test_every_op_agrees_with_plain_python(request):
    op, spec = request
    result = run(op, spec)
    assert result.ok, result.world.verdict or result.ranks
    assert_right(result.ranks, (spec,))


@pytest.mark.parametrize(("src", "dst"), [(0, 1), (1, 0), (2, 0)])
def test_both_calls_of_a_nonblocking_pair_return_before_the_data_has_to_be_there(src, dst):
    spec = OpSpec("p2p", group_size=3, src=src, dst=dst, pattern="pair", async_op=True)
    result = run(PointToPoint(), spec)
    assert result.ok
    receiver = {event.what: event for event in result.ranks[dst].events}
    sender = {event.what: event for event in result.ranks[src].events}
    assert receiver["irecv returned"].unchanged
    assert receiver["irecv returned"].at <= sender["isend returned"].at
    assert sender["isend returned"].at <= receiver["wait returned"].at
    assert not receiver["wait returned"].unchanged
    idle = 3 - src - dst
    assert result.ranks[idle].events == ()
    assert not result.ranks[idle].takes_part


def test_an_async_op_times_the_launch_and_the_wait():
    result = run(AllReduce(), OpSpec("all_reduce", group_size=2, reduce_op="sum", async_op=True))
    for record in result.ranks:
        assert record.launch_seconds is not None
        assert record.wait_seconds is not None
        assert record.seconds == record.launch_seconds + record.wait_seconds


def test_the_buffers_of_the_other_ranks_are_undefined_after_a_reduce():
    result = run(Reduce(), OpSpec("reduce", group_size=3, reduce_op="sum", root=1, fill=1))
    assert [record.after.undefined for record in result.ranks] == [True, False, True]
    assert shown(result.ranks[1].after) == [[3.0] * 4]
    assert result.ranks[0].verification.checked == 0
