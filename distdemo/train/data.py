"""Samples as plain bytes, read or generated once before the ranks start.

Each number is one byte, as in images: the data stays small, and forked ranks share it.
"""

from __future__ import annotations

import gzip
import random
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from distdemo.errors import UsageError
from distdemo.train.records import DATASETS, TrainSpec, TrainTask


@dataclass(frozen=True, slots=True)
class LabelledBytes:
    """Inputs of all samples in a row, one byte per number; labels, one byte per sample."""

    inputs: bytes = field(repr=False)
    labels: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class Data:
    """Training and test samples, which don't overlap.

    Attributes:
        name: Display name.
        mean: Mean of the numbers in `train`.
        spread: Standard deviation of the numbers in `train`.
    """

    name: str
    train: LabelledBytes
    test: LabelledBytes
    mean: float
    spread: float


def read_data(spec: TrainSpec) -> Data:
    """Return the data for this training.

    Raises:
        UsageError: A library or file that it needs is missing or broken.
    """
    if spec.dataset == "generated":
        name, (train, test) = "generated points", generate(spec.seed)
    elif spec.dataset == "digits":
        name, (train, test) = "scikit-learn's digits", _read_digits()
    else:
        name, (train, test) = "MNIST", _read_mnist(spec.data_dir)
    numbers = np.frombuffer(train.inputs, np.uint8, count=min(len(train.inputs), 1 << 20))
    return Data(name, train, test, float(numbers.mean()), float(numbers.std()) or 1.0)


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


def generate(
    seed: int, samples: int = 2000, tests: int = 1000
) -> tuple[LabelledBytes, LabelledBytes]:
    """Generate points of ten classes from the seed, the same on every machine and torch release.

    Each class is three clouds of points with random centers, so the classes aren't linearly
    separable. A center has coordinates from 0 to 127; its points are spread uniformly up to 63
    above it.
    """
    source = random.Random(seed)
    features, classes = DATASETS["generated"]
    middles = [source.randbytes(features) for _ in range(classes * 3)]

    def draw(count: int) -> LabelledBytes:
        clouds = [source.randrange(len(middles)) for _ in range(count)]
        around = b"".join(middles[cloud] for cloud in clouds)
        spread = source.randbytes(len(around))
        inputs = bytes((a >> 1) + (b >> 2) for a, b in zip(around, spread, strict=True))
        return LabelledBytes(inputs, bytes(cloud % classes for cloud in clouds))

    return draw(samples), draw(tests)


def _read_digits() -> tuple[LabelledBytes, LabelledBytes]:
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
    lines = gzip.decompress(file.read_bytes()).split()  # 65 small numbers each: 0,0,5,...,0
    rows = [bytes(map(int, line.split(b","))) for line in lines]

    def samples(chosen: list[bytes]) -> LabelledBytes:
        return LabelledBytes(b"".join(row[:-1] for row in chosen), bytes(row[-1] for row in chosen))

    return samples([row for at, row in enumerate(rows) if at % 5 != 4]), samples(rows[4::5])


def _read_mnist(folder: str) -> tuple[LabelledBytes, LabelledBytes]:
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
        LabelledBytes(part.data.numpy().tobytes(), bytes(part.targets.tolist()))
        for part in (train, test)
    )
