"""Every op on real ranks: right against plain arithmetic, and wrong where it is made wrong."""

from __future__ import annotations

import functools
import itertools
import json
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import typer
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from distdemo import backends, ops
from distdemo.cli.execute import run_op
from distdemo.launchers.local import run_world
from distdemo.model import OpSpec, WorldSpec
from distdemo.ops.all_gather import AllGather
from distdemo.ops.all_reduce import AllReduce
from distdemo.ops.broadcast import Broadcast
from distdemo.ops.contract import Buffers
from distdemo.ops.gather import Gather
from distdemo.ops.p2p import PointToPoint
from distdemo.ops.reduce import Reduce
from distdemo.ops.scatter import Scatter
from distdemo.programs.demo import demo, report

GLOO = backends.REGISTRY["gloo"]


def run(op, spec, *, lazy=None):
    world = WorldSpec(
        spec.world_size, start_method="fork", timeout=30, lazy=op.lazy if lazy is None else lazy
    )
    return report(op, spec, run_world(world, demo, (op, spec)))


def given_values(world_size, numel, seed):
    """Small whole numbers without a pattern, a row a label: exact in every dtype, also summed."""
    return tuple(
        tuple((seed + 7 * label + 3 * position * position) % 3 for position in range(numel))
        for label in range(world_size)
    )


PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "avg": operator.add,
    "product": operator.mul,
    "min": min,
    "max": max,
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
}


def plainly(spec, rows):  # noqa: PLR0911 - one return an op
    """What every rank should hold, by lists of Python numbers; None where it is undefined."""
    n, root = spec.world_size, spec.root
    if spec.op == "broadcast":
        return [[rows[root]]] * n
    if spec.op == "scatter":
        return [[rows[rank]] for rank in range(n)]
    if spec.op == "gather":
        return [list(rows) if rank == root else [] for rank in range(n)]
    if spec.op == "all_gather":
        return [list(rows)] * n
    if spec.op == "p2p" and spec.pattern == "ring":
        return [[rows[(rank - 1) % n]] for rank in range(n)]
    if spec.op == "p2p":
        return [[rows[spec.src] if rank == spec.dst else rows[rank]] for rank in range(n)]
    total = [functools.reduce(PLAIN[spec.reduce_op], column) for column in zip(*rows, strict=True)]
    if spec.reduce_op == "avg":
        total = [number / n for number in total]
    return [[total] if spec.op == "all_reduce" or rank == root else None for rank in range(n)]


def flat(holding):
    """The numbers of each piece that is shown."""
    return None if holding.undefined else [list(piece.head) for piece in holding.pieces]


