"""Samples, read or generated once before the ranks start.

Each number is one byte, as in images: the data stays small, and forked ranks share it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from distdemo.errors import UsageError
from distdemo.train.records import DATASETS, TrainSpec, TrainTask

Bytes: TypeAlias = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples: one row of numbers per sample, and the labels."""

    inputs: Bytes = field(repr=False)
    labels: Bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class Data:
    """Training and test samples, which don't overlap.

    Attributes:
        name: Display name.
    """

    name: str
    train: Samples
    test: Samples

    def moments(self) -> tuple[float, float]:
        """Return the mean and standard deviation of the first million numbers in `train`."""
        numbers = self.train.inputs.ravel()[: 1 << 20]
        return float(numbers.mean()), float(numbers.std()) or 1.0


def read_data(spec: TrainSpec) -> Data:
    """Return the data for this training.

    Raises:
        UsageError: A library or file that it needs is missing or broken.
    """
    if spec.dataset == "generated":
        return Data("generated points", *generate(spec.seed))
    if spec.dataset == "digits":
        return Data("scikit-learn's digits", *_read_digits())
    return Data("MNIST", *_read_mnist(str(spec.data_dir)))


def task_of(spec: TrainSpec, data: Data, world_size: int) -> TrainTask:
    """Return the size of the task and the split of its samples over the ranks.

    Raises:
        UsageError: An epoch would have no steps.
    """
    samples, batch = len(data.train), spec.batch_size // world_size
    steps = samples // world_size // batch
    if not steps:
        raise UsageError(
            f"--batch-size {spec.batch_size} is larger than the data set.",
            f"There are {samples:,} training samples, {samples // world_size:,} per rank.",
            f"Try --batch-size {samples // world_size * world_size}.",
        )
    features, classes = DATASETS[spec.dataset]
    return TrainTask(
        data.name, samples, len(data.test), features, classes, spec.parameters, batch, steps
    )


def generate(seed: int, samples: int = 2000, tests: int = 1000) -> tuple[Samples, Samples]:
    """Generate points of ten classes from the seed, the same on every machine and torch release.

    Each class is three clouds of points with random centers, so the classes aren't linearly
    separable. A center has coordinates from 0 to 127; its points are spread uniformly up to 63
    above it.
    """
    source = random.Random(seed)
    features, classes = DATASETS["generated"]

    def draw_bytes(rows: int) -> Bytes:
        return np.frombuffer(source.randbytes(rows * features), np.uint8).reshape(rows, features)

    middles = draw_bytes(classes * 3)

    def draw(count: int) -> Samples:
        clouds = np.array([source.randrange(len(middles)) for _ in range(count)], np.uint8)
        inputs = (middles[clouds] >> 1) + (draw_bytes(count) >> 2)
        return Samples(inputs, clouds % classes)

    return draw(samples), draw(tests)


def _read_digits() -> tuple[Samples, Samples]:
    """Read the handwritten digits (8x8 pixels) that are installed with scikit-learn.

    scikit-learn itself isn't imported: that takes a second. Every fifth sample is a test sample.
    The file is sorted by writer, so every writer is in both parts. Source: Alpaydin and Kaynak,
    Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (its test set).
    """
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise UsageError(
            "--dataset digits requires scikit-learn.",
            "The images are part of scikit-learn, which is not installed.",
            "Try: pip install 'distdemo[digits]'.",
        )
    file = Path(next(iter(found.submodule_search_locations)), "datasets/data/digits.csv.gz")
    table = np.loadtxt(file, np.uint8, delimiter=",")  # 65 small numbers per line: 0,0,5,...,0
    is_test = np.arange(len(table)) % 5 == 4
    train, test = table[~is_test], table[is_test]
    return Samples(train[:, :-1], train[:, -1]), Samples(test[:, :-1], test[:, -1])


def _read_mnist(folder: str) -> tuple[Samples, Samples]:
    """Read MNIST from torchvision's folder. Nothing is downloaded."""
    try:
        from torchvision.datasets import MNIST
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
        raise UsageError(
            "--dataset mnist requires a torchvision built for this torch.",
            f"{error}.",
            "Try: pip install 'distdemo[mnist]'.",
        ) from error
    try:
        train, test = (MNIST(folder, train=part) for part in (True, False))
    except (RuntimeError, OSError, ValueError) as error:
        raise UsageError(
            f"--data-dir {folder}: torchvision can't read MNIST there.",
            str(error).splitlines()[0],
            f"torchvision.datasets.MNIST({folder!r}, download=True) downloads it.",
        ) from error
    return tuple(  # type: ignore[return-value]  # two
        Samples(part.data.flatten(1).numpy(), part.targets.byte().numpy()) for part in (train, test)
    )
