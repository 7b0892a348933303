"""``distdemo.comm`` on real ranks."""

from __future__ import annotations

import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore  # torch.distributed's own, typed

import distdemo
from distdemo import comm
from distdemo.comm import carrier
from distdemo.errors import DistdemoError

launch = partial(distdemo.launch, start_method="fork")
WORLDS = pytest.mark.parametrize("world_size", [1, 3, 5])

SIZES = (3, 0, 7, 1, 2)
"""Rows of ranks 0 to 4."""


def value_of(rank):
    """Another size and another form on each rank, with a tensor inside."""
    return {"rank": rank, "deep": [("x" * 1000 * rank, None)] * rank, "t": torch.full((rank,), 7)}


def same(left, right):
    return repr(left) == repr(right)


def rows_of(rank, *trailing, dtype=torch.float32):
    count = SIZES[rank] * torch.Size(trailing).numel()
    return (torch.arange(count) + 10 * rank).reshape(SIZES[rank], *trailing).to(dtype)


def error_of(call):
    """What a call raises, in words."""
    try:
        call()
    except DistdemoError as error:
        return str(error)
    return None


# ------------------------------------------------------------------------------------- who am I


@WORLDS
def test_each_rank_knows_itself(world_size):
    def who():
        comm.synchronize()
        return comm.get_rank(), comm.get_world_size(), comm.is_main()

    expected = [(rank, world_size, rank == 0) for rank in range(world_size)]
    assert launch(who, world_size=world_size) == expected


def test_nobody_leaves_synchronize_before_all_have_come(tmp_path):
    def meet(rank):
        (tmp_path / str(rank)).touch()
        comm.synchronize()
        return len(list(tmp_path.iterdir()))

    assert launch(meet, world_size=3) == [3, 3, 3]


# -------------------------------------------------------------------------------------- objects


@WORLDS
def test_objects_of_unequal_size_reach_every_rank_twice(world_size):
    def gather(rank):
        return [comm.all_gather_objects(value_of(rank)) for _ in range(2)]

    expected = [value_of(rank) for rank in range(world_size)]
    for twice in launch(gather, world_size=world_size):
        assert same(twice, [expected, expected])


@WORLDS
def test_objects_are_gathered_on_dst_alone(world_size):
    last = world_size - 1

    def gather(rank):
        return comm.gather_objects(value_of(rank), dst=last)

    *others, mine = launch(gather, world_size=world_size)
    assert others == [None] * last
    assert same(mine, [value_of(rank) for rank in range(world_size)])


@WORLDS
def test_an_object_is_broadcast_from_any_rank_whatever_the_others_give(world_size):
    def broadcast(rank):
        results = []
        for src in range(world_size):
            mine = value_of(src) if rank == src else lambda: "not pickled"
            results.append(comm.broadcast_object(mine, src))
            assert rank != src or results[-1] is mine
        return results

    for results in launch(broadcast, world_size=world_size):
        assert same(results, [value_of(src) for src in range(world_size)])


def test_roots_count_in_the_group():
    def subgroup(rank):
        group = dist.new_group([1, 3, 4])
        if rank in (0, 2):
            return None
        return (
            comm.all_gather_objects(rank, group),
            comm.gather_objects(rank, dst=2, group=group),
            comm.broadcast_object(rank, src=1, group=group),
            [part.tolist() for part in comm.all_gather_uneven(rows_of(rank), group)],
        )

    rows = [rows_of(rank).tolist() for rank in (1, 3, 4)]
    assert launch(subgroup, world_size=5) == [
        None,
        ([1, 3, 4], None, 3, rows),
        None,
        ([1, 3, 4], None, 3, rows),
        ([1, 3, 4], [1, 3, 4], 3, rows),
    ]


def test_a_group_of_one_rank_communicates_with_nobody():
    def alone(rank):
        groups = [dist.new_group([0]), dist.new_group([1])]
        value = object()
        return comm.all_gather_objects(value, groups[rank])[0] is value

    assert launch(alone, world_size=2) == [True, True]


def test_a_rank_outside_the_group_is_told_so_and_the_others_go_on():
    def subgroup(rank):
        group = dist.new_group([0, 1])
        results: list[Any] = []
        calls = [
            lambda: results.append(comm.all_gather_objects(rank, group)),
            lambda: results.append(comm.gather_objects(rank, 0, group)),
            lambda: results.append(comm.broadcast_object(rank, 0, group)),
            lambda: results.append(len(comm.all_gather_uneven(torch.ones(rank), group))),
        ]
        return results, [error_of(call) for call in calls]

    first, second, (results, errors) = launch(subgroup, world_size=3)
    assert first == ([[0, 1], [0, 1], 0, 2], [None] * 4)
    assert second == ([[0, 1], None, 0, 2], [None] * 4)
    assert results == []
    assert all("Rank 2 is not in the group that it was given." in error for error in errors)


