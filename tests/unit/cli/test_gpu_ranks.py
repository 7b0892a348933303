"""Which ranks share this process's GPUs, and the size of a check where there are few."""

from __future__ import annotations

import pytest
import torch

from distdemo import backends
from distdemo.backends import gpus
from distdemo.check.parse_check import CheckRequest, parse_check
from distdemo.check.run_check import _on_these_gpus
from distdemo.cli import options
from distdemo.demo.execute import check_backend, ranks_sharing
from distdemo.errors import UsageError
from distdemo.launcher.joined.placement import Placement
from distdemo.launcher.records import WorldSpec


def check(**flags: str) -> CheckRequest:
    """What ``distdemo check`` makes of these flags."""
    return parse_check({name: options.ALL[name][1] for name in options.CHECK} | flags)


def seat(local_size: int, nodes: int = 0) -> Placement:
    return Placement("torchrun", 0, 6 if nodes else 8, 0, local_size, why="said so", nnodes=nodes)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "NODES", ("/dev/null",))
    monkeypatch.setattr(backends, "gpus_in_sight", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_the_ranks_of_a_host_share_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert ranks_sharing(None, 4) == 4
    assert ranks_sharing(seat(local_size=4), 8) == 4
    assert ranks_sharing(seat(local_size=0, nodes=2), 6) == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")  # the engine gave each rank its own
    assert ranks_sharing(seat(local_size=4), 8) == 1
    assert ranks_sharing(seat(local_size=0, nodes=2), 6) == 3
    assert ranks_sharing(None, 4) == 4


@pytest.mark.usefixtures("two_gpus")
def test_too_many_ranks_of_this_host_are_refused_before_any_starts() -> None:
    world = WorldSpec(8, "nccl", "cuda")
    with pytest.raises(UsageError, match="4 ranks of this host over nccl"):
        check_backend(world, seat(local_size=4))
    with pytest.raises(UsageError, match="8 ranks over nccl"):
        check_backend(world)


@pytest.mark.usefixtures("two_gpus")
def test_a_check_takes_the_largest_world_that_the_gpus_allow() -> None:
    request, found = _on_these_gpus(check(backend="nccl"))
    assert (request.world.world_size, found) == (2, 2)
    request, found = _on_these_gpus(check(backend="gloo", device="cuda"))
    assert (request.world.world_size > 2, found) == (True, None)
