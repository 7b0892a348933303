"""Call ``distdemo.comm`` on real ranks, and in a program that was started alone."""

from __future__ import annotations

import subprocess
import sys
import warnings
from functools import partial
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore  # torch.distributed's own, typed

from distdemo import comm
from distdemo.errors import DistdemoError

SIZES = (3, 0, 7, 1, 2)
"""Rows of ranks 0 to 4."""


def value_of(rank):
    """Return a value whose size and structure depend on the rank, with a tensor inside."""
    return {"rank": rank, "deep": [("x" * 1000 * rank, None)] * rank, "t": torch.full((rank,), 7)}


def rows_of(rank, *trailing, dtype=torch.float32):
    count = SIZES[rank] * torch.Size(trailing).numel()
    return (torch.arange(count) + 10 * rank).reshape(SIZES[rank], *trailing).to(dtype)


def same(left, right):
    return repr(left) == repr(right)


def error_of(call):
    """Return the text of the error that a call raises."""
    try:
        call()
    except DistdemoError as error:
        return str(error)
    return None


# -------------------------------------------------------------------------------------- alone


@pytest.mark.processes
def test_torch_is_neither_imported_nor_needed() -> None:
    script = """
import sys
sys.modules["torch"] = None  # any import of it raises
from distdemo import comm
assert (comm.get_rank(), comm.get_world_size(), comm.is_main()) == (0, 1, True)
comm.synchronize()
assert comm.all_gather_objects({"a": 1}) == [{"a": 1}]
assert comm.gather_objects("x") == ["x"]
assert comm.broadcast_object("x") == "x"
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_world_of_one_gives_objects_themselves_and_copies_of_tensors() -> None:
    value: Any = [lambda: 0]  # doesn't pickle, and needn't
    assert comm.all_gather_objects(value)[0] is value
    assert (comm.gather_objects(value) or [])[0] is value
    assert comm.broadcast_object(value) is value
    view = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
    (copy,) = comm.all_gather_uneven(view)
    assert torch.equal(copy, view)
    assert (type(copy), copy.requires_grad) == (torch.Tensor, False)
    assert copy.data_ptr() != view.data_ptr()
    for call, complaint in (
        (lambda: comm.gather_objects("x", dst=1), "rank 1 can't be the root among 1"),
        (
            lambda: comm.all_gather_objects("x", cast("Any", dist.GroupMember.NON_GROUP_MEMBER)),
            "The group no longer exists.",
        ),
        (lambda: comm.all_gather_uneven(torch.tensor(1.0)), "doesn't take float32 [] on cpu"),
        (lambda: comm.all_gather_uneven(torch.eye(2).to_sparse()), "doesn't take sparse float32"),
    ):
        assert complaint in str(error_of(call))


# -------------------------------------------------------------------------------------- on ranks


@pytest.mark.ranks([1, 3])
def test_objects_and_tensors_of_unequal_size_reach_every_rank(rank, world_size):
    last = world_size - 1
    assert (comm.get_rank(), comm.get_world_size()) == (rank, world_size)
    assert comm.is_main() == (rank == 0)
    values = [value_of(other) for other in range(world_size)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        comm.synchronize()
        for _ in range(2):
            assert same(comm.all_gather_objects(value_of(rank)), values)
            gathered = comm.gather_objects(value_of(rank), dst=last)
            assert same(gathered, values if rank == last else None)
            for src in range(world_size):
                given = value_of(src) if rank == src else lambda: 0
                assert same(comm.broadcast_object(given, src), values[src])
            for more in ((), (2, 0)):
                rows = comm.all_gather_uneven(rows_of(rank, *more).requires_grad_())
                assert same(rows, [rows_of(other, *more) for other in range(world_size)])


@pytest.mark.ranks(2)
def test_any_dtype_travels_and_results_share_no_memory(rank):
    for dtype in (torch.bool, torch.bfloat16, torch.float8_e4m3fn):
        mine = rows_of(rank, 2, dtype=dtype)
        parts = comm.all_gather_uneven(mine)
        assert [part.dtype for part in parts] == [dtype] * 2
        for other, part in enumerate(parts):
            wanted = rows_of(other, 2, dtype=dtype)
            assert part.view(torch.uint8).tolist() == wanted.view(torch.uint8).tolist()
            assert part.untyped_storage().nbytes() == part.nbytes, "padding"
        parts[rank].zero_()
        assert same(mine, rows_of(rank, 2, dtype=dtype))


@pytest.mark.ranks(5)
def test_roots_count_in_the_group_and_ranks_outside_are_told_so(rank):
    group = dist.new_group([1, 3, 4])
    alone = [dist.new_group([member]) for member in range(5)][rank]
    value = object()
    assert comm.all_gather_objects(value, alone)[0] is value
    if rank in (0, 2):
        outside = f"Rank {rank} is not a member of this group."
        assert outside in str(error_of(lambda: comm.all_gather_objects(rank, group)))
        return
    assert comm.all_gather_objects(rank, group) == [1, 3, 4]
    assert comm.gather_objects(rank, dst=2, group=group) == ([1, 3, 4] if rank == 4 else None)
    assert comm.broadcast_object(rank, src=1, group=group) == 3
    assert same(comm.all_gather_uneven(rows_of(rank), group), [rows_of(r) for r in (1, 3, 4)])
    dist.destroy_process_group(group)
    gone = error_of(lambda: comm.all_gather_objects(rank, group))
    assert "The group no longer exists." in str(gone)


class Unreadable:
    """Value that can be pickled but not unpickled."""

    def __reduce__(self):
        return int, ("no number",)


MISTAKES = (
    # what a rank calls; what every rank is told
    (
        lambda rank: comm.all_gather_objects((lambda: 0) if rank == 1 else rank),
        "Rank 1: its value can't be pickled",
    ),
    (
        lambda rank: comm.gather_objects(0, dst=rank % 2),
        "Rank 1: gather_objects with root 1.",
    ),
    (lambda rank: comm.broadcast_object(0, src=3), "rank 3 can't be the root among 3"),
    (
        lambda rank: (comm.broadcast_object if rank == 1 else comm.all_gather_objects)(rank),
        "Ranks 0, 2: all_gather_objects. Rank 1: broadcast_object with root 0.",
    ),
    (
        lambda rank: comm.all_gather_uneven(torch.ones(3, 5 if rank == 1 else 4)),
        "Ranks 0, 2: all_gather_uneven of float32 [*, 4] on cpu. Rank 1: all_gather",
    ),
)


@pytest.mark.ranks(3)
def test_a_mistake_is_an_error_of_every_rank_and_the_group_is_as_good_as_before(rank):
    for call, complaint in MISTAKES:
        assert complaint in str(error_of(partial(call, rank)))
    unread = error_of(lambda: comm.broadcast_object(Unreadable(), src=0))
    if rank == 0:  # keeps its own
        assert unread is None
    else:
        assert "A received value can't be read on this rank." in unread
        assert "ValueError: invalid literal" in unread
    assert comm.all_gather_objects(rank) == [0, 1, 2]


@pytest.mark.ranks(3)
def test_a_group_without_cpu_tensors_destroyed_and_initialised_again(rank, world_size, tmp_path):
    dist.barrier()  # who leaves too early breaks the others' connections
    for name in "ab":
        if dist.is_initialized():
            dist.destroy_process_group()
        store = FileStore(str(tmp_path / name), world_size)
        dist.init_process_group("cuda:gloo", store=store, rank=rank, world_size=world_size)
        old = dist.group.WORLD
        before = dist.get_pg_count()
        for _ in range(2):
            assert comm.all_gather_objects(rank) == [0, 1, 2]
            assert comm.gather_objects(rank, 1) == ([0, 1, 2] if rank == 1 else None)
            assert [len(part) for part in comm.all_gather_uneven(rows_of(rank))] == [3, 0, 7]
        comm.synchronize()
        assert dist.get_pg_count() - before == 1  # one beside, for CPU tensors
    assert len(comm._cpu_groups) == 1
    dist.destroy_process_group()
    gone = error_of(partial(comm.all_gather_objects, rank, old))
    assert "The group no longer exists." in str(gone)
    del old
    assert len(comm._cpu_groups) == 0
    assert (comm.get_world_size(), comm.all_gather_objects(rank)) == (1, [rank])
