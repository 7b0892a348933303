# number: 9
# title: Average gradients while the backward pass still runs
# hints: The gradient of the last layer is ready first. Its all_reduce can run while the backward
#   pass computes the other gradients.
# hints: parameter.register_post_accumulate_grad_hook(hook) calls hook(parameter) as soon as
#   parameter.grad is complete.
# hints: In the hook, dist.all_reduce(..., async_op=True) returns a handle at once. Collect the
#   handles in a list that the hooks and the returned function share.
# hints: The returned function waits for every handle, divides each gradient by n, and clears the
#   list for the next backward pass.
"""Averaging that overlaps with the backward pass, as in DDP."""

import torch
import torch.distributed as dist


def overlap(model):
    """Make every backward pass start the averaging of gradients, and return a function to end it.

    A training step then is::

        finish = overlap(model)  # once
        loss.backward()          # starts one non-blocking all_reduce per parameter
        finish()                 # waits; now the gradients are the means over all ranks
        optimizer.step()

    The gradient of a parameter on each of two ranks::

        [1., 3.]  # rank 0    backward, finish    [2., 4.]  # rank 0
        [3., 5.]  # rank 1                        [2., 4.]  # rank 1

    Cost: one all_reduce with async_op=True per parameter, all of them during backward.
    """
    raise NotImplementedError
