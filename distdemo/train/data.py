"""The samples as plain bytes, read or made once; no torch, no NumPy.

A byte a number, as images have them. So the data is small, can be shared with forked ranks without
a copy, and is there before torch is: what is wrong with it is said at once.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

LOOKED_AT = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs and their classes.

    Attributes:
        inputs: one sample after the other, a byte a number.
        labels: a byte a sample.
    """

    inputs: bytes = field(repr=False)
    labels: bytes = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class Data:
    """What to learn, and what to test it on; the two have no sample in common.

    Attributes:
        words: what the data is, in a few words.
        features: numbers of a sample.
        classes: to tell apart.
        mean: of the numbers of a sample.
        spread: their standard deviation.
    """

    words: str
    features: int
    classes: int
    mean: float
    spread: float
    train: Samples
    test: Samples


def data_of(words: str, features: int, train: Samples, test: Samples) -> Data:
    """The data made of these samples; how its numbers are spread is told by the first of them."""
    mean, spread = _moments(train.inputs[:LOOKED_AT])
    return Data(words, features, max(*train.labels, *test.labels) + 1, mean, spread, train, test)


def _moments(numbers: bytes) -> tuple[float, float]:
    """Mean and standard deviation; 1 instead of a deviation of 0, which nothing can be divided by.

    Counted by value, so that Python adds up 256 terms at most.
    """
    counted, total = Counter(numbers), len(numbers)
    mean = sum(value * count for value, count in counted.items()) / total
    square = sum((value - mean) ** 2 * count for value, count in counted.items()) / total
    return mean, math.sqrt(square) or 1.0
