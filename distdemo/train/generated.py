"""Points of ten classes, made from the seed: nothing to download, the same on every machine.

Every class is three clouds of points in a space of 16 dimensions, placed at random; so no class can
be told from the others by straight lines alone. A coordinate of a cloud's middle is 0 to 127, and
those of its points go evenly from there to 63 more. Made by Python's own generator, so that they
are the same with every torch.
"""

from __future__ import annotations

import random

from distdemo.train.data import Data, Samples, data_of

FEATURES = 16
CLASSES = 10
CLOUDS = 3  # of a class
SAMPLES = 2000
TESTS = 1000


def generate(seed: int) -> Data:
    """The points of this seed."""
    source = random.Random(seed)
    middles = [source.randbytes(FEATURES) for _ in range(CLASSES * CLOUDS)]
    train = _samples(source, middles, SAMPLES)
    test = _samples(source, middles, TESTS)
    return data_of("generated points", FEATURES, train, test)


def _samples(source: random.Random, middles: list[bytes], count: int) -> Samples:
    clouds = [source.randrange(len(middles)) for _ in range(count)]
    around = b"".join(middles[cloud] for cloud in clouds)
    spread = source.randbytes(len(around))
    inputs = bytes((a >> 1) + (b >> 2) for a, b in zip(around, spread, strict=True))
    return Samples(inputs, bytes(cloud % CLASSES for cloud in clouds))