class Unreadable:
    """Pickles; unpickles to an error."""

    def __reduce__(self):
        return int, ("no number",)


def test_a_value_that_does_not_unpickle_is_an_error_with_its_cause():
    def receive(rank):
        return error_of(lambda: comm.broadcast_object(Unreadable(), src=0))

    first, second = launch(receive, world_size=2)
    assert first is None  # src keeps its own
    assert "A value that arrived can't be read on this rank." in second
    assert "ValueError: invalid literal" in second


def test_a_value_that_does_not_pickle_is_an_error_of_every_rank_that_needed_it():
    def gather(rank):
        value = (lambda: 0) if rank == 1 else rank
        errors = [
            error_of(lambda: comm.all_gather_objects(value)),
            error_of(lambda: comm.gather_objects(value)),
            error_of(lambda: comm.broadcast_object(value, src=1)),
        ]
        return errors, comm.broadcast_object(value), comm.all_gather_objects(rank)

    for errors, broadcast, gathered in launch(gather, world_size=3):
        assert all("The value of rank 1 can't be sent." in error for error in errors)
        assert all("lambda" in error for error in errors)
        assert (broadcast, gathered) == (0, [0, 1, 2])  # the group is as good as before


@pytest.mark.parametrize(
    ("roots", "complaint"),
    [
        ((0, 1, 0), "Ranks 0, 2: root 0. Rank 1: root 1."),
        ((0, 0, 3), "Ranks 0, 1: root 0. Rank 2: root 3."),
        ((3, 3, 3), "The group has 3 ranks, counted from 0."),
        ((-1, -1, -1), "Rank -1 can't be the root."),
    ],
    ids=str,
)
def test_a_root_that_is_wrong_or_disputed_is_refused_on_every_rank(roots, complaint):
    def gather(rank):
        return (
            error_of(lambda: comm.gather_objects(rank, dst=roots[rank])),
            error_of(lambda: comm.broadcast_object(rank, src=roots[rank])),
        )

    for errors in launch(gather, world_size=3):
        assert all(complaint in error for error in errors)


def test_different_functions_at_the_same_time_are_refused_on_every_rank():
    def confused(rank):
        call = comm.broadcast_object if rank == 1 else comm.all_gather_objects
        return error_of(lambda: call(rank))

    for error in launch(confused, world_size=3):
        assert "Ranks 0, 2: all_gather_objects. Rank 1: broadcast_object." in error


# -------------------------------------------------------------------------------------- tensors


@WORLDS
@pytest.mark.parametrize("trailing", [(), (2,), (2, 0)], ids=str)
def test_tensors_with_unequal_first_dimensions(world_size, trailing):
    def gather(rank):
        return [comm.all_gather_uneven(rows_of(rank, *trailing)) for _ in range(2)]

    expected = [rows_of(rank, *trailing) for rank in range(world_size)]
    for results in launch(gather, world_size=world_size):
        for parts in results:
            assert all(map(torch.equal, parts, expected))
            assert [part.shape for part in parts] == [part.shape for part in expected]


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.int16, torch.bfloat16, torch.complex64, torch.float8_e4m3fn],
    ids=str,
)
def test_any_dtype_travels(dtype):
    def gather(rank):
        parts = comm.all_gather_uneven(rows_of(rank, 2, dtype=dtype))
        assert all(part.dtype == dtype for part in parts)
        return [part.view(torch.uint8) for part in parts]

    expected = [rows_of(rank, 2, dtype=dtype).view(torch.uint8) for rank in range(3)]
    for parts in launch(gather, world_size=3):
        assert all(map(torch.equal, parts, expected))


def test_nobody_has_a_row():
    def gather():
        return [list(part.shape) for part in comm.all_gather_uneven(torch.ones(0, 4))]

    assert launch(gather, world_size=3) == [[[0, 4]] * 3] * 3


