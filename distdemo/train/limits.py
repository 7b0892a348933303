"""What can't be trained, and how samples are shared out; no torch, no NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from distdemo.errors import UsageError
from distdemo.train.records import DATASETS, MODES, PARTITIONS, TrainSpec

if TYPE_CHECKING:
    from distdemo.train.data import Data

MODE_NAMES = (*MODES, "compare")
LARGEST_SEED = 2**62
"""Torch's generators take 64 bits, with a sign; the number of the epoch is added to the seed."""
MOST_EPOCHS = 100_000
SMALLEST_BUCKET, LARGEST_BUCKET = 1e-6, 1e6  # MiB; a byte, and more than any model here
NUMBER = 8  # bytes
CHUNK = 1024
"""Tests at once."""
COPIES = 7
"""Of all parameters on every rank: weights, gradients, momentum, what they travel in."""
COPIES_OF_REFERENCE = 12
"""On rank 0 besides: the reference and its shadow, and what the modes ended with."""
LAYERS = 3
"""Numbers a hidden unit and sample: before and after its activation, and a gradient. With 20,000
to 60,000 units, ranks (1 to 3) took nine tenths of what all this adds up to."""


@dataclass(frozen=True, slots=True)
class Shares:
    """How the samples of an epoch are cut: the same for every rank.

    Every rank gets equally many batches of equally many samples. So the mean over the ranks of
    each rank's mean gradient is the mean gradient over all samples of the step.

    Attributes:
        batch: samples of a rank in a step.
        steps: of an epoch.
        dropped: samples that no rank sees in an epoch, because they don't fit.
    """

    batch: int
    steps: int
    dropped: int


def shares(spec: TrainSpec, samples: int, world_size: int) -> Shares:
    """Cut so many samples.

    5 steps of 2 samples a rank, 3 of 33 samples dropped::

        shares(TrainSpec(batch_size=7), 33, world_size=3)
        [0 1][2 3][4 5][6 7][8 9] 10   # rank 0 (of its part of 11)
        [0 1][2 3][4 5][6 7][8 9] 10   # rank 1
        [0 1][2 3][4 5][6 7][8 9] 10   # rank 2
    """
    batch = spec.batch_size // world_size
    steps = samples // world_size // batch
    return Shares(batch, steps, samples - batch * steps * world_size)


SMALLEST_RATE = 1e-6
"""Of learning: the nudge of ``reference`` is then a millionth of how far weights move in a step."""


def check_train(spec: TrainSpec, world_size: int) -> None:
    """Refuse settings that no data and no machine could make good.

    Raises:
        UsageError: with what to try instead.
    """
    _check_choice("--mode", spec.mode, MODE_NAMES)
    _check_choice("--dataset", spec.dataset, DATASETS)
    _check_choice("--partition", spec.partition, PARTITIONS)
    _check_folder(spec)
    _check_count("--epochs", spec.epochs)
    _check_count("--hidden", spec.hidden)
    if spec.epochs > MOST_EPOCHS:
        raise UsageError(
            f"--epochs {spec.epochs} is out of range.",
            f"It takes 1 to {MOST_EPOCHS:,}: what each was like is kept.",
            f"Try --epochs {MOST_EPOCHS}.",
        )
    _check_batch(spec.batch_size, world_size)
    _check_rates(spec)
    _check_bucket(spec.bucket_mb)
    if not 0 <= spec.seed <= LARGEST_SEED:
        raise UsageError(
            f"--seed {spec.seed} can't be used.",
            "Torch's generators take whole numbers from 0 to 2^62.",
            "Try --seed 1234.",
        )


def check_samples(spec: TrainSpec, samples: int, world_size: int) -> None:
    """Refuse a batch that the data can't fill.

    Raises:
        UsageError: an epoch would have no step.
    """
    if shares(spec, samples, world_size).steps < 1:
        raise UsageError(
            f"--batch-size {spec.batch_size} is more than the data holds.",
            f"There are {samples:,} samples to train on, {samples // world_size:,} a rank.",
            f"Try --batch-size {samples // world_size * world_size}.",
        )


