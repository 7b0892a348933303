from __future__ import annotations

import pytest
from processes import Start

from distdemo.errors import DistdemoError
from distdemo.launcher.rank import device_of


def test_ranks_of_a_host_take_its_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [device_of("cuda", rank, 2) for rank in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert device_of("cuda", 5, 1) == "cuda:0"  # the engine gave each rank one GPU
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(DistdemoError, match="CUDA_VISIBLE_DEVICES is -1"):
        device_of("cuda", 0, 0)


# A backend whose shutdown never returns, like NCCL's when its peers have exited.
STUCK = """
import os, sys, threading, time
import torch.distributed as dist
from distdemo.launcher import rank_process as gpu

class Stuck(dist.ProcessGroup):
    def getBackendName(self): return "stuck"
    def shutdown(self): threading.Event().wait()

gpu.destroy_group()  # without a group: nothing happens
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
gpu.destroy_group()
assert not dist.is_initialized()
dist.Backend.register_backend(
    "stuck", lambda store, rank, size, timeout: Stuck(rank, size), devices=["cpu"]
)
dist.init_process_group("stuck", store=dist.HashStore(), rank=0, world_size=1)
print("leaving", flush=True)
gpu.DESTROY_TIMEOUT_S = 0.2
gpu.destroy_group()
print("left", flush=True)
"""


@pytest.mark.processes
def test_leaving_a_group_ends_even_if_its_backend_never_does(start: Start) -> None:
    with start("python", "-c", STUCK) as run:
        assert run.finish()[1] == "leaving\n"
