# number: 10
# title: Two layers that are split over the ranks
# hints: Each rank computes its columns of the hidden layer, and from those a part of the output.
#   Compute a small example with two ranks on paper. Where do parts have to be added up?
# hints: The parts of the output are added up in the forward pass. In the backward pass each rank
#   has the part of x's gradient that goes through its own columns.
# hints: dist.all_reduce isn't differentiable. Write two torch.autograd.Function classes. One adds
#   up in forward and passes the gradient on in backward; the other one is its mirror image.
# hints: enter.apply(x) goes in front of the first layer, leave.apply(part) behind the second one.
#   An all_reduce writes into its tensor, so clone() it first.
"""Tensor parallelism: column-parallel, then row-parallel."""

import torch
import torch.distributed as dist


def layers(x, columns, rows):
    """Return relu(x @ A) @ B, where every rank has some columns of A and the same rows of B.

    The output, and the gradient of x after the backward pass, are the same on all ranks. What each
    of two ranks has::

        x, A[:, :2], B[:2]    output; backward: x.grad, A.grad[:, :2], B.grad[:2]  # rank 0
        x, A[:, 2:], B[2:]    output; backward: x.grad, A.grad[:, 2:], B.grad[2:]  # rank 1

    Every rank calls backward() with the same loss, computed from the whole output.

    Cost: one all_reduce in the forward pass, one in the backward pass.

    Args:
        x: Tensor of shape [t, d], the same on all ranks.
        columns: This rank's columns of A, of shape [d, h / n].
        rows: This rank's rows of B, of shape [h / n, m].
    """
    raise NotImplementedError
