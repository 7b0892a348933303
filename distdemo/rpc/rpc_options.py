"""The options of ``rpc`` that no other command has, or that mean something else there."""

from __future__ import annotations

from typing import Any

from distdemo.cli.option_kinds import RANKS, text_option
from distdemo.rpc.records import RpcSpec

TRAINING = "Training"
_DEFAULT = RpcSpec()

RPC_OPTIONS: dict[str, tuple[Any, Any]] = {
    "workers": text_option(
        "--world-size",
        "-n",
        panel=RANKS,
        metavar="N",
        text="How many workers: 2. With 3 or more the model's two parts live on two of them.",
    ),
    "rpc_timeout": text_option(
        "--timeout",
        panel=RANKS,
        metavar="SECONDS",
        text="When to give up, and say who does not answer. By default 30 s, and more for many "
        "--steps or workers. 10 s without progress are the end before that; a third of what you "
        "give, if that is more, and 30 s at most.",
    ),
    "rpc_steps": text_option(
        "--steps",
        panel=TRAINING,
        metavar="NUMBER",
        text=f"Of the training: {_DEFAULT.steps}.",
    ),
    "rpc_rate": text_option(
        "--lr",
        "--learning-rate",
        panel=TRAINING,
        metavar="NUMBER",
        text=f"Learning rate of SGD: {_DEFAULT.learning_rate:g}.",
    ),
    "rpc_seed": text_option(
        "--seed",
        panel=TRAINING,
        metavar="NUMBER",
        text=f"Of the model's first weights: {_DEFAULT.seed}.",
    ),
}
"""Annotation and default of each by its Python name."""
