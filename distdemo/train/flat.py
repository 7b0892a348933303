"""All gradients in one buffer, so that one collective does: fewer calls, the same bytes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from distdemo.train.averaging import Averaging
from distdemo.train.ledger import Ledger
from distdemo.train.records import TrainSpec


def flat(model: nn.Module, ledger: Ledger, _: TrainSpec) -> Averaging:
    """One collective a step.

    The buffer::

        [ 0.weight | 0.bias | 2.weight | 2.bias ]
    """
    parameters = list(model.parameters())

    def average() -> None:
        gradients = [each.grad for each in parameters if each.grad is not None]
        buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        with ledger.moving("all_reduce of all", buffer):
            dist.all_reduce(buffer)
        buffer /= dist.get_world_size()
        parts = torch.split(buffer, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    return Averaging(model, average)
