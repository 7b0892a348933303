"""Large sums between two ranks, of every dtype and of odd lengths; prints what is wrong.

Run by the ranks of a group over MPI.
"""

import sys

import torch
import torch.distributed as dist

from distdemo.mpi.halves import ADDED, LEAST

rank = dist.get_rank()
wrong = []
for dtype in sorted(ADDED, key=str):
    for more in (0, 1):
        count = LEAST // dtype.itemsize + more
        pattern = torch.arange(count) % 50
        tensor = (pattern + 3 * rank).to(dtype).requires_grad_(dtype.is_floating_point)
        waiting = dist.irecv(torch.empty(1), 1 - rank, tag=0)  # a message of the user's in between
        dist.all_reduce(tensor)
        dist.send(torch.ones(1), 1 - rank, tag=0)
        if waiting is not None:  # torch returns none outside of the group
            waiting.wait()
        if not torch.equal(tensor.detach(), (2 * pattern + 3).to(dtype)):
            wrong.append(f"{dtype} {count}")
with torch.inference_mode():
    frozen = torch.full((LEAST,), 1.0 + rank)
    dist.all_reduce(frozen, op=dist.ReduceOp.AVG)
    if not bool((frozen == 1.5).all()):
        wrong.append("avg under inference_mode")
matrix = torch.full((1000, 2000), 1.0 + rank).t()
dist.all_reduce(matrix)
if not bool((matrix == 3).all()):
    wrong.append("not contiguous")
sys.stdout.write(f"rank {rank} wrong: {wrong}\n")
