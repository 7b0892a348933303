# number: 12
# title: A tensor read before wait()
# world_size: 2
# expected: [[3.0, 5.0, 7.0], [1.0, 2.0, 3.0]]
# outcomes: {"gloo": "wrong right", "mpi": "wrong right"}
# finding: buffers
# why: irecv returns immediately. Until wait() returns, the tensor may hold its old values, a part
#   of the message, or all of it. In a larger program the message has often arrived already, so the
#   result is only sometimes wrong. The sanitizer detects it with --sanitize=buffers.
# link: https://github.com/OpenNMT/OpenNMT-py/issues/2295
# hints: What does answer hold when it is read?
# hints: Rank 0 reads it before rank 1 has received the question.
# hints: Move result = answer + 1 after receiving.wait().
"""Let rank 1 double some numbers; rank 0 adds one to the answer."""

import torch
import torch.distributed as dist


def work(rank, world_size):
    numbers = torch.tensor([1.0, 2.0, 3.0])
    if rank == 1:
        dist.recv(numbers, src=0)
        dist.send(numbers * 2, dst=0)
        return numbers.tolist()
    answer = torch.zeros(3)
    receiving = dist.irecv(answer, src=1)
    result = answer + 1  # wrong
    dist.send(numbers, dst=1)
    receiving.wait()
    # right: result = answer + 1
    return result.tolist()
