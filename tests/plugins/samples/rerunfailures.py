from pathlib import Path

import pytest
import torch.distributed as dist

TRIED = Path(__file__).with_suffix(".tried")


@pytest.mark.ranks(2)
@pytest.mark.flaky(reruns=2)
def test_passes(rank):
    tried = TRIED.exists()
    dist.barrier()
    TRIED.touch()
    assert tried or rank == 0


@pytest.mark.ranks(2)
@pytest.mark.flaky(reruns=2, only_rerun="TypeError")
def test_fails():
    raise ValueError("not rerun")
