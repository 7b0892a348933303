# number: 8
# title: A layer whose weights are gathered before use, as in FSDP
# hints: The weights are needed twice: for the output, and in the backward pass for the gradient of
#   x. Nothing is kept in between, so they are gathered twice.
# hints: Write a torch.autograd.Function with save_for_backward(x, shard). Its backward(ctx,
#   gradient) returns the gradients of x and of the shard.
# hints: If output = x @ weight, the gradient of x is gradient @ weight.T, and the gradient of the
#   weight is x.T @ gradient. The latter comes from this rank's rows only.
# hints: dist.reduce_scatter takes a tensor of the size of the shard and a list of all pieces:
#   list((x.T @ gradient).chunk(n)). Divide the result by n. dist.all_gather takes a list of n
#   tensors like the shard; torch.cat joins them. In the backward pass the two calls can have either
#   order.
"""A linear layer of FSDP (ZeRO-3)."""

import torch
import torch.distributed as dist


def layer(x, shard):
    """Return x @ weight, where every rank has only its shard of the weight.

    The weight is cut by rows. What each of three ranks has before and after, where x0 is its part
    of the batch and g0 the mean gradient of the weights in shard w0::

        x0, w0    x0 @ [w0 w1 w2]    after backward: x.grad, and g0 in shard.grad  # rank 0
        x1, w1    x1 @ [w0 w1 w2]    after backward: x.grad, and g1 in shard.grad  # rank 1
        x2, w2    x2 @ [w0 w1 w2]    after backward: x.grad, and g2 in shard.grad  # rank 2

    The gradient of the weight is the mean over all ranks, as in DDP.

    Cost: an all_gather in the forward pass, an all_gather and a reduce_scatter in the backward
    pass, in either order, S bytes each (the payload), where S is the size of the whole weight.
    Between the two passes a rank keeps x and its shard only.

    Args:
        x: Tensor of shape [t, d]; different on each rank. d is a multiple of n.
        shard: Rows of this rank, of shape [d / n, m].
    """
    raise NotImplementedError
