"""``distdemo.comm`` in a program that was started alone."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from distdemo import comm
from distdemo.comm.carrier import by_rank
from distdemo.errors import DistdemoError


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


@pytest.mark.parametrize("available", [False, True], ids=["not available", "not initialised"])
def test_without_a_group_this_process_is_a_world_of_one(monkeypatch, available):
    stub = SimpleNamespace(is_available=lambda: available, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch.distributed", stub)
    assert (comm.get_rank(), comm.get_world_size(), comm.is_main()) == (0, 1, True)
    comm.synchronize()


def test_objects_of_a_world_of_one_are_the_values_themselves() -> None:
    value = [lambda: 0]  # doesn't pickle, and needn't
    assert comm.all_gather_objects(value)[0] is value
    gathered = comm.gather_objects(value)
    assert gathered is not None
    assert gathered[0] is value
    assert comm.broadcast_object(value) is value


@pytest.mark.parametrize("root", [1, -1])
def test_a_root_outside_a_world_of_one_is_refused(root):
    with pytest.raises(DistdemoError, match=f"Rank {root} can't be the root") as caught:
        comm.gather_objects("x", dst=root)
    assert "The group has 1 rank, counted from 0." in str(caught.value)
    with pytest.raises(DistdemoError, match="can't be the root"):
        comm.broadcast_object("x", src=root)


def test_a_process_outside_the_group_is_told_so() -> None:
    # Without a default group there is nobody inside either.
    outside: Any = dist.GroupMember.NON_GROUP_MEMBER
    with pytest.raises(DistdemoError, match="not there any more"):
        comm.all_gather_objects("x", group=outside)


@pytest.mark.parametrize("shape", [(3,), (0,), (2, 3), (0, 4), (3, 0)], ids=str)
def test_the_tensor_of_a_world_of_one_is_copied(shape):
    mine = torch.arange(torch.Size(shape).numel(), dtype=torch.int16).reshape(shape)
    (result,) = comm.all_gather_uneven(mine)
    assert torch.equal(result, mine)
    assert result.dtype == mine.dtype
    assert result.numel() == 0 or result.data_ptr() != mine.data_ptr()


def test_odd_views_are_gathered_as_what_they_show() -> None:
    views = {
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "strided": torch.arange(6)[::2],
        "conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        "negative": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        "expanded": torch.ones(1).expand(4),
    }
    for name, view in views.items():
        assert torch.equal(comm.all_gather_uneven(view)[0], view), name


def test_results_have_no_gradients() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    (result,) = comm.all_gather_uneven(weight)
    assert not result.requires_grad
    assert type(result) is torch.Tensor


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (torch.tensor(1.0), "Rank 0: a float32 tensor without dimensions."),
        (torch.eye(2).to_sparse(), "Rank 0: a float32 tensor that is not dense."),
        ([1, 2], "Rank 0: list, no tensor."),
    ],
    ids=["scalar", "sparse", "list"],
)
def test_what_has_no_rows_is_refused(value, complaint):
    with pytest.raises(DistdemoError) as caught:
        comm.all_gather_uneven(value)
    assert caught.value.why == complaint


def test_the_steps_are_told_also_where_nothing_is_sent() -> None:
    steps = []
    comm.all_gather_uneven(
        torch.ones(2), note=lambda name, held, sent: steps.append((name, len(held), sent))
    )
    assert steps == [
        ("all_gather the sizes", 1, 0),
        ("pad to the largest", 1, 0),
        ("all_gather", 1, 0),
        ("trim", 1, 0),
    ]


def test_who_said_what_is_grouped_and_cut() -> None:
    assert by_rank(["a", "b", "a"]) == "Ranks 0, 2: a. Rank 1: b."
    assert by_rank(["a"] * 10) == "Ranks 0, 1, 2, 3, 4, 5, 6, 7, …: a."
