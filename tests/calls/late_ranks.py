"""Programs in which rank 2 makes each call after the other ranks, whatever the machine's speed."""

from __future__ import annotations

import torch
import torch.distributed as dist

CALLS = 20


def _after_others(rank: int, size: int, call: str) -> None:
    """Let rank 2 continue when the other ranks have made a call."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 2:
        store.wait([f"{call} {other}" for other in range(size) if other != rank])
    else:
        store.set(f"{call} {rank}", "")


def blocked(rank: int, size: int) -> None:
    for call in range(CALLS):
        if rank == 2:
            _after_others(rank, size, str(call))
        work = dist.all_reduce(torch.ones(4), async_op=True)
        if rank != 2:
            _after_others(rank, size, str(call))
        work.wait()


def rooted(rank: int, size: int) -> None:
    """The root of a broadcast is late; then a rank that no rank waits for."""
    for call in range(CALLS):
        if rank == 2:
            _after_others(rank, size, f"rooted {call}")
        work = dist.broadcast(torch.ones(4), src=2 * (call % 2), async_op=True)
        if rank != 2:
            _after_others(rank, size, f"rooted {call}")
        work.wait()


def blocked_and_rooted(rank: int, size: int) -> None:
    blocked(rank, size)
    rooted(rank, size)
