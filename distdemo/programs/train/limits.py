"""What can't be trained, and how samples are shared out; no torch, no NumPy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from distdemo.errors import UsageError
from distdemo.training import DATASETS, MODES, PARTITIONS, TrainSpec

MODE_NAMES = (*MODES, "compare")
LARGEST_SEED = 2**62
"""Torch's generators take 64 bits, with a sign; the number of the epoch is added to the seed."""


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
            f"There are {samples} samples to train on, {samples // world_size} a rank.",
            f"Try --batch-size {max(samples // world_size // 8, 1) * world_size}.",
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
            f"--learning-rate {spec.learning_rate:g} can't be used.",
            "Each step goes so far along the gradient: it has to be more than 0.",
            "Try --learning-rate 0.1.",
        )
    if not 0 <= spec.momentum < 1:
        raise UsageError(
            f"--momentum {spec.momentum:g} can't be used.",
            "It is the share of the last step that goes into the next: 0 to below 1.",
            "Try --momentum 0.9.",
        )


def _check_bucket(bucket_mb: float) -> None:
    if not (bucket_mb * 2**20 >= 1 and bucket_mb < 2**20):
        raise UsageError(
            f"--bucket-mb {bucket_mb:g} can't be used.",
            "It is the size of DistributedDataParallel's buckets in MiB.",
            "Try --bucket-mb 25, torch's own default.",
        )
