"""Ranks of mp.spawn: their environment shows neither their rank nor a port."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn


def work(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        (folder / "spawned.1").read_text()  # spawned
    dist.all_reduce(torch.ones(1), async_op=True).wait()  # others
    (folder / f"spawned.passed.{rank}").touch()
    dist.destroy_process_group()


if __name__ == "__main__":
    spawn(work, (Path(sys.argv[1]),), nprocs=2)  # type: ignore[no-untyped-call]
