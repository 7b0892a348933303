# number: 4
# title: all_gather: collect on every rank
# world_size: 4
# text: all_gather is gather for everyone. Every rank receives the tensors of all ranks, so there is
#   no root. Each rank passes its own tensor and a list of buffers, one per rank. Afterwards the
#   list is in rank order, and it is the same on every rank.
# question: What does rank 1 return?
# form: two numbers, such as 7 8
# rank: 1
# expected: [[3, 9], [2, 4], [1, 1], [0, 0]]
# outcomes: {"gloo": "right right right right"}
# why: On every rank, rows is [0 0], [1 1], [2 4], [3 9]. Rank 1 returns row 4 - 1 - 1 = 2, which is
#   the tensor of rank 2. Each row needs its own buffer: [torch.zeros_like(mine)] * 4 would be four
#   times the same tensor.
# commands: distdemo all-gather -n 3
# commands: distdemo mistakes same-list
import torch
import torch.distributed as dist


def work(rank, world_size):
    mine = torch.tensor([rank, rank * rank])
    ranks = range(world_size)
    rows = [torch.zeros_like(mine) for _ in ranks]
    dist.all_gather(rows, mine)
    return rows[world_size - 1 - rank].tolist()
