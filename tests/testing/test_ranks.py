"""``distdemo.testing`` without the plugin: for unittest and plain programs."""

from __future__ import annotations

import re

import pytest
import torch.distributed as dist

from distdemo.testing import RanksError, run_ranks

pytestmark = pytest.mark.processes


def alone(rank: int) -> None:
    if rank == 0:
        dist.barrier()


def test_a_failure_is_an_assertion_error() -> None:
    with pytest.raises(RanksError, match="Rank 1 exited") as caught:
        run_ranks(alone, 2)
    assert re.search(r"test_ranks.py:\d+ in alone", str(caught.value))
    assert isinstance(caught.value, AssertionError)
