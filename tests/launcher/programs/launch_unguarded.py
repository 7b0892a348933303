"""A user's program that forgot ``if __name__ == "__main__":``."""

from __future__ import annotations

import torch.distributed as dist

import distdemo


def work():
    return dist.get_rank()


print(distdemo.launch(work, world_size=1, start_method="spawn", timeout=20))