def memory_needed(spec: TrainSpec, data: Data, ranks: int) -> int:
    """Bytes that so many ranks of one machine need for the model, rank 0 among them."""
    parameters = (data.features + 1) * spec.hidden + (spec.hidden + 1) * data.classes
    at_once = max(spec.batch_size, min(ranks * CHUNK, len(data.test)))  # all ranks together
    copies = ranks * COPIES + COPIES_OF_REFERENCE
    return NUMBER * (copies * parameters + LAYERS * spec.hidden * at_once)


def check_memory(spec: TrainSpec, data: Data, ranks: int, free: int) -> None:
    """Refuse a model that the ranks of a machine can't hold.

    Args:
        spec: of the training.
        data: what is trained on.
        ranks: of this machine.
        free: bytes that they can use.

    Raises:
        UsageError: with a number of units that fits.
    """
    needed = memory_needed(spec, data, ranks)
    if needed <= free:
        return
    who = "1 rank" if ranks == 1 else f"{ranks} ranks"
    fitting = max(1, spec.hidden * free // needed)
    round_down = 10 ** (len(str(fitting)) - 1)
    raise UsageError(
        f"--hidden {spec.hidden} does not fit into memory.",
        f"{who} would need about {needed / 1e9:,.1f} GB for their models and what they "
        f"compute with them; {free / 1e9:,.1f} GB are free.",
        f"Try --hidden {fitting // round_down * round_down}, or fewer ranks.",
    )


def _check_choice(flag: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageError(
            f"{flag} {value} is unknown.", f"It is one of {', '.join(known)}.", f"Try {known[-1]}."
        )


def _check_folder(spec: TrainSpec) -> None:
    if spec.dataset == "mnist" and not spec.data_dir:
        raise UsageError(
            "--dataset mnist needs --data-dir.",
            "Nothing is downloaded: the four IDX files have to be there.",
            "Name the folder that holds them, or leave out --dataset for generated data.",
        )
    if spec.dataset != "mnist" and spec.data_dir:
        raise UsageError(
            f"--data-dir does not go with --dataset {spec.dataset}.",
            "It is the folder of MNIST's files.",
            "Try --dataset mnist, or leave out --data-dir.",
        )


def _check_count(flag: str, value: int) -> None:
    if value < 1:
        raise UsageError(
            f"{flag} {value} can't be used.", "There has to be at least one.", f"Try {flag} 1."
        )


def _check_batch(batch_size: int, world_size: int) -> None:
    if batch_size < world_size:
        raise UsageError(
            f"--batch-size {batch_size} is less than one sample a rank.",
            f"A batch is cut into equal parts for {world_size} ranks.",
            f"Try --batch-size {32 * world_size}.",
        )


def _check_rates(spec: TrainSpec) -> None:
    if not 0 < spec.learning_rate < math.inf:
        raise UsageError(
            f"--lr {spec.learning_rate:g} can't be used.",
            "Each step goes so far along the gradient: it has to be finite and more than 0.",
            "Try --lr 0.1.",
        )
    if spec.learning_rate < SMALLEST_RATE:
        raise UsageError(
            f"--lr {spec.learning_rate:g} is too small.",
            "The weights would move by less than their rounding can tell: nothing could be proved.",
            f"Try --lr 0.1; {SMALLEST_RATE:g} at least.",
        )
    if not 0 <= spec.momentum < 1:
        raise UsageError(
            f"--momentum {spec.momentum:g} can't be used.",
            "It is the share of the last step that goes into the next: 0 to below 1.",
            "Try --momentum 0.9.",
        )


def _check_bucket(bucket_mb: float) -> None:
    if not SMALLEST_BUCKET <= bucket_mb <= LARGEST_BUCKET:
        raise UsageError(
            f"--bucket-mb {bucket_mb:g} can't be used.",
            "It is the size of DistributedDataParallel's buckets in MiB: from "
            f"{SMALLEST_BUCKET:.6f} (a byte) to {LARGEST_BUCKET:,.0f}.",
            "Try --bucket-mb 25, torch's own default.",
        )
