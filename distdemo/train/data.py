"""The samples as plain bytes, read or made once, before ranks start.

A byte a number, as images have them: so the data is small, and forked ranks share it.
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
    """Inputs, one sample after the other, a byte a number; and a byte a sample: its class."""

    inputs: bytes = field(repr=False)
    labels: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class Data:
    """What to learn, and what to test it on; the two have no sample in common.

    Attributes:
        name: what the data is, for people.
        mean: of the numbers of a sample.
        spread: their standard deviation.
    """

    name: str
    train: LabelledBytes
    test: LabelledBytes
    mean: float
    spread: float


def read_data(spec: TrainSpec) -> Data:
    """The data of this training.

    Raises:
        UsageError: a library or a file that it needs is missing or broken.
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
    """What is learned, and how its samples are shared out.

    Raises:
        UsageError: an epoch would have no step.
    """
    samples, batch = len(data.train), spec.batch_size // world_size
    steps = samples // world_size // batch
    if not steps:
        raise UsageError(
            f"--batch-size {spec.batch_size} is more than the data holds.",
            f"There are {samples:,} samples to train on, {samples // world_size:,} a rank.",
            f"Try --batch-size {samples // world_size * world_size}.",
        )
    features, classes = DATASETS[spec.dataset]
    return TrainTask(
        data.name, samples, len(data.test), features, classes, spec.parameters, batch, steps
    )


def generate(
    seed: int, samples: int = 2000, tests: int = 1000
) -> tuple[LabelledBytes, LabelledBytes]:
    """Points of ten classes, made from the seed: the same on every machine, with every torch.

    Every class is three clouds of points, placed at random; so no class can be told from the
    others by straight lines alone. A coordinate of a cloud's middle is 0 to 127, and those of its
    points go evenly from there to 63 more.
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
    """Real handwritten digits of 8x8 pixels: the file that scikit-learn brings along.

    Read without scikit-learn, whose import takes a second. Every fifth sample is a test: the
    writers come one after the other, and all take part in both. Source: Alpaydin and Kaynak,
    Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (its test set).
    """
    found = find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise UsageError(
            "--dataset digits needs scikit-learn.",
            "The images come with it, and it is not installed.",
            "Try: pip install 'distdemo[digits]'.",
        )
    file = Path(next(iter(found.submodule_search_locations)), "datasets/data/digits.csv.gz")
    lines = gzip.decompress(file.read_bytes()).split()  # of 65 small numbers: 0,0,5,...,0
    rows = [bytes(map(int, line.split(b","))) for line in lines]

    def samples(chosen: list[bytes]) -> LabelledBytes:
        return LabelledBytes(b"".join(row[:-1] for row in chosen), bytes(row[-1] for row in chosen))

    return samples([row for at, row in enumerate(rows) if at % 5 != 4]), samples(rows[4::5])


def _read_mnist(folder: str) -> tuple[LabelledBytes, LabelledBytes]:
    """MNIST from the folder that torchvision keeps it in; nothing is downloaded."""
    try:
        from torchvision.datasets import MNIST
    except (ImportError, RuntimeError) as error:  # RuntimeError: it was built for another torch
        raise UsageError(
            "--dataset mnist needs a torchvision for this torch.",
            f"{error}.",
            "Try: pip install 'distdemo[mnist]'.",
        ) from error
    try:
        train, test = (MNIST(folder, train=part) for part in (True, False))
    except (RuntimeError, OSError, ValueError) as error:
        raise UsageError(
            f"--data-dir {folder}: there is no MNIST that torchvision can read.",
            str(error).splitlines()[0],
            f"torchvision.datasets.MNIST({folder!r}, download=True) puts it there.",
        ) from error
    return tuple(  # type: ignore[return-value]  # two
        LabelledBytes(part.data.numpy().tobytes(), bytes(part.targets.tolist()))
        for part in (train, test)
    )
