"""Call functions of other ranks through RPC: right, or in a deadlock of its threads."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import torch
from torch.distributed import rpc

warnings.simplefilter("ignore")  # torch's own, about its group of RPC


def leaf(data: torch.Tensor) -> torch.Tensor:
    return data + 1


def middle(data: torch.Tensor) -> Any:
    return rpc.rpc_sync("worker0", leaf, args=(data,)) + 1


def outer(data: torch.Tensor) -> Any:
    """Wait for a function that needs another thread of this rank."""
    return rpc.rpc_sync("worker1", middle, args=(data,)) + 1


def main(threads: int) -> None:
    """Make four calls at once, for which worker1 needs eight threads, and more for the answers."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=threads, rpc_timeout=0)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    if rank == 0:
        data = torch.ones(1)
        futures = [rpc.rpc_async("worker1", outer, args=(data,)) for _ in range(4)]
        print([float(future.wait()) for future in futures])
    rpc.shutdown()


main(int(sys.argv[1]))
