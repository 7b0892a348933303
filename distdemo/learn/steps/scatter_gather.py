# number: 3
# title: scatter and gather: hand out pieces, collect results
# world_size: 3
# text: In scatter the root has a list with one tensor per rank, and rank i receives tensor i into
#   its buffer. gather is the way back. Every rank sends one tensor to the root, and the root
#   receives them into a list of buffers, in rank order. scatter calls its root src, the source, and
#   gather calls it dst, the destination. Only the root has a list: the other ranks pass None. So a
#   job can be shared: hand out the pieces, let each rank work on its own, and collect the results.
# question: What does rank 0 hold in totals at the end?
# form: three numbers, such as 7 8 9
# rank: 0
# column: totals
# expected: [{"piece": [0, 1], "totals": [1, 5, 9]}, {"piece": [2, 3], "totals": None}, {"piece":
#   [4, 5], "totals": None}]
# outcomes: {"gloo": "right right right"}
# why: Each rank adds up its own piece: 0 + 1, 2 + 3 and 4 + 5. The root, rank 0, works on a piece,
#   too. All ranks call both functions, but only the root has totals.
# commands: distdemo scatter --root 1
# commands: distdemo gather --root 1
import torch
import torch.distributed as dist


def work(rank, world_size):
    pieces = totals = None
    if rank == 0:  # the root has [0 1], [2 3] and [4 5]
        pieces = list(torch.arange(6.0).split(2))
        totals = list(torch.zeros(world_size))
    piece = torch.zeros(2)
    dist.scatter(piece, pieces, src=0)
    dist.gather(piece.sum(), totals, dst=0)
    if rank == 0:
        totals = [total.item() for total in totals]
    return {"piece": piece.tolist(), "totals": totals}
