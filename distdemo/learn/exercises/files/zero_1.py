# number: 7
# title: An optimizer step that shares the optimizer's state among the ranks
# hints: An all_reduce is a reduce_scatter followed by an all_gather. What could happen between the
#   two, on 1/n of the numbers?
# hints: After the reduce_scatter, rank r has the summed gradient of shard r only. That is enough to
#   update shard r of the momentum and of the parameters. Update them in place: mul_, add_, sub_.
# hints: After the update, each rank has a new shard of the parameters: all_gather makes them whole
#   again on every rank. Nobody needs another rank's momentum.
# hints: dist.reduce_scatter takes a tensor of the size of a shard and a list of all shards:
#   list(gradients.chunk(n)). dist.all_gather can fill list(parameters.chunk(n)), which are views;
#   pass a clone of the rank's own shard as its input.
"""The optimizer step of ZeRO-1."""

import torch
import torch.distributed as dist


def step(parameters, gradients, momentum, learning_rate):
    """Take one step of SGD with momentum 0.9, with the mean gradient of all ranks.

    Every rank has all parameters, but only 1/n of the momentum: that of its shard. The rule is::

        momentum = 0.9 * momentum + mean gradient
        parameters = parameters - learning_rate * momentum

    Change parameters and momentum in place, for example with ``momentum.mul_(0.9)``. A new tensor,
    such as that of ``momentum = 0.9 * momentum``, is lost when the function returns.

    What each of three ranks has, where p0 is a shard of several numbers::

        parameters [p0 p1 p2], gradients [g0 g1 g2] of its batch, momentum [m0]  # rank 0
        parameters [p0 p1 p2], gradients [g0 g1 g2] of its batch, momentum [m1]  # rank 1
        parameters [p0 p1 p2], gradients [g0 g1 g2] of its batch, momentum [m2]  # rank 2

    Cost: a reduce_scatter of all gradients and an all_gather of all parameters, S bytes each (the
    payload). Each moves (n−1)/n · S bytes per rank. Together that equals one all_reduce, so the
    saved memory costs no extra bytes.

    Args:
        parameters: Flat tensor, equal on all ranks; its length is a multiple of n.
        gradients: Flat tensor with the gradients of this rank's batch.
        momentum: Momentum of shard r, on rank r.
        learning_rate: Learning rate.
    """
    raise NotImplementedError
