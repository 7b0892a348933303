"""hello: every rank says who it is, and proves that it hears the others."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo import backends
from distdemo.demo.reports import HelloReport, Introduction
from distdemo.launcher.records import Returned, WorldReport
from distdemo.versions import versions

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank


def hello(rank: Rank) -> Introduction:
    """Collective: introduce this rank; the ones of all ranks are summed to count who is there."""
    present = torch.ones(1, dtype=torch.int32, device=rank.device)
    rank.reach("entered all_reduce")
    dist.all_reduce(present)
    rank.reach("left all_reduce")
    return Introduction(
        rank=rank.rank,
        world_size=dist.get_world_size(),
        pid=os.getpid(),
        host=socket.gethostname(),
        backend=dist.get_backend(),
        device=rank.device,
        startup_seconds=rank.startup_seconds,
        heard_from=int(present.item()),
    )


def report(world: WorldReport) -> HelloReport:
    """Everything that the views of ``hello`` are drawn from."""
    ranks = tuple(o.value for o in world.outcomes if isinstance(o, Returned))
    found = versions() | backends.versions_of(world.world)
    return HelloReport(world, ranks if world.ok else (), found)
