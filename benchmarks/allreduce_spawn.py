"""The start-up benchmark's all_reduce, started by torch.multiprocessing.spawn as in tutorials."""

from __future__ import annotations

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank: int, size: int, port: int) -> None:
    """Join over TCP as one rank and all-reduce four elements."""
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    tensor = torch.arange(4.0) + 10 * rank
    dist.all_reduce(tensor)
    expected = torch.arange(4.0) * size + 10 * sum(range(size))
    if not torch.equal(tensor, expected):
        raise SystemExit(1)
    dist.destroy_process_group()


def main() -> None:
    """Start the number of ranks given by the first argument."""
    size = int(sys.argv[1])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(run, args=(size, port), nprocs=size)  # type: ignore[attr-defined,no-untyped-call]  # untyped in torch


if __name__ == "__main__":
    main()
