"""Run ranks on GPUs; skipped with the reason on machines without one.

The last test needs none: gloo shows what groups beside nccl depend on.
"""

from __future__ import annotations

import sys

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
