"""Every op made wrong: the verification finds it, on the ranks where it is."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch
import torch.distributed as dist
from golden import drawn
from running import run

from distdemo.demo.command import OpOptions, Straggler
from distdemo.demo.request import make_specs
from distdemo.demo.view import table
from distdemo.ops.all_gather import AllGather
from distdemo.ops.all_reduce import AllReduce
from distdemo.ops.all_to_all import AllToAll
from distdemo.ops.barrier import Barrier
from distdemo.ops.broadcast import Broadcast
from distdemo.ops.contract import Buffers
from distdemo.ops.gather import Gather
from distdemo.ops.p2p import PointToPoint
from distdemo.ops.reduce_scatter import ReduceScatter
from distdemo.ops.scatter import Scatter


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
        mine = replace(spec, reduce_op="max")
        return super().run(buffers, mine, group, async_op=async_op)


class SwappedPair(AllGather):
    """Two ranks' pieces arrive in each other's place, on rank 0."""

    def run(self, buffers, spec, group, *, async_op):
        if dist.get_rank() == 0:
            order = [1, 0, *range(2, spec.group_size)]
            buffers = Buffers(buffers.send, [buffers.recv[place] for place in order])
        return super().run(buffers, spec, group, async_op=async_op)


class AliasedList(AllGather):
    """The usual mistake: one tensor n times as the output list."""

    def run(self, buffers, spec, group, *, async_op):
        same = buffers.recv[0]
        done = super().run(
            Buffers(buffers.send, [same] * spec.group_size), spec, group, async_op=async_op
        )
        for piece in buffers.recv:
            piece.copy_(same)
        return done


class WrongRoot(Broadcast):
    """Everybody takes rank 1's data although another root was asked for."""

    def run(self, buffers, spec, group, *, async_op):
        wrong = replace(spec, root=1)
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


class NeighboursPart(ReduceScatter):
    """Each rank gets the part of the next one."""

    def run(self, buffers, spec, group, *, async_op):
        shifted = Buffers(buffers.send[1:] + buffers.send[:1], buffers.recv)
        return super().run(shifted, spec, group, async_op=async_op)


class LostPart(ReduceScatter):
    """Rank 3's part for rank 0 never gets into the sum."""

    def run(self, buffers, spec, group, *, async_op):
        if dist.get_rank() == 3:
            buffers.send[0].zero_()
        return super().run(buffers, spec, group, async_op=async_op)


class NotTransposed(AllToAll):
    """Everybody gets its own parts back."""

    def run(self, buffers, spec, group, *, async_op):
        for mine, place in zip(buffers.send, buffers.recv, strict=True):
            place.copy_(mine)
        return ()


class WrongOffsets(AllToAll):
    """What rank 2 gets lies one element too far on in its single tensor."""

    def run(self, buffers, spec, group, *, async_op):
        done = super().run(buffers, spec, group, async_op=async_op)
        if dist.get_rank() == 2:
            buffers.recv_joined.copy_(buffers.recv_joined.roll(1))
        return done


class PaddingLeft(AllGather):
    """The last element of the last tensor is taken from the padding, on rank 0."""

    def run(self, buffers, spec, group, *, async_op):
        done = super().run(buffers, spec, group, async_op=async_op)
        if dist.get_rank() == 0:
            buffers.recv[-1][-1] = 0
        return done


class NothingWritten(AllGather):
    """The output is never written to, on rank 3."""

    def run(self, buffers, spec, group, *, async_op):
        spare = torch.empty_like(buffers.recv_joined)
        mine = buffers.recv_joined if dist.get_rank() != 3 else spare
        return super().run(
            Buffers(buffers.send, buffers.recv, recv_joined=mine), spec, group, async_op=async_op
        )


class OneObjectForAll(AllGather):
    """Everybody's object is rank 0's, wherever one looks."""

    def run(self, buffers, spec, group, *, async_op):
        done = super().run(buffers, spec, group, async_op=async_op)
        buffers.recv[:] = [buffers.recv[0]] * spec.group_size
        return done


class AlteredObject(Broadcast):
    """A list within the object becomes longer on its way to rank 2."""

    def run(self, buffers, spec, group, *, async_op):
        done = super().run(buffers, spec, group, async_op=async_op)
        if dist.get_rank() == 2:
            buffers.recv[0]["items"].append(1)
        return done


class SidesSwapped(PointToPoint):
    """The left neighbour's tensor lies in the right one's place, on rank 1."""

    def run(self, buffers, spec, group, *, async_op):
        if dist.get_rank() == 1:
            buffers = Buffers(buffers.send, buffers.recv[::-1])
        return super().run(buffers, spec, group, async_op=async_op)


class WrongWayRound(PointToPoint):
    """The ring turns to the left."""

    def run(self, buffers, spec, group, *, async_op):
        both = [torch.empty_like(buffers.send[0]) for _ in range(2)]
        exchange = replace(spec, pattern="exchange")
        super().run(Buffers(buffers.send, both), exchange, group, async_op=False)
        buffers.recv[0].copy_(both[1])
        return ()


