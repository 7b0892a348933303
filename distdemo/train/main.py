"""train on every rank: first, on rank 0 alone, the reference, then each mode in turn.

While rank 0 trains the reference the others wait for it, in no mode's time; the launcher ends the
world if that takes too long.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from itertools import combinations
from time import monotonic
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from distdemo.launcher.torch_compiler import load_compiler
from distdemo.train.classifier import classifier
from distdemo.train.clock import clock_of
from distdemo.train.ledger import Ledger
from distdemo.train.limits import shares
from distdemo.train.loop import Course, Training
from distdemo.train.partition import PARTITIONS
from distdemo.train.parts import Comparison, ModePart, RankPart
from distdemo.train.records import REFERENCE, Progress, TrainSpec
from distdemo.train.reference import Reference, difference, weights_of
from distdemo.train.tensors import tensors
from distdemo.train.ways import WAYS, modes_of

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank
    from distdemo.train.data import Data

SAY = 1.0  # seconds


def train(rank: Rank, spec: TrainSpec, data: Data) -> RankPart:
    """Collective: train in every mode that was asked for, and say what came of it.

    Args:
        rank: this rank of the world.
        spec: what to train.
        data: on what, as ``prepare`` gave it.
    """
    if "torch._dynamo" not in sys.modules and rank.device == "cpu":  # a rank that was not forked
        load_compiler()
    runner = _Runner(rank, spec, data, _course(rank, spec, data))
    reference = runner.run_reference() if rank.rank == 0 else None
    parts = tuple(runner.run(mode, reference) for mode in modes_of(spec.mode))
    compared = None if reference is None else _compare(reference, runner.weights)
    return RankPart(rank.rank, parts, compared)


@dataclass(slots=True)
class _Runner:
    """Runs one training after the other.

    Attributes:
        weights: by mode, after the last epoch that can be compared; rank 0 alone keeps them.
        done: epochs, of all trainings.
        said: when it last said so, on the monotonic clock.
    """

    rank: Rank
    spec: TrainSpec
    data: Data
    course: Course
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    done: int = 0
    said: float = field(default_factory=monotonic)

    def run_reference(self) -> Reference:
        """All epochs of the reference, on this rank alone."""
        everyone = replace(self.course, ranks=range(self.rank.world_size), alone=True)
        training, shadow = (self._begin(REFERENCE, everyone) for _ in range(2))
        reference = Reference.of(training, shadow)
        for _ in range(self.spec.epochs):
            self._advance(training)
            reference.follow()
        return reference

    def run(self, mode: str, reference: Reference | None) -> ModePart:
        """Collective: all epochs of a mode.

        Args:
            mode: which.
            reference: to compare with; only rank 0 has it.
        """
        training = self._begin(mode, self.course)
        self._meet(training)
        for epoch in range(1, self.spec.epochs + 1):
            self._advance(training)
            if reference is not None and epoch == reference.comparable:
                self.weights[mode] = weights_of(training.averaging.module)
        return training.part(self.rank.rank)

    def _begin(self, mode: str, course: Course) -> Training:
        """Collective, unless it is the reference: a training with new weights."""
        model = classifier(self.data, self.spec.hidden, self.spec.seed, self.rank.device)
        ledger = Ledger(clock_of(self.rank.device))
        way = WAYS[mode](model, ledger, self.spec)
        return Training(mode, course, self.spec, way, ledger, self._move)

    def _move(self) -> None:
        """Say now and then that this rank still moves: an epoch may outlast the world's patience.

        No new phase: by their number it is judged which rank is behind.
        """
        if monotonic() - self.said >= SAY:
            self.said = monotonic()
            self.rank.tell(None)

    def _meet(self, training: Training) -> None:
        """Collective: wait until all ranks are here and connected, in no mode's time."""
        self.rank.reach(f"ready for {training.mode}")
        dist.all_reduce(torch.zeros_like(weights_of(training.averaging.module)))
        self.rank.synchronize()

    def _advance(self, training: Training) -> None:
        """Collective: one epoch; rank 0 tells how it went."""
        epoch = len(training.epochs) + 1
        if training.mode != REFERENCE:  # the others wait, and are not behind
            self.rank.reach(f"epoch {epoch} of {training.mode}")
        result = training.run_epoch()
        self.done += 1
        if self.rank.rank == 0:
            total = (len(modes_of(self.spec.mode)) + 1) * self.spec.epochs
            self.rank.tell(
                Progress(training.mode, epoch, self.done, total, result.loss, result.accuracy)
            )


def _compare(reference: Reference, weights: dict[str, torch.Tensor]) -> Comparison:
    """How far the modes are from the reference, and from each other."""
    pairs = combinations(weights.values(), 2)
    return Comparison(
        reference=reference.training.part(0),
        epochs=reference.comparable,
        moved=reference.moved,
        differences={mode: difference(each, reference.weights) for mode, each in weights.items()},
        apart=_largest([difference(a, b) for a, b in pairs]),
    )


def _largest(differences: list[float]) -> float:
    """NaN if one is."""
    return float(torch.tensor([0.0, *differences], dtype=torch.float64).max())


def _course(rank: Rank, spec: TrainSpec, data: Data) -> Course:
    samples = len(data.train)
    return Course(
        ranks=(rank.rank,),
        cut=shares(spec, samples, rank.world_size),
        partition=PARTITIONS[spec.partition](samples, rank.world_size, spec.seed),
        train=tensors(data, data.train, rank.device),
        test=tensors(data, data.test, rank.device),
    )
