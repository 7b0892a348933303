"""What the ranks of the trial world run. Imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank


def add_up(rank: Rank) -> float:
    """Collective: the sum over all ranks of each rank's number + 1."""
    number = torch.tensor([float(rank.rank + 1)])
    rank.reach("entered all_reduce")
    dist.all_reduce(number)
    rank.reach("left all_reduce")
    return float(number.item())
