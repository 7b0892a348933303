"""The samples, which every rank generates from the seed, and how ranks share them."""

from __future__ import annotations

import random
from typing import NamedTuple

import torch

from distdemo.train.records import CLASSES, FEATURES, SAMPLES, TESTS

DTYPE = torch.float64
CLOUDS = 3  # per class


class Samples(NamedTuple):
    """Samples: ``inputs`` has one row of numbers per sample, ``labels`` one class."""

    inputs: torch.Tensor
    labels: torch.Tensor


def generate(seed: int, device: str = "cpu") -> tuple[Samples, Samples]:
    """Generate training and test samples, the same on every machine and torch release.

    A sample is a point. Each class is three clouds of points with random centers, so the classes
    aren't linearly separable. A center has coordinates from 0 to 127; its points are spread
    uniformly up to 63 above it. Then all are scaled: training samples have zero mean and unit
    deviation.
    """
    source = random.Random(seed)

    def random_bytes(rows: int) -> torch.Tensor:
        numbers = bytearray(source.randbytes(rows * FEATURES))
        return torch.frombuffer(numbers, dtype=torch.uint8).reshape(rows, FEATURES)

    centers = random_bytes(CLASSES * CLOUDS) >> 1

    def points(count: int) -> Samples:
        clouds = torch.tensor([source.randrange(len(centers)) for _ in range(count)])
        return Samples((centers[clouds] + (random_bytes(count) >> 2)).to(DTYPE), clouds % CLASSES)

    train = points(SAMPLES)
    test = points(TESTS)
    mean = train.inputs.mean()
    deviation = train.inputs.std(correction=0)

    def scaled(samples: Samples) -> Samples:
        inputs = (samples.inputs - mean) / deviation
        return Samples(inputs.to(device), samples.labels.to(device))

    return scaled(train), scaled(test)


def order(
    seed: int, world_size: int, rank: int, epoch: int, samples: int = SAMPLES
) -> torch.Tensor:
    """Return the indices of a rank's samples in an epoch, in order.

    As in the PyTorch tutorial, all samples are shuffled once and split evenly. A rank sees its own
    part in every epoch, each time in a new order::

        [7 2 9 | 4 0 5 | 8 1 3]     # shuffled once; ranks 0, 1 and 2
        [9 7 2]                     # rank 0, first epoch
        [2 7 9]                     # rank 0, second epoch
    """
    length = samples // world_size
    part = _permutation(samples, seed)[rank * length : (rank + 1) * length]
    # A prime and its square keep the seeds of neighboring epochs, ranks and seeds apart.
    epoch_seed = (seed + 1_000_003 * (epoch + 1) + 1_000_003**2 * rank) % 2**63
    return part[_permutation(length, epoch_seed)]


def _permutation(length: int, seed: int) -> torch.Tensor:
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))
