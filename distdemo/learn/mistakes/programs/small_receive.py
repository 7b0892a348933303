# number: 10
# title: Receive tensor too small
# world_size: 2
# expected: [[0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]]
# outcomes: {"gloo": "right/lost abort", "mpi": "right/lost error"}
# finding: p2p
# why: The sender determines the size of the message, the receiver the size of the buffer. gloo
#   aborts the process from C++, and no except clause catches that; MPI raises an error. With a
#   larger tensor, both fill a part of it without an error. NCCL may do so, or hang.
# link: https://github.com/NVIDIA/nccl/issues/1938
# hints: How many numbers does rank 0 send, and how many fit into rank 1's tensor?
# hints: Rank 1 has room for 3 numbers, and rank 0 sends 4.
# hints: row = torch.zeros(3) must be as large as the message.
"""Send a row of numbers from rank 0 to rank 1."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    row = torch.arange(4.0)
    if rank == 0:
        dist.send(row, dst=1)
    else:
        row = torch.zeros(3)  # wrong
        # right: row = torch.zeros(4)
        dist.recv(row, src=0)
    return row.tolist()
