"""From what was asked for to a plan, what a rank does in it, and how its memory lies."""

from __future__ import annotations

import pytest
import torch

from distdemo.dtypes import DTYPES
from distdemo.errors import UsageError
from distdemo.ops.reduction import REDUCTIONS
from distdemo.ops.spec import OpSpec
from distdemo.trace import algorithms
from distdemo.trace.algorithms.schedule import Sizes
from distdemo.trace.memory import Memory, Scratch, first_numbers, ordered
from distdemo.trace.plans import about, algorithm, check_traceable, plan_for
from distdemo.trace.roles import roles
from distdemo.trace.tracing import TraceSpec


def test_an_algorithm_is_found_by_name_and_the_ops_first_one_without():
    assert algorithm("all_reduce").name == "ring"
    assert algorithm("all_reduce", "naive").name == "naive"


@pytest.mark.parametrize(
    ("op", "name", "what", "hint"),
    [
        ("all_reduce", "rign", "all-reduce has no algorithm rign.", "Try --algorithm ring."),
        ("barrier", None, "There is no algorithm for barrier.", "Try distdemo trace --list."),
    ],
)
def test_an_unknown_algorithm_is_refused_with_what_there_is(op, name, what, hint):
    with pytest.raises(UsageError) as refused:
        algorithm(op, name)
    assert (refused.value.what, refused.value.hint) == (what, hint)


@pytest.mark.parametrize(
    ("name", "chunks", "what"),
    [
        ("tree", 3, "--chunks 3: tree of broadcast cuts as it must."),
        ("chain", 0, "--chunks 0 is out of range: 1 to 4,096."),
    ],
)
def test_chunks_that_an_algorithm_can_not_have_are_refused(name, chunks, what):
    with pytest.raises(UsageError) as refused:
        plan_for(TraceSpec(OpSpec("broadcast", 4, root=0), name, chunks))
    assert refused.value.what == what


def test_arithmetic_that_torch_lacks_is_refused_and_no_other():
    refused = set()
    for dtype in DTYPES.values():
        for reduction in REDUCTIONS.values():
            if dtype.kind not in reduction.kinds:
                continue
            combine = getattr(torch, reduction.torch_combine)
            pair = torch.empty(2, dtype=getattr(torch, dtype.name))
            try:
                check_traceable(OpSpec("reduce", 2, dtype.name, reduce_op=reduction.name, root=0))
            except UsageError:
                refused.add(dtype.name)
            else:
                combine(pair, pair, out=pair)
    assert refused == {"float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"}


def test_uneven_tensors_and_objects_are_refused():
    for more in ({"objects": True}, {"sizes": (1, 2)}, {"splits": ((1, 1), (1, 1))}):
        with pytest.raises(UsageError, match="Only tensors of one shape"):
            check_traceable(OpSpec("all_gather", 2, **more))


def test_every_algorithm_is_put_into_words():
    for each in algorithms.REGISTRY:
        words = about(each)
        assert words.source
        assert [name for name, _ in words.formulas] == ["rounds", "sent", "busiest", "total"]


# ----------------------------------------------------------------------------------------- roles


def test_a_role_is_what_one_rank_sends_gets_and_loses():
    plan = plan_for(TraceSpec(OpSpec("scatter", 4, shape=(2,), root=0), "tree"))
    first, second = roles(2, plan)
    assert [each.chunks for each in first.receives] == [(2, 3)]
    assert (first.arrived, first.gone, sorted(first.fresh)) == ((2, 3), (), [2, 3])
    assert [(each.dst, each.chunks) for each in second.sends] == [(3, (3,))]
    assert (second.arrived, second.gone) == ((), (3,))


def test_empty_messages_are_no_part_of_a_role_but_what_they_carry_arrives():
    plan = plan_for(TraceSpec(OpSpec("broadcast", 2, shape=(0,), root=0), "tree"))
    (role,) = roles(1, plan)
    assert (role.sends, role.receives, role.arrived) == ((), (), (0,))


# ---------------------------------------------------------------------------------------- memory


def test_chunks_in_a_row_are_one_piece_and_empty_ones_are_nowhere():
    memory = Memory(Sizes.cut(4, 6), range(6), torch.float32, "cpu")
    memory.flat.copy_(torch.arange(4))
    assert [run.tolist() for run in memory.runs((0, 1))] == [[0, 1]]
    assert [run.tolist() for run in memory.runs((1, 5, 2, 0))] == [[1, 2], [0]]
    assert memory.runs((4, 5)) == []
    assert memory.of(5).numel() == 0


def test_chunks_lie_so_that_the_fewest_elements_are_packed():
    messages = [((2, 3, 0), 30), ((0, 1), 5)]
    assert ordered(range(4), messages, (0, 2)) == [2, 3, 0, 1]
    assert ordered(range(4), messages[1:], (0, 2)) == [0, 1, 2, 3]


def test_room_that_was_taken_in_a_round_is_not_given_twice():
    scratch = Scratch(torch.empty(0, dtype=torch.int64))
    first, second = scratch.take(3), scratch.take(200)
    first.fill_(1)
    second.fill_(2)
    assert first.tolist() == [1, 1, 1]
    third = scratch.take(5)
    third.fill_(3)
    assert set(second.tolist()) == {2}
    scratch.clear()
    assert scratch.take(200).data_ptr() == third.data_ptr()


def test_the_first_numbers_of_a_bool_that_is_none_are_told_by_their_byte():
    odd = torch.tensor([0, 1, 7], dtype=torch.uint8).view(torch.bool)
    assert first_numbers(odd) == (False, True, "byte 7")
    assert first_numbers(torch.arange(9.0)) == (0.0, 1.0, 2.0, 3.0)
