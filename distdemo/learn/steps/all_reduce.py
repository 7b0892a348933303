# number: 5
# title: reduce and all_reduce: combine the tensors of all ranks
# world_size: 4
# text: A reduction combines the tensors of all ranks into one, element by element. op says how: SUM
#   (the default), MAX, MIN, PRODUCT. reduce leaves the result only on the root, and all_reduce
#   leaves it on every rank. Both work in place: the result replaces the tensor that you pass.
# question: What is total on rank 3?
# form: two numbers, such as 7 8
# rank: 3
# column: total
# expected: [{"total": [6, 4], "largest": 30}, {"total": [6, 4], "largest": None}, {"total": [6, 4],
#   "largest": None}, {"total": [6, 4], "largest": None}]
# outcomes: {"gloo": "right right right right"}
# why: 0 + 1 + 2 + 3 and 1 + 1 + 1 + 1. The second element counts the ranks. Training programs do
#   this with samples: they add up losses and sample counts in one call, then divide. That mean is
#   right even if some ranks have more samples than others. largest is shown for the root only. On
#   other ranks it may hold a partial result after reduce, so don't read it there.
# commands: distdemo all-reduce --reduce-op max
# commands: distdemo reduce --root 2
import torch
import torch.distributed as dist


def work(rank, world_size):
    total = torch.tensor([rank, 1])
    dist.all_reduce(total)  # op=dist.ReduceOp.SUM
    largest = torch.tensor(10 * rank)
    dist.reduce(largest, dst=0, op=dist.ReduceOp.MAX)
    mine = largest.item() if rank == 0 else None
    return {"total": total.tolist(), "largest": mine}
