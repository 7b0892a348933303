"""The options of ``train`` that no other command has, or that mean something else there."""

from __future__ import annotations

from typing import Any

from distdemo.cli.option_kinds import DATA, OUTPUT, RANKS, text_option
from distdemo.train.limits import MOST_EPOCHS
from distdemo.train.records import DATASETS, MODES, PARTITIONS, TrainSpec

TRAINING = "Training"
_DEFAULT = TrainSpec()

TRAIN_OPTIONS: dict[str, tuple[Any, Any]] = {
    "mode": text_option(
        "--mode",
        panel=TRAINING,
        metavar="MODE",
        text="How gradients are averaged: manual (an all_reduce for each parameter), flat (one for "
        "all), ddp (DistributedDataParallel), or compare (all of them; the default). Each is held "
        "against one process.",
        offers=("compare", *MODES),
    ),
    "epochs": text_option(
        "--epochs",
        panel=TRAINING,
        metavar="NUMBER",
        text=f"How often all samples are seen: {_DEFAULT.epochs}. {MOST_EPOCHS:,} at most.",
    ),
    "batch_size": text_option(
        "--batch-size",
        panel=TRAINING,
        metavar="SAMPLES",
        text=f"Samples of a step, on all ranks together: {_DEFAULT.batch_size}.",
    ),
    "learning_rate": text_option(
        "--lr",
        "--learning-rate",
        panel=TRAINING,
        metavar="NUMBER",
        text=f"Learning rate of SGD: {_DEFAULT.learning_rate:g}.",
    ),
    "momentum": text_option(
        "--momentum",
        panel=TRAINING,
        metavar="NUMBER",
        text=f"Of SGD, 0 to below 1: {_DEFAULT.momentum:g}.",
    ),
    "hidden": text_option(
        "--hidden",
        panel=TRAINING,
        metavar="UNITS",
        text=f"Units of the hidden layer: {_DEFAULT.hidden}.",
    ),
    "bucket_mb": text_option(
        "--bucket-mb",
        panel=TRAINING,
        metavar="MIB",
        text="DDP's bucket_cap_mb: gradients are averaged in buckets of about this size: "
        f"{_DEFAULT.bucket_mb:g}. (DDP's own default is 25; this model would fit in one.)",
    ),
    "train_seed": text_option(
        "--seed",
        panel=DATA,
        metavar="NUMBER",
        text=f"Of the data, the shuffles and the first weights: {_DEFAULT.seed}.",
    ),
    "dataset": text_option(
        "--dataset",
        panel=DATA,
        metavar="NAME",
        text="generated (made here; the default), digits (real images, from scikit-learn) or mnist "
        "(your files, with --data-dir).",
        offers=DATASETS,
    ),
    "data_dir": text_option(
        "--data-dir",
        panel=DATA,
        metavar="FOLDER",
        text="Where MNIST's four IDX files lie, as they are or as .gz. Implies --dataset mnist.",
    ),
    "partition": text_option(
        "--partition",
        panel=DATA,
        metavar="WAY",
        text="Who gets which samples: shuffle (a seeded shuffle, cut into parts; the default) or "
        "sampler (DistributedSampler).",
        offers=PARTITIONS,
    ),
    "stall_timeout": text_option(
        "--timeout",
        panel=RANKS,
        metavar="SECONDS",
        text="When a training that gets no further is given up: 30. One that moves goes on as long "
        "as it takes.",
    ),
    "plot": text_option(
        "--plot",
        panel=OUTPUT,
        metavar="FILE",
        text="Draw loss and accuracy by epoch: a .png, .svg or .pdf. Needs matplotlib.",
    ),
    "trace": text_option(
        "--trace",
        panel=OUTPUT,
        metavar="FILE",
        text="Write what every rank did when, for Perfetto or chrome://tracing.",
    ),
}
"""Annotation and default of each by its Python name."""
