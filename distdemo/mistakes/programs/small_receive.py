# title: Too small a tensor to receive
# ranks: 2
# returns: [0.0, 1.0, 2.0, 3.0]
# gloo: right/lost abort
# mpi: right/lost error
# finding: p2p
# why: The sender decides how much comes, and the receiver how much room there is. gloo aborts
#   the process from C++, and no except clause catches that; MPI raises an error. With a larger
#   tensor both fill a part of it and say nothing.
# link: https://github.com/NVIDIA/nccl/issues/1938
# hint 1: How many numbers does rank 0 send, and how many does rank 1 have room for?
# hint 2: Rank 1 has room for 3 numbers, and rank 0 sends 4.
# hint 3: row = torch.zeros(3) has to be as large as what is sent.
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
