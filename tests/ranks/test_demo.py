"""Every op on real ranks: right against plain Python, whatever is asked for."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from plain import SHOULD
from strategies import requests

from distdemo.holdings import Piece
from distdemo.launchers.local import run_world
from distdemo.model import OpSpec, WorldSpec
from distdemo.ops.all_reduce import AllReduce
from distdemo.ops.p2p import PointToPoint
from distdemo.ops.reduce import Reduce
from distdemo.programs.demo import demo, report


def run(op, *specs, lazy=None):
    """The report of these groups (or of the whole world), in a world that is just large enough."""
    first = specs[0]
    size = 1 + max(max(spec.members or (spec.world_size - 1,)) for spec in specs)
    lazy = op.lazy if lazy is None else lazy
    world = WorldSpec(size, start_method="fork", timeout=30, lazy=lazy)
    result = report(op, specs, run_world(world, demo, (op, specs)))
    assert result.spec == first
    return result


def shown(holding):
    """The numbers of each piece that is shown, or the objects; None where it is undefined."""
    if holding.undefined:
        return None
    return [list(each.head) if isinstance(each, Piece) else each.value for each in holding.pieces]


def members(spec):
    return spec.members or range(spec.world_size)


def agrees_with_plain_python(result, spec):
    """Whether every member holds what plain Python makes of what all of them held."""
    held = [shown(result.ranks[rank].before) for rank in members(spec)]
    for number, rank in enumerate(members(spec)):
        should, after = SHOULD[spec.op](number, held, spec), shown(result.ranks[rank].after)
        if should is None or spec.objects:
            assert after == should
            continue
        assert len(after) == len(should)
        for got, wanted in zip(after, should, strict=True):
            assert got == pytest.approx(as_kept(wanted, spec.dtype), rel=1e-2), (spec, rank)


def as_kept(numbers, dtype):
    """The numbers of a result as the dtype keeps them: integers wrap."""
    bits = {"int8": 8, "uint8": 8, "int32": 32, "int64": 64}.get(dtype)
    if bits is None:
        return [bool(number) if dtype == "bool" else number for number in numbers]
    lowest = 0 if dtype == "uint8" else -(2 ** (bits - 1))
    return [(number - lowest) % 2**bits + lowest for number in numbers]


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(requests(most=5))
@example((PointToPoint(), OpSpec("p2p", 5, shape=(5,), pattern="ring")))
def test_every_op_agrees_with_plain_python(request):
    op, spec = request
    result = run(op, spec)
    assert result.ok, result.world.verdict or result.ranks
    agrees_with_plain_python(result, spec)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("async_op", [False, True], ids=["blocking", "nonblocking"])
def test_a_ring_of_large_tensors_does_not_deadlock(size, async_op):
    spec = OpSpec("p2p", world_size=size, shape=(300_000,), pattern="ring", async_op=async_op)
    assert run(PointToPoint(), spec).ok


@pytest.mark.parametrize(("src", "dst"), [(0, 1), (1, 0), (2, 0)])
def test_both_calls_of_a_nonblocking_pair_return_before_the_data_has_to_be_there(src, dst):
    spec = OpSpec("p2p", world_size=3, src=src, dst=dst, pattern="pair", async_op=True)
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
    result = run(AllReduce(), OpSpec("all_reduce", world_size=2, reduce_op="sum", async_op=True))
    for record in result.ranks:
        assert record.launch_seconds is not None
        assert record.wait_seconds is not None
        assert record.seconds == record.launch_seconds + record.wait_seconds


def test_the_buffers_of_the_other_ranks_are_undefined_after_a_reduce():
    result = run(Reduce(), OpSpec("reduce", world_size=3, reduce_op="sum", root=1, fill=1))
    assert [record.after.undefined for record in result.ranks] == [True, False, True]
    assert shown(result.ranks[1].after) == [[3.0] * 4]
    assert result.ranks[0].verification.checked == 0
