"""A few digits that stand for all weights of a model: two models differ in a bit, these differ."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def checksum(model: nn.Module) -> str:
    """Of the bytes of every parameter in order, whatever their dtype; 16 hexadecimal digits."""
    found = hashlib.blake2b(digest_size=8)
    for parameter in model.parameters():
        found.update(plain_bytes(parameter.detach()))
    return found.hexdigest()


def plain_bytes(tensor: torch.Tensor) -> memoryview:
    """A tensor's elements as they lie in memory."""
    flat = tensor.cpu().contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.numpy())  # type: ignore[arg-type]  # it is a buffer on every Python
