import os

import pytest
import torch.distributed as dist


@pytest.mark.ranks(2)
def test_passes(mocker, rank):
    mocker.patch("os.getcwd", return_value=str(rank))
    dist.barrier()
    assert os.getcwd() == str(rank)
