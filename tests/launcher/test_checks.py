from __future__ import annotations

import math
import multiprocessing
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist

from distdemo.backends import mpi_library
from distdemo.errors import UsageError
from distdemo.launcher.api import LONGEST, check_world
from distdemo.launcher.records import WorldSpec


@pytest.fixture(autouse=True)
def unlimited(machine: dict[str, str]) -> None:
    """The limits of this machine are not what is tested here."""
    assert machine == {}


def refusal(**settings: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        check_world(WorldSpec(**{"world_size": 2, **settings}))
    assert caught.value.why
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("size", [0, -1, 2.0, "4", None, True])
def test_a_world_has_a_whole_number_of_ranks_and_at_least_one(size: Any) -> None:
    assert "world_size" in refusal(world_size=size).what


@pytest.mark.parametrize("timeout", [0, -1.5, math.nan, math.inf, "30", None, 1e10, 10**400])
def test_a_timeout_is_a_positive_number_of_seconds_that_clocks_can_hold(timeout: Any) -> None:
    assert "timeout" in refusal(deadline=timeout).what


def test_the_longest_timeout_is_a_timeout() -> None:
    check_world(WorldSpec(2, deadline=LONGEST))


@pytest.mark.parametrize("device", ["tpu", "", "cuda:1", None])
def test_a_device_that_is_neither_cpu_nor_cuda_is_refused(device: Any) -> None:
    assert "device" in refusal(device=device).what


@pytest.mark.parametrize("method", ["bogus", "", None, ["fork"]])
def test_a_start_method_is_one_of_four(method: Any) -> None:
    error = refusal(start_method=method)
    assert "start_method" in error.what
    assert "auto, fork, forkserver, spawn" in error.why
    assert "--" not in error.hint


def test_a_rank_that_imports_the_script_again_does_not_launch_a_world_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = multiprocessing.current_process()
    monkeypatch.setattr(process, "_inheriting", True, raising=False)
    assert "__main__" in refusal().hint


# ------------------------------------------------------------------------------------- backends


@pytest.mark.parametrize("backend", ["gloo", "GLOO", "cpu:gloo", "cpu:gloo,cuda:gloo"])
def test_a_backend_that_torch_has_is_taken(backend: str) -> None:
    check_world(WorldSpec(2, backend))


@pytest.mark.parametrize("backend", ["glu", "", "undefined", "cpu:glu", "gloo,", None, 3])
def test_an_unknown_backend_is_refused_with_those_that_torch_has(backend: Any) -> None:
    error = refusal(backend=backend)
    assert "backend" in error.what
    assert "gloo" in error.hint


def test_a_backend_that_torch_was_built_without_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_ucc_available", lambda: False)
    assert refusal(backend="ucc").what == "The backend ucc is not here."
    monkeypatch.setattr(dist, "is_ucc_available", lambda: True)
    check_world(WorldSpec(2, "ucc"))


def test_a_backend_that_is_given_to_torch_is_refused_where_its_library_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dist, "is_mpi_available", lambda: False)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    mpi_library.library.cache_clear()
    error = refusal(backend="mpi")
    mpi_library.library.cache_clear()
    assert error.what == "The backend mpi is not here."
    assert "pip install 'distdemo[mpi]'" in error.why
    assert "mpi" not in error.hint


def test_a_backend_that_was_registered_with_torch_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dist.Backend, "backend_list", [*dist.Backend.backend_list, "smoke"])
    monkeypatch.setitem(dist.Backend._plugins, "SMOKE", None)
    check_world(WorldSpec(2, "smoke"))


@pytest.mark.parametrize("settings", [{"device": "cuda"}, {"backend": "nccl"}])
def test_what_needs_a_gpu_is_refused_where_there_is_none(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert "needs a GPU" in refusal(**settings).what
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_world(WorldSpec(2, **settings))  # type: ignore[arg-type]  # both are texts
