"""Run ranks on GPUs; skipped with the reason on machines without one.

One test needs none: gloo shows what groups beside nccl depend on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from processes import Command, Start

from distdemo import backends
from distdemo.backends.gpus import count_gpus, why_none
from distdemo.launcher.clock import EVENTS, HOST

GPUS = count_gpus()
HERE = pytest.mark.skipif(GPUS == 0, reason=why_none()[0] if GPUS == 0 else "there are GPUs")
NCCL = backends.REGISTRY["nccl"]
NO_NCCL = NCCL.missing() if GPUS else "There is no GPU."
WITH_NCCL = pytest.mark.skipif(NO_NCCL is not None, reason=NO_NCCL or "there is NCCL")
ON_GPUS = ("--device", "cuda", "--backend", "gloo")
pytestmark = [pytest.mark.timeout(600), pytest.mark.processes]


@pytest.mark.gpu
@HERE
@pytest.mark.parametrize("backend", [pytest.param("nccl", marks=WITH_NCCL), "gloo"])
def test_the_check_passes_on_gpus(start: Start, backend: str):
    line = ("check", "--device", "cuda", "--backend", backend, "--stall", "30")
    code, out, _ = start(sys.executable, "-m", "distdemo", *line).finish(580)
    assert code == 0, out


@pytest.mark.gpu
@HERE
def test_tensors_on_gpus_are_timed_by_events_and_objects_by_the_host(command: Command):
    for more in ((), ("--async",)):
        report = command.document("all-reduce", *ON_GPUS, "-n", "2", "--shape", "1000000", *more)
        assert {rank["clock"] for rank in report["ranks"]} == {EVENTS}
        assert all(rank["time_s"] > 0 for rank in report["ranks"])
        assert report["versions"]["cuda"] == torch.version.cuda
    report = command.document("broadcast", *ON_GPUS, "-n", "2", "--objects")
    assert {rank["clock"] for rank in report["ranks"]} == {HOST}


@pytest.mark.gpu
@HERE
def test_ranks_take_the_gpus_of_their_host_in_turn(command: Command):
    report = command.document("hello", *ON_GPUS, "-n", str(GPUS + 1))
    devices = [f"cuda:{rank % GPUS}" for rank in range(GPUS + 1)]
    assert [rank["device"] for rank in report["ranks"]] == devices


@pytest.mark.gpu
@HERE
@WITH_NCCL
def test_nccl_is_shown_at_work_and_takes_no_more_ranks_than_gpus(command: Command):
    (nccl,) = (
        entry for entry in command.document("backends")["backends"] if entry["name"] == "nccl"
    )
    assert nccl["works"], nccl
    assert nccl["version"] == NCCL.version()
    report = command.document("all-reduce", "--backend", "nccl", "-n", "1")
    assert report["versions"]["nccl"] == NCCL.version()
    report = command.document("all-reduce", "--backend", "nccl", "-n", str(GPUS + 1), status=2)
    assert "one GPU per rank" in report["errors"][0]["why"]


@pytest.mark.gpu
@HERE
@WITH_NCCL
@pytest.mark.skipif(GPUS < 3, reason=f"it takes 3 GPUs, and there are {GPUS}")
def test_objects_within_a_group_travel_beside_nccl(command: Command):
    flags = ("broadcast", "--objects", "--group", "0,2", "--backend", "nccl", "-n", "3")
    assert command.document(*flags)["ok"]


OVER_NCCL = """
import os
import sys
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")
rank, kind, wrong = dist.get_rank(), *sys.argv[1:]
size = 3 if wrong == "wrong" and rank == 1 else 4
if kind == "functional":
    for _ in range(20):
        functional.all_reduce(torch.ones(4, device=device), "sum", dist.group.WORLD) + 0
    functional.all_reduce(torch.ones(size, device=device), "sum", dist.group.WORLD) + 0
else:
    model = torch.nn.Linear(8, size, device=device)
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    else:
        from torch.distributed.fsdp import fully_shard
        fully_shard(model)
    for _ in range(20):
        model(torch.ones(2, 8, device=device)).sum().backward()
torch.cuda.synchronize()
dist.destroy_process_group()
"""


@pytest.mark.gpu
@HERE
@WITH_NCCL
@pytest.mark.skipif(GPUS < 2, reason=f"it takes 2 GPUs, and there are {GPUS}")
@pytest.mark.parametrize("kind", ["ddp", "fsdp", "functional"])
def test_calls_over_nccl_are_compared(command: Command, tmp_path: Path, kind: str):
    file = tmp_path / "over_nccl.py"
    file.write_text(OVER_NCCL)
    line = ("run", str(file), "-n", "2", "--calls")
    report = command.document(*line, "--", kind, "right")
    assert report["ok"], report
    assert sum(call["count"] for call in report["calls"]) >= 20
    if kind == "functional":
        report = command.document(*line, "--", kind, "wrong", status=1)
        assert report["findings"][0]["kind"] == "shape", report