def test_results_share_no_memory_with_each_other_or_the_input_and_hold_no_padding():
    def gather(rank):
        mine = rows_of(rank)
        parts = comm.all_gather_uneven(mine)
        for part in parts:
            part.fill_(-1)
        sizes = [part.untyped_storage().nbytes() // 4 for part in parts]
        return torch.equal(mine, rows_of(rank)), sizes

    assert launch(gather, world_size=3) == [(True, [3, 0, 7])] * 3


@pytest.mark.parametrize(
    ("tensors", "complaint"),
    [
        (
            (torch.ones(3, 4), torch.ones(3, 5), torch.ones(0, 4)),
            "Ranks 0, 2: float32 [*, 4] on cpu. Rank 1: float32 [*, 5] on cpu.",
        ),
        (
            (torch.ones(3), torch.ones(3), torch.ones(3).double()),
            "Ranks 0, 1: float32 [*] on cpu. Rank 2: float64 [*] on cpu.",
        ),
        (
            (torch.ones(2), torch.ones(2, 1), torch.tensor(2.0)),
            "Rank 1: float32 [*, 1] on cpu. Rank 2: a float32 tensor without dimensions.",
        ),
        ((torch.tensor(2),) * 3, "Ranks 0, 1, 2: a int64 tensor without dimensions."),
        (
            (torch.ones(2), None, None),
            "Rank 0: float32 [*] on cpu. Ranks 1, 2: NoneType, no tensor",
        ),
    ],
    ids=["shape", "dtype", "dimensions", "scalars", "no tensor"],
)
def test_tensors_that_do_not_fit_are_refused_on_every_rank(tensors, complaint):
    def gather(rank):
        error = error_of(lambda: comm.all_gather_uneven(tensors[rank]))
        return error, len(comm.all_gather_uneven(torch.ones(rank)))

    for error, good in launch(gather, world_size=3):
        assert complaint in error
        assert good == 3  # the group is as good as before


def test_the_steps_are_told_with_what_is_held_and_sent():
    def gather(rank):
        steps = []

        def note(name, held, sent):
            steps.append((name, [tensor.tolist() for tensor in held], sent))

        comm.all_gather_uneven(rows_of(rank)[:2], note=note)
        return steps

    rows = [[0.0, 1.0], [], [20.0, 21.0]]
    padded = [[0.0, 1.0], [0.0, 0.0], [20.0, 21.0]]
    assert launch(gather, world_size=3) == [
        [
            ("all_gather the sizes", [[2, 0, 2]], 24),
            ("pad to the largest", [padded[rank]], 0),
            ("all_gather", padded, 8),
            ("trim", rows, 0),
        ]
        for rank in range(3)
    ]


# --------------------------------------------------------------------------------------- groups


def test_no_call_warns():
    def calls(rank):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            comm.synchronize()
            comm.all_gather_objects(rank)
            comm.gather_objects(rank)
            comm.broadcast_object(rank)
            comm.all_gather_uneven(torch.ones(rank, requires_grad=True))
        return [str(warning.message) for warning in caught]

    assert launch(calls, world_size=2) == [[], []]


def begin_again(directory, name, rank, world_size, backend):
    """Collective: destroy every group and initialise a new default group."""
    if dist.is_initialized():
        dist.destroy_process_group()
    store = FileStore(str(Path(directory) / name), world_size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size)


@pytest.mark.parametrize("backend", ["gloo", "cuda:gloo"], ids=["CPU tensors", "no CPU tensors"])
def test_a_group_destroyed_and_initialised_again(backend):
    def again(rank, size, directory):
        results = []
        for name in "abc":
            begin_again(directory, name, rank, size, backend)
            old = dist.group.WORLD
            for _ in range(2):
                results += [comm.all_gather_objects(rank), comm.gather_objects(rank, 1)]
                results.append([len(part) for part in comm.all_gather_uneven(rows_of(rank))])
            comm.synchronize()
        dist.destroy_process_group()
        gone = error_of(lambda: comm.all_gather_objects(rank, old))
        return results, gone, comm.get_world_size(), comm.all_gather_objects(rank)

    with tempfile.TemporaryDirectory() as directory:
        ranks = launch(again, args=(directory,), world_size=3)
    for rank, (results, gone, world_size, alone) in enumerate(ranks):
        gathered = [0, 1, 2] if rank == 1 else None
        assert results == [[0, 1, 2], gathered, [3, 0, 7]] * 6
        assert "The group is not there any more." in gone
        assert (world_size, alone) == (1, [rank])


def test_a_group_without_cpu_tensors_has_one_cpu_group_for_as_long_as_it_lives():
    def beside(rank, size, directory):
        begin_again(directory, "store", rank, size, "cuda:gloo")
        before = dist.get_pg_count()
        found = [comm.broadcast_object(rank, src=2) for _ in range(3)]
        made = dist.get_pg_count() - before
        held = [len(carrier._cpu_groups)]
        dist.destroy_process_group()
        held.append(len(carrier._cpu_groups))
        return found, made, held

    with tempfile.TemporaryDirectory() as directory:
        ranks = launch(beside, args=(directory,), world_size=3)
    assert ranks == [([2, 2, 2], 1, [1, 0])] * 3


def test_a_subgroup_that_was_destroyed_is_named_so():
    def gone(rank):
        group = dist.new_group([0, 1])
        comm.all_gather_objects(rank, group)
        dist.destroy_process_group(group)
        return error_of(lambda: comm.all_gather_objects(rank, group))

    for error in launch(gone, world_size=2):
        assert "The group is not there any more." in error
