"""The contract of a way to average gradients over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from distdemo.train.ledger import Ledger
from distdemo.train.records import TrainSpec


@dataclass(frozen=True, slots=True)
class Averaging:
    """A model whose gradients are averaged.

    Attributes:
        module: what the samples are given to.
        average: Collective: called after the backward pass; then every parameter's gradient is the
            mean over the ranks.
    """

    module: nn.Module
    average: Callable[[], None]


Way = Callable[[nn.Module, Ledger, TrainSpec], Averaging]
"""Collective: takes a model that is the same on every rank, and the book to note collectives in."""
