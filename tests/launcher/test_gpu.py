from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from distdemo.errors import DistdemoError
from distdemo.launcher import gpu
from distdemo.launcher.gpu import bound_device, device_of, take


def test_ranks_of_a_host_take_its_gpus_in_turn() -> None:
    assert [device_of("cuda", rank, 4) for rank in range(4)] == [f"cuda:{n}" for n in range(4)]
    assert [device_of("cuda", rank, 2) for rank in range(4)] == [
        "cuda:0",
        "cuda:1",
        "cuda:0",
        "cuda:1",
    ]
    assert device_of("cuda", 5, 1) == "cuda:0"  # an engine gave each rank a GPU of its own
    assert device_of("cpu", 3, 0) == "cpu"


def test_a_rank_that_sees_no_gpu_says_what_hides_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(DistdemoError, match="CUDA_VISIBLE_DEVICES is -1"):
        device_of("cuda", 0, 0)


def test_a_group_is_bound_to_the_ranks_gpu() -> None:
    assert bound_device("cuda:1") == torch.device("cuda", 1)
    assert bound_device("cpu") is None


def test_taking_a_gpu_where_torch_has_none_is_an_error_with_advice() -> None:
    if torch.cuda.device_count():
        pytest.skip("here is a GPU")
    take("cpu")
    with pytest.raises(DistdemoError, match="cuda:0 can't be used: ") as caught:
        take("cuda:0")
    assert caught.value.hint
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("The NVIDIA driver on your system is too old (found version 11040).", "older CUDA"),
        ("Cannot re-initialize CUDA in forked subprocess.\nUse spawn.", "forkserver"),
        ("CUDA error: initialization error", "forkserver"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "COMPUTE"),
        ("Torch not compiled with CUDA enabled", "wheel"),
        ("", "nvidia-smi"),
    ],
)
def test_what_cuda_says_when_it_starts_is_translated(
    said: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(device: str) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(torch.cuda, "set_device", refuse)
    with pytest.raises(DistdemoError) as caught:
        take("cuda:1")
    first = said.partition("\n")[0] or "RuntimeError"
    assert caught.value.what == f"cuda:1 can't be used: {first}"
    assert advice in caught.value.hint


# A backend of its own whose shutdown never returns, as NCCL's may not when its peers are gone.
STUCK = """
import os, sys, threading, time
import torch.distributed as dist
from distdemo.launcher import gpu

class Stuck(dist.ProcessGroup):
    def getBackendName(self): return "stuck"
    def shutdown(self): threading.Event().wait()

gpu.leave_group()  # there is none: nothing happens
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
gpu.leave_group()
assert not dist.is_initialized()
dist.Backend.register_backend(
    "stuck", lambda store, rank, size, timeout: Stuck(rank, size), devices=["cpu"]
)
dist.init_process_group("stuck", store=dist.HashStore(), rank=0, world_size=1)
print("leaving", flush=True)
gpu.LEAVING = 0.2
gpu.leave_group()
print("left", flush=True)
"""


def test_leaving_a_group_ends_even_if_its_backend_never_does() -> None:
    command = [sys.executable, "-c", STUCK]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "leaving\n", done.stderr
    assert gpu.LEAVING < 10
