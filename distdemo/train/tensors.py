"""The samples as tensors on a rank's device."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch

from distdemo.train.classifier import DTYPE
from distdemo.train.data import Data, Samples


@dataclass(frozen=True, slots=True)
class Tensors:
    """Inputs and classes; on the CPU they are the bytes of ``Samples`` themselves, not a copy.

    Attributes:
        inputs: a row a sample, as bytes.
        labels: a byte a sample.
        mean: of all inputs.
        spread: their standard deviation.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    mean: float
    spread: float

    def take(self, which: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """The samples of a batch: numbers around 0 with a deviation of 1, and classes."""
        if isinstance(which, torch.Tensor):
            which = which.to(self.inputs.device)
        inputs = self.inputs[which].to(DTYPE).sub_(self.mean).div_(self.spread)
        return inputs, self.labels[which].long()


def tensors(data: Data, samples: Samples, device: str) -> Tensors:
    """Put samples of this data on a device."""
    inputs = _from_bytes(samples.inputs).view(len(samples), data.features).to(device)
    return Tensors(inputs, _from_bytes(samples.labels).to(device), data.mean, data.spread)


def _from_bytes(data: bytes) -> torch.Tensor:
    with warnings.catch_warnings():
        # Nobody writes to them; a copy a rank would be all that the warning wants to spare us.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.frombuffer(data, dtype=torch.uint8)
