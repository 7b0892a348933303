"""Smallest program that starts ranks and all-reduces: the minimum cost of a world.

It imports torch once and forks the ranks, which use a FileStore and make one all_reduce. gloo
connects lazily.
"""

from __future__ import annotations

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank: int, size: int, path: str) -> None:
    """Join as one rank and all-reduce four elements."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    tensor = torch.arange(4.0) + 10 * rank
    dist.all_reduce(tensor)
    expected = torch.arange(4.0) * size + 10 * sum(range(size))
    if not torch.equal(tensor, expected):
        raise SystemExit(1)


def main() -> int:
    """Start the number of ranks given by the first argument."""
    size = int(sys.argv[1])
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "TORCH_GLOO_LAZY_INIT": "1"}
    context = mp.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=run, args=(rank, size, f"{folder}/store"))
            for rank in range(size)
        ]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
    return int(any(each.exitcode != 0 for each in ranks))


if __name__ == "__main__":
    sys.exit(main())
