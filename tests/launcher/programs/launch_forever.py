"""A user's program whose ranks, started by a forkserver, never end."""

from __future__ import annotations

import threading

import torch
import torch.distributed as dist

import distdemo


def forever(rank):
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        print("up", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    distdemo.launch(forever, world_size=2, start_method="forkserver", timeout=100)
