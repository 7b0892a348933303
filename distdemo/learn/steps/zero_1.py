# number: 10
# title: ZeRO-1: share out the optimizer's state
# world_size: 3
# text: With DDP every rank stores the whole state of the optimizer, such as momentum, and all
#   copies are equal. ZeRO, the Zero Redundancy Optimizer, stores it once in its stage 1. Each rank
#   owns a piece of the weights, a shard, and stores and updates only what belongs to it.
#   reduce_scatter adds up like all_reduce, but rank i receives only piece i of the sum: all that it
#   needs to update its shard. all_gather then copies the new shards to all ranks.
# question: What does reduce_scatter leave in shard on rank 1?
# form: two numbers, such as 7 8
# rank: 1
# column: shard
# expected: [{"shard": [0, 3], "weights": [0, -1, -2, -3, -4, -5], "momentum bytes": 8}, {"shard":
#   [6, 9], "weights": [0, -1, -2, -3, -4, -5], "momentum bytes": 8}, {"shard": [12, 15], "weights":
#   [0, -1, -2, -3, -4, -5], "momentum bytes": 8}]
# outcomes: {"gloo": "right right right"}
# why: The gradients add up to [0 3 6 9 12 15], and rank 1 receives the second of three pieces. It
#   stores the momentum of 2 weights, 8 bytes instead of 24: one third of the state on three ranks.
#   The weights are the same as with DDP, and so are the bytes sent: the all_reduce of a ring is a
#   reduce_scatter followed by an all_gather. ZeroRedundancyOptimizer of torch works in another way:
#   after the all_reduce of DDP, each rank broadcasts its shard.
# commands: distdemo reduce-scatter -n 3
# commands: distdemo explain reduce-scatter
import torch
import torch.distributed as dist


def work(rank, world_size):
    weights = torch.zeros(6)
    gradient = rank * torch.arange(6.0)
    shard = torch.zeros(2)  # of the summed gradient
    dist.reduce_scatter(shard, list(gradient.split(2)))
    momentum = torch.zeros(2)  # of the shard
    momentum *= 0.9
    momentum += shard / world_size
    shards = list(weights.split(2))  # views of weights
    new = shards[rank] - momentum
    dist.all_gather(shards, new)  # writes into weights
    return {
        "shard": shard.tolist(),
        "weights": weights.tolist(),
        "momentum bytes": momentum.nbytes,
    }
