# number: 2
# title: Average all gradients in one flat bucket
# hints: A call has a fixed cost however few bytes it moves. One call per parameter pays it once per
#   parameter.
# hints: Copy all gradients into one flat tensor, average that, and copy the parts back.
# hints: torch.cat makes a flat tensor of a list of gradients, each flattened by reshape(-1);
#   tensor.split([sizes]) cuts it again, and part.view_as(gradient) restores the shape.
"""Gradient averaging in one bucket."""

import torch
import torch.distributed as dist


def average_gradients(model):
    """Replace every gradient by its mean over all ranks, in place, with a single all_reduce.

    Gradients of a model with two parameters, before and after on three ranks::

        [1., 1.], [[10.]]  # rank 0      [2., 2.], [[20.]]  # rank 0
        [2., 2.], [[20.]]  # rank 1      [2., 2.], [[20.]]  # rank 1
        [3., 3.], [[30.]]  # rank 2      [2., 2.], [[20.]]  # rank 2

    Cost: one all_reduce, whose tensor is as large as all gradients together.

    Args:
        model: Module; every parameter has a gradient.
    """
    raise NotImplementedError
