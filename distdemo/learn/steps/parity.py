# number: 16
# title: The same on N ranks as on one
# world_size: 2
# text: A layer is too large for one rank, so each rank holds a piece of its weights. The scale in
#   front of it is small, and every rank has a copy. The ranks add up their parts of the output with
#   all_reduce: 1 * 2 + 1 * 3 = 5, as on one rank. Nothing hangs, and the output is right.
# question: What does rank 1 return: the output and the gradient of the scale?
# form: two numbers, such as 7 8
# rank: 1
# expected: [[5, 2], [5, 3]]
# outcomes: {"gloo": "right right"}
# why: On one rank, the gradient of the scale is 2 + 3 = 5. Here each rank has only the part of its
#   own piece: the gradient is partial, and must be added up over the ranks that split the layer. If
#   it isn't, the copies of the scale drift apart. No rank hangs or raises, so compare the
#   program with one rank: parity infers from the values that the gradient is partial (P) where its
#   parameter is replicated (R), and names it.
# commands: distdemo learn parity --write tp
# commands: distdemo parity tp/parity.py -n 2
import torch
import torch.distributed as dist


def work(rank, world_size):
    weights = torch.tensor([2.0, 3.0])
    piece = weights[rank]  # of the layer
    scale = torch.tensor(1.0, requires_grad=True)  # the same on both ranks
    part = scale * piece
    part.backward()
    output = part.detach()
    dist.all_reduce(output)
    return [output.item(), scale.grad.item()]
