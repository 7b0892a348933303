# title: ZeRO-1: share out the optimizer's state
# ranks: 3
# text: With DDP every rank stores the whole state of the optimizer, such as momentum, and all
#   copies are equal. ZeRO stage 1 stores it once. Each rank owns a piece of the weights, a shard,
#   and stores and updates only what belongs to it. reduce_scatter adds up like all_reduce but gives
#   each rank only its piece of the sum: all that a rank needs to update its shard. all_gather then
#   copies the new shards to all ranks.
# question: How many bytes of momentum does rank 1 store? A float32 has 4 bytes.
# form: one number, such as 7
# ask: 1 momentum bytes
# returns: {"weights": [0, -1, -2, -3, -4, -5], "momentum bytes": 8}
# why: The shard has 2 of the 6 weights: 8 bytes instead of 24, one third of the state on three
#   ranks. The weights are the same as with DDP, and so is the traffic: the all_reduce of a ring is
#   a reduce_scatter followed by an all_gather.
# try: distdemo reduce-scatter -n 3
# try: distdemo explain reduce-scatter
import torch
import torch.distributed as dist


def work(rank, world_size):
    weights = torch.zeros(6)
    gradient = rank * torch.arange(6.0)
    shard = torch.zeros(2)  # of the summed gradient
    dist.reduce_scatter(shard, list(gradient.split(2)))
    momentum = torch.zeros(2)
    momentum = 0.9 * momentum + shard / world_size
    new = weights.split(2)[rank] - momentum
    dist.all_gather(list(weights.split(2)), new)
    return {
        "weights": weights.tolist(),
        "momentum bytes": momentum.nbytes,
    }
