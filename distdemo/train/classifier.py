"""The model that is trained: a perceptron with one hidden layer, in double precision.

In double precision, because the gradients of n ranks are not added up in the order in which one
process adds up those of all samples. Each order rounds its own way, and training makes the
difference larger with every step. Computed with 53 bits it stays below anything that a wrong
average could be taken for, also after hundreds of epochs (see ``proofs``).
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from distdemo.train.data import Data

DTYPE = torch.float64


def classifier(data: Data, hidden: int, seed: int, device: str) -> nn.Sequential:
    """A new one, the same on every rank.

    Args:
        data: what it is for.
        hidden: units of the hidden layer.
        seed: of its first weights.
        device: where it lives.
    """
    torch.manual_seed(seed)
    widths = (data.features, hidden, data.classes)
    layers: list[nn.Module] = []
    for come, go in pairwise(widths):
        layers += [nn.Linear(come, go, dtype=DTYPE), nn.Tanh()]
    return nn.Sequential(*layers[:-1]).to(device)


def count_parameters(data: Data, hidden: int) -> int:
    """How many numbers it is made of."""
    widths = (data.features, hidden, data.classes)
    return sum((come + 1) * go for come, go in pairwise(widths))
