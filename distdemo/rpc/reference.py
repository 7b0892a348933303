"""The same model and the same training in one process, without RPC: what it should come to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.functional import mse_loss

from distdemo.rpc.parts import PARTS, Part, task
from distdemo.rpc.training import Trained

if TYPE_CHECKING:
    from collections.abc import Callable

    from distdemo.rpc.records import RpcSpec


def train_alone(spec: RpcSpec, done: Callable[[int], object]) -> Trained:
    """Train the model with torch's ordinary autograd and SGD.

    Args:
        spec: what to train.
        done: called after each step with how many are done.
    """
    parts = {name: Part(name, spec.seed) for name in PARTS}
    model = nn.Sequential(*parts.values())
    optimizer = torch.optim.SGD(model.parameters(), lr=spec.learning_rate)
    inputs, targets = task()
    losses = []
    began = time.monotonic()
    for step in range(spec.steps):
        optimizer.zero_grad()
        loss = mse_loss(model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not say its type
        optimizer.step()
        losses.append(loss.item())
        done(step + 1)
    with torch.no_grad():
        losses.append(mse_loss(model(inputs), targets).item())
    weights = {
        f"{name}.{key}": tensor
        for name, part in parts.items()
        for key, tensor in part.pulled().items()
    }
    return Trained(tuple(losses), weights, {}, time.monotonic() - began)
