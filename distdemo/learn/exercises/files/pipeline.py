# number: 11
# title: A training step of a pipeline with micro-batches
# hints: First all micro-batches go forward, then all gradients go backward. Rank r receives from r
#   − 1 and sends to r + 1, and the other way round in the backward pass.
# hints: Keep the input and the output of each micro-batch for the backward pass. A received input
#   needs requires_grad_(), so that it has a gradient to send back.
# hints: The last stage calls loss(output, number).backward(). Any other stage receives a gradient
#   of its output and calls output.backward(gradient).
# hints: Send output.detach(). The buffers are torch.empty(shape) for an input, and
#   torch.empty_like(output) for a gradient. backward() adds to the gradients of the stage, so
#   nothing else is needed for their sum.
"""A pipeline of stages: all micro-batches forward, then all backward (GPipe)."""

import torch
import torch.distributed as dist


def train(stage, batches, loss):
    """Run the forward and backward passes of all micro-batches through the stages of all ranks.

    Afterwards, the gradients of the parameters of this rank's stage are the sums over all
    micro-batches. What three ranks compute forward, in time, with four micro-batches::

        0  1  2  3        # rank 0: stage(batches[0]), stage(batches[1]), ...
        ·  0  1  2  3     # rank 1: its stage, with what rank 0 sends
        ·  ·  0  1  2  3  # rank 2: its stage, and loss(output, number) of each

    A rank waits in n − 1 of m + n − 1 units of time: the bubble. Backward it is the mirror image.

    Cost: 2 (m + n − 2) rounds of sends and receives, as each of m micro-batches passes n − 1 times
    to the next rank, and back. Rank 0 receives no input, and the last rank sends no output.

    Args:
        stage: This rank's module. Its input and its output have the same shape.
        batches: List of m micro-batches of the same shape. Only rank 0 uses their values.
        loss: Function of an output and the number of its micro-batch, for the last rank.
    """
    raise NotImplementedError
