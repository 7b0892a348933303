"""By hand, as the tutorial does it: all_reduce every parameter's gradient, then divide."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from distdemo.train.averaging import Averaging
from distdemo.train.ledger import Ledger
from distdemo.train.records import TrainSpec


def manual(model: nn.Module, ledger: Ledger, _: TrainSpec) -> Averaging:
    """A collective a parameter, each waited for; nothing overlaps."""

    def average() -> None:
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            if gradient is None:
                raise RuntimeError(f"{name} has no gradient")
            with ledger.moving(f"all_reduce {name}", gradient):
                dist.all_reduce(gradient)
            gradient /= dist.get_world_size()

    return Averaging(model, average)