class OpenBarrier(Barrier):
    """It lets everybody through at once."""

    def run(self, buffers, spec, group, *, async_op):
        return ()


CORRUPTED = [
    (WrongElement(), {}, {2}, {"piece": 0, "index": (1,), "got": 65.0, "expected": 64.0}),
    (MissingContribution(), {}, {0, 1, 2, 3}, {"index": (0,), "got": 50.0, "expected": 60.0}),
    (WrongReduceOp(), {}, {0, 1, 2, 3}, {"index": (0,), "got": 30.0, "expected": 60.0}),
    (SwappedPair(), {}, {0}, {"piece": 0, "index": (0,), "got": 10.0, "expected": 0.0}),
    (AliasedList(), {}, {0, 1, 2, 3}, {"piece": 0, "index": (0,)}),
    (WrongRoot(), {}, {0, 1, 2, 3}, {"index": (0,), "got": 10.0, "expected": 0.0}),
    (ShiftedPieces(), {}, {0, 1, 2, 3}, {"index": (0,), "got": 10.0, "expected": 0.0}),
    (LostPiece(), {}, {0}, {"piece": 3, "got": "nan", "expected": 30.0}),
    (NothingSent(), {}, {1}, {"index": (0,), "got": 10.0, "expected": 0.0}),
    (NeighboursPart(), {}, {0, 1, 2, 3}, {"index": (0,), "got": 68.0, "expected": 60.0}),
    (LostPart(), {"variant": "single"}, {0}, {"index": (0,), "got": 30.0, "expected": 60.0}),
    (NotTransposed(), {}, {0, 1, 2, 3}, {"piece": 1, "got": 2.0, "expected": 10.0}),
    (WrongOffsets(), {"splits": [(1, 0, 2, 3)]}, {2}, {"piece": 0, "expected": 1.0}),
    (
        PaddingLeft(),
        {"sizes": (3, 0, 7, 1)},
        {0},
        {"piece": 3, "got": 0.0, "expected": 30.0},
    ),
    (NothingWritten(), {"variant": "single"}, {3}, {"piece": 0, "got": "nan", "expected": 0.0}),
    (OneObjectForAll(), {"objects": True}, {0, 1, 2, 3}, {"piece": 1, "index": ()}),
    (
        AlteredObject(),
        {"objects": True},
        {2},
        {"got": '{"rank": 0, "items": [1]}', "expected": '{"rank": 0, "items": []}'},
    ),
    (SidesSwapped(), {"pattern": "exchange"}, {1}, {"piece": 0, "got": 20.0, "expected": 0.0}),
    (WrongWayRound(), {"pattern": "ring"}, {0, 1, 2, 3}, {"got": 10.0, "expected": 30.0}),
]


def ran(op, **given):
    """The op on four ranks, with these options of its command."""
    return run(op, *make_specs(op, OpOptions(**given), 4))


def wrong_ranks(report):
    return {each.rank for each in report.ranks if not each.verification.ok}


@pytest.mark.parametrize(
    ("op", "more", "ranks", "first"), CORRUPTED, ids=[type(op).__name__ for op, *_ in CORRUPTED]
)
def test_a_corrupted_result_is_found_where_it_is(op, more, ranks, first):
    report = ran(op, **more)
    assert not report.ok
    assert wrong_ranks(report) == ranks
    found = asdict(report.ranks[min(ranks)].verification.mismatches[0])
    found["got"] = str(found["got"]) if found["got"] != found["got"] else found["got"]
    assert {name: found[name] for name in first} == first


@pytest.mark.parametrize("monitored", [False, True])
def test_an_open_barrier_is_noticed_by_whoever_left_first(monitored):
    # The straggler comes as soon as somebody has left without it, however late it should be.
    report = ran(OpenBarrier(), straggler=Straggler(1, 60), monitored=monitored)
    assert wrong_ranks(report)
    for rank in wrong_ranks(report):
        (miss,) = report.ranks[rank].verification.mismatches
        assert miss.got < miss.expected == 4


@pytest.mark.parametrize(
    ("op", "more", "lines"),
    [
        (
            WrongElement(),
            {},
            ["rank 2, index 1: got 65, expected 64", "Wrong: 1 of 16 elements, on rank 2."],
        ),
        (OpenBarrier(), {"straggler": Straggler(2, 60)}, ["had come", "let go too early, on rank"]),
        (
            AlteredObject(),
            {"objects": True},
            ['got {"rank": 0, "items": [1]}, expected {"rank": 0, "items": []}', "1 of 4 objects"],
        ),
    ],
    ids=["element", "barrier", "object"],
)
def test_what_is_wrong_is_told_in_the_table(op, more, lines):
    report = ran(op, **more)
    text = " ".join(drawn(lambda console: table(report, console)).split())
    assert all(line in text for line in lines), text
