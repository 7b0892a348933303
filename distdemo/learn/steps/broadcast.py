# number: 2
# title: broadcast: copy one rank's tensor to all ranks
# world_size: 4
# text: A collective is a function that all ranks call together. broadcast copies the tensor of one
#   rank, the root, to all ranks. src is the rank of the root, and every rank passes the same src.
#   The other ranks receive into a tensor that they already have, a buffer. It must have the same
#   shape and dtype as the root's tensor, and its old content is overwritten.
# question: What does rank 2 return?
# form: two numbers, such as 7 8
# rank: 2
# expected: [[10, 11], [10, 11], [10, 11], [10, 11]]
# outcomes: {"gloo": "right right right right"}
# why: All ranks hold the numbers of rank 1, and what the other ranks held is gone. The receiving
#   ranks call broadcast, too: if one of them didn't, other ranks could wait for it until the
#   timeout.
# commands: distdemo broadcast --root 2
# commands: distdemo explain broadcast
import torch
import torch.distributed as dist


def work(rank, world_size):
    tensor = torch.tensor([10 * rank, 10 * rank + 1])
    dist.broadcast(tensor, src=1)
    return tensor.tolist()
