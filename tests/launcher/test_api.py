"""``distdemo.launch``: errors before a rank starts, and return values."""

from __future__ import annotations

import functools
import math
import multiprocessing
import threading
from typing import Any

import pytest
import torch.distributed as dist

from distdemo.api import MAX_TIMEOUT_S, check_world, launch
from distdemo.errors import UsageError
from distdemo.launcher import messages
from distdemo.launcher.arguments import bind
from distdemo.launcher.records import WorldSpec


@pytest.fixture(autouse=True)
def unlimited(machine):
    """Lift the limits of this machine."""
    assert machine == {}


def work(): ...
def work_batch(batch): ...
def work_rank(rank): ...
def work_rank_lr(rank, lr=0.1): ...
def work_rank_size(rank, size): ...
def work_rank_world(rank, world_size, lr): ...
def work_size_first(size, rank): ...


def work_keyword(*, rank=0):
    return rank


@pytest.mark.processes
def test_rank_and_size_are_given_to_a_function_that_names_them_first():
    for fn, args, given in (
        (work_batch, (32,), (32,)),
        (work_rank_lr, (), (1,)),
        (work_rank_size, (), (1, 4)),
        (work_size_first, (1, 2), (1, 2)),
        (lambda rank, size: None, (), (1, 4)),
        (functools.partial(work_rank_world, lr=0.1), (), (1, 4)),
        (min, (1, 2), (1, 2)),  # a builtin without a signature
    ):
        assert bind(fn, 1, 4, args).args == given, fn
    assert launch(work_keyword, world_size=2) == [0, 1]
    wrong: list[tuple[Any, tuple[Any, ...]]] = [
        (work, (1,)),
        (work_rank_size, (0.1,)),
        (None, ()),
    ]
    for fn, args in wrong:
        with pytest.raises(UsageError, match="can't be called") as caught:
            launch(fn, args, world_size=2)
        assert ("fn(rank, size, *args)" if callable(fn) else "launch(work)") in caught.value.hint


# -------------------------------------------------------------------------------- what can't be


REFUSED: dict[str, tuple[Any, ...]] = {
    "world_size": (0, -1, 2.0, "4", None, True),
    "deadline": (0, -1.5, math.nan, math.inf, "30", None, 1e10, 10**400),
    "stall": (0, -1, math.nan, "60", True),
    "device": ("tpu", "", "cuda:1", None),
    "start_method": ("bogus", "", None, ["fork"]),
    "backend": ("glu", "", "undefined", "cpu:glu", "gloo,", None, 3),
}


def test_a_wrong_setting_is_refused_by_its_name():
    for name, values in REFUSED.items():
        for value in values:
            with pytest.raises(UsageError) as caught:
                check_world(WorldSpec(**{"world_size": 2, name: value}))
            assert {"deadline": "timeout"}.get(name, name) in caught.value.what
            assert caught.value.why
            assert "--" not in caught.value.hint
    check_world(WorldSpec(2, deadline=MAX_TIMEOUT_S, stall=None))
    for backend in ("GLOO", "cpu:gloo", "cpu:gloo,cuda:gloo"):
        check_world(WorldSpec(2, backend))


@pytest.mark.processes
def test_a_rank_that_imports_the_script_again_does_not_launch_a_world_of_its_own(monkeypatch):
    process = multiprocessing.current_process()
    monkeypatch.setattr(process, "_inheriting", True, raising=False)
    with pytest.raises(UsageError) as caught:
        launch(work)
    assert "__main__" in caught.value.hint


@pytest.mark.processes
def test_what_new_processes_could_not_find_is_refused_with_what_to_do(monkeypatch):
    with pytest.raises(UsageError, match="new process"):
        launch(work_batch, (threading.Lock(),), start_method="forkserver")
    monkeypatch.setattr(messages, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="new process") as caught:
        launch(lambda: 1, world_size=2, start_method="forkserver")
    assert "pip install cloudpickle" in caught.value.hint
    assert "top level of a module" in caught.value.hint


def test_a_backend_that_torch_was_built_without_is_refused(monkeypatch):
    monkeypatch.setattr(dist, "is_ucc_available", lambda: False)
    with pytest.raises(UsageError, match="The backend 'ucc' is not available"):
        check_world(WorldSpec(2, "ucc"))
    monkeypatch.setitem(dist.Backend._plugins, "UCC", None)  # registered with torch
    check_world(WorldSpec(2, "ucc"))