specs = st.fixed_dictionaries(
    {
        "op": st.sampled_from(sorted(ops.REGISTRY)),
        "world_size": st.integers(1, 6),
        "dtype": st.sampled_from(sorted(GLOO.dtypes)),
        "shape": st.sampled_from([(), (1,), (2,), (5,), (2, 3), (1, 1, 4)]),
        "where": st.integers(0, 5),
        "other": st.integers(1, 5),
        "reduce_op": st.sampled_from(sorted(PLAIN)),
        "pattern": st.sampled_from(["pair", "ring"]),
        "async_op": st.booleans(),
        "seed": st.integers(0, 2),
        "default": st.booleans(),
    }
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(specs)
@example(
    {
        "op": "p2p",
        "world_size": 5,
        "dtype": "float32",
        "shape": (5,),
        "where": 0,
        "other": 1,
        "reduce_op": "sum",
        "pattern": "ring",
        "async_op": False,
        "seed": 0,
        "default": True,
    }
)
def test_every_op_agrees_with_plain_python(drawn):
    op = ops.REGISTRY[drawn["op"]]
    n = drawn["world_size"]
    assume(n >= op.smallest_world)
    spec = OpSpec(
        op=op.name,
        world_size=n,
        dtype=drawn["dtype"],
        shape=drawn["shape"],
        reduce_op=drawn["reduce_op"] if "reduce_op" in op.takes else None,
        root=drawn["where"] % n if "root" in op.takes else None,
        async_op=drawn["async_op"],
        **(
            {
                "pattern": drawn["pattern"],
                "src": drawn["where"] % n,
                "dst": (drawn["where"] + 1 + drawn["other"] % (n - 1)) % n,
            }
            if "pattern" in op.takes
            else {}
        ),
    )
    assume(GLOO.refuses(op.name, spec.dtype, spec.reduce_op) is None)
    assume(spec.src is None or spec.src != spec.dst)
    rows = given_values(n, spec.numel, drawn["seed"])
    if spec.dtype == "bool":
        rows = tuple(tuple(int(number > 0) for number in row) for row in rows)
    if not drawn["default"]:
        spec = OpSpec(**{**fields(spec), "values": rows})
    result = run(op, spec)
    assert result.ok, result.world.verdict or result.ranks
    if drawn["default"]:
        return  # the unit tests hold the default values' results against plain arithmetic
    wanted = plainly(spec, rows)
    for record in result.ranks:
        got = flat(record.after)
        if wanted[record.rank] is None:
            assert got is None
            continue
        for piece, numbers in itertools.zip_longest(got, wanted[record.rank]):
            assert piece == pytest.approx(list(numbers), rel=1e-2), (spec, record.rank)


def fields(spec):
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


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
    assert flat(result.ranks[1].after) == [[3.0] * 4]
    assert result.ranks[0].verification.checked == 0


# --------------------------------------------------------------------------- verification bites


class WrongElement(AllReduce):
    """One element of one rank is off by one."""

    def run(self, buffers, spec, group, *, async_op):
        done = super().run(buffers, spec, group, async_op=async_op)
        if dist.get_rank() == 2:
            buffers.recv[0][1] += 1
        return done


class MissingContribution(AllReduce):
    """Rank 1's data never gets into the sum."""

    def run(self, buffers, spec, group, *, async_op):
        if dist.get_rank() == 1:
            buffers.recv[0].zero_()
        return super().run(buffers, spec, group, async_op=async_op)


class WrongReduceOp(AllReduce):
    """One rank reduces by another operation: gloo says nothing."""

    def run(self, buffers, spec, group, *, async_op):
        mine = OpSpec(**{**fields(spec), "reduce_op": "max"})
        return super().run(buffers, mine, group, async_op=async_op)


class SwappedPair(AllGather):
    """Two ranks' pieces arrive in each other's place, on rank 0."""

    def run(self, buffers, spec, group, *, async_op):
        if dist.get_rank() == 0:
            order = [1, 0, *range(2, spec.world_size)]
            buffers = Buffers(buffers.send, [buffers.recv[place] for place in order])
        return super().run(buffers, spec, group, async_op=async_op)


class AliasedList(AllGather):
    """The usual mistake: one tensor n times as the output list."""

    def run(self, buffers, spec, group, *, async_op):
        same = buffers.recv[0]
        done = super().run(
            Buffers(buffers.send, [same] * spec.world_size), spec, group, async_op=async_op
        )
        for piece in buffers.recv:
            piece.copy_(same)
        return done


class WrongRoot(Broadcast):
    """Everybody takes rank 1's data although another root was asked for."""

    def run(self, buffers, spec, group, *, async_op):
        wrong = OpSpec(**{**fields(spec), "root": 1})
        return super().run(buffers, wrong, group, async_op=async_op)


class ShiftedPieces(Scatter):
    """Each rank gets its neighbour's piece."""

    def run(self, buffers, spec, group, *, async_op):
        shifted = Buffers(buffers.send[1:] + buffers.send[:1], buffers.recv)
        return super().run(shifted, spec, group, async_op=async_op)


class LostPiece(Gather):
    """One piece never arrives at the root."""

    def run(self, buffers, spec, group, *, async_op):
        spare = [torch.empty_like(piece) for piece in buffers.recv[-1:]]
        part = Buffers(buffers.send, buffers.recv[:-1] + spare)
        return super().run(part, spec, group, async_op=async_op)


class NothingSent(PointToPoint):
    """Neither rank does anything."""

    def run(self, buffers, spec, group, *, async_op):
        return ()


CORRUPTED = [
    (WrongElement(), {2}, {"piece": 0, "index": [1], "got": 65.0, "expected": 64.0}),
    (MissingContribution(), {0, 1, 2, 3}, {"index": [0], "got": 50.0, "expected": 60.0}),
    (WrongReduceOp(), {0, 1, 2, 3}, {"index": [0], "got": 30.0, "expected": 60.0}),
    (SwappedPair(), {0}, {"piece": 0, "index": [0], "got": 10.0, "expected": 0.0}),
    (AliasedList(), {0, 1, 2, 3}, {"piece": 0, "index": [0]}),
    (WrongRoot(), {0, 1, 2, 3}, {"index": [0], "got": 10.0, "expected": 0.0}),
    (ShiftedPieces(), {0, 1, 2, 3}, {"index": [0], "got": 10.0, "expected": 0.0}),
    (LostPiece(), {0}, {"piece": 3, "got": "NaN", "expected": 30.0}),
    (NothingSent(), {1}, {"index": [0], "got": 10.0, "expected": 0.0}),
]


def flags(op, **changes):
    """The flags of a command that nobody touched."""
    from distdemo.cli.options import OPTIONS

    untouched = {name: default for name, (_, default) in OPTIONS.items() if name != "op"}
    return {**untouched, "root": None, "world_size": "4", "start_method": "fork", **changes}


@pytest.mark.parametrize(
    ("op", "ranks", "first"), CORRUPTED, ids=[type(op).__name__ for op, _, _ in CORRUPTED]
)
def test_a_corrupted_result_is_reported_and_exits_1(op, ranks, first, capsys):
    with pytest.raises(typer.Exit) as left:
        run_op(op, flags(op, format="json"))
    assert left.value.exit_code == 1
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is False
    assert {error["ranks"][0] for error in result["errors"]} == ranks
    assert {rank["rank"] for rank in result["ranks"] if rank["verified"] is False} == ranks
    found = result["errors"][0]["mismatches"][0]
    assert {name: found[name] for name in first} == first


def test_a_corrupted_result_is_told_in_the_table(capsys):
    with pytest.raises(typer.Exit):
        run_op(WrongElement(), flags(WrongElement()))
    out = capsys.readouterr().out
    assert "rank 2, index 1: got 65, expected 64" in out
    assert "Wrong: 1 of 16 elements, on rank 2" in out
