"""The training loop on every rank: synchronous SGD, shared by all modes and the reference.

All trainings run in step: one epoch of the reference, on rank 0 alone, then one of each mode, which
is compared with the reference immediately. While rank 0 trains the reference, the other ranks wait;
no mode's time includes that. Weights are float64: n ranks add up gradients in a different order
from one process, so rounding differs, and the difference must be too small to be mistaken for a
wrong average.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from distdemo.launcher.local import sends
from distdemo.launcher.torch_import import load_compiler
from distdemo.train.averaging import AVERAGING_METHODS
from distdemo.train.data import DTYPE, Samples, generate, order
from distdemo.train.proofs import compare_epoch
from distdemo.train.records import HIDDEN, REFERENCE, Epoch, EpochDone, Run, TrainSpec, TrainTask

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

MOMENTUM = 0.9
REPORT_S = 1.0  # between two reports of progress; an epoch may be longer than the stall limit


@sends(EpochDone)
def train(rank: Rank, spec: TrainSpec, task: TrainTask) -> tuple[Run, ...]:
    """Train in every requested mode. Collective.

    Returns:
        On rank 0 the reference, then one run per mode, with this rank's times and checksums, and
        on rank 0 the comparison.
    """
    if rank.device == "cpu":  # loaded already in forked ranks
        load_compiler()
    data = generate(spec.seed, rank.device)
    reference = Training(REFERENCE, rank, spec, task, data) if rank.rank == 0 else None
    modes = [Training(mode, rank, spec, task, data) for mode in spec.modes]
    trainings = modes if reference is None else [reference, *modes]
    done = 0
    for epoch in range(1, spec.epochs + 1):
        for training in trainings:
            if training is not reference:  # no phase: the waiting ranks aren't late
                rank.report_phase(f"epoch {epoch} of {training.mode}")
                dist.all_reduce(torch.zeros_like(training.weights()))  # all arrived and connected
                rank.synchronize()
            training.run_epoch()
            done += 1
            if reference is not None:
                if training is not reference:
                    training.compare(reference)
                last = training.run.epochs[-1]
                rank.send(EpochDone(training.mode, epoch, done, last.loss, last.accuracy))
    return tuple(training.run for training in trainings)


class Training:
    """One training on this rank.

    Attributes:
        run: Result so far.
        losses: Mean loss over all ranks' samples, per step of the last epoch.
        initial_weights: Weights before the first step.
    """

    def __init__(
        self,
        mode: str,
        rank: Rank,
        spec: TrainSpec,
        task: TrainTask,
        data: tuple[Samples, Samples],
    ) -> None:
        self.mode = mode
        self.run = Run(mode)
        self.losses: list[float] = []
        self._rank = rank
        self._seed = spec.seed
        self._task = task
        self._train, self._test = data
        # Ranks whose part of the data this process takes
        self._parts = range(rank.world_size) if mode == REFERENCE else (rank.rank,)
        torch.manual_seed(spec.seed)
        self._model = nn.Sequential(
            nn.Linear(task.features, HIDDEN, dtype=DTYPE),
            nn.Tanh(),
            nn.Linear(HIDDEN, task.classes, dtype=DTYPE),
        ).to(rank.device)
        self._sizes: list[int] = []  # bytes of the collectives of the last step
        self._module, self._average = AVERAGING_METHODS[mode](self._model, self._sizes)
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), lr=spec.learning_rate, momentum=MOMENTUM
        )
        self.initial_weights = self.weights()
        self._reported = monotonic()

    def weights(self) -> torch.Tensor:
        """Return a copy of all weights as one flat tensor."""
        return torch.cat([weight.detach().reshape(-1) for weight in self._model.parameters()])

    def run_epoch(self) -> None:
        """Train on all samples once, then test the model. Collective, except for the reference."""
        began = monotonic()
        losses = torch.stack([self._step(batch) for batch in self._batches()])
        self._rank.synchronize()
        time_s = monotonic() - began
        figures = torch.cat([losses, self._count_right().reshape(1)])
        if self.mode != REFERENCE:
            dist.all_reduce(figures)
            figures[:-1] /= dist.get_world_size()
        *self.losses, right = figures.tolist()
        loss = sum(self.losses) / len(self.losses)
        weights = self.weights().cpu().numpy().tobytes()
        checksum = hashlib.blake2b(weights, digest_size=8).hexdigest()
        self.run = replace(
            self.run,
            epochs=(*self.run.epochs, Epoch(loss, right / self._task.tests, time_s, (checksum,))),
            steps=self.run.steps + len(losses),
            collectives_per_step=len(self._sizes),
            bytes_per_step=sum(self._sizes),
        )

    def compare(self, reference: Training) -> None:
        """Compare the last epoch with the reference's."""
        weights = reference.weights()
        difference = float((self.weights() - weights).abs().max())
        change = float((weights - reference.initial_weights).abs().max())
        if difference:
            difference = difference / change if change else math.inf
        comparison = compare_epoch(self.run.comparison, self.losses, reference.losses, difference)
        self.run = replace(self.run, comparison=comparison)

    def _step(self, batch: torch.Tensor) -> torch.Tensor:
        """Take one step of SGD and return the mean loss of its samples. Collective."""
        self._sizes.clear()
        batch = batch.to(self._rank.device)
        loss = cross_entropy(self._module(self._train.inputs[batch]), self._train.labels[batch])
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        self._average()
        self._optimizer.step()
        if monotonic() - self._reported >= REPORT_S:  # no phase: phases show which rank is late
            self._reported = monotonic()
            self._rank.send(None)
        return loss.detach()

    def _batches(self) -> list[torch.Tensor]:
        """Return the sample indices of each step."""
        size = self._task.rank_batch
        epoch = len(self.run.epochs)
        orders = [order(self._seed, self._rank.world_size, part, epoch) for part in self._parts]
        starts = range(0, size * self._task.steps_per_epoch, size)
        return [torch.cat([part[start : start + size] for part in orders]) for start in starts]

    @torch.no_grad()
    def _count_right(self) -> torch.Tensor:
        """Return the number of correct predictions in this process's share of the test samples."""
        share = slice(None)
        if self.mode != REFERENCE:
            share = slice(self._rank.rank, None, self._rank.world_size)
        predictions: torch.Tensor = self._model(self._test.inputs[share]).argmax(1)
        return (predictions == self._test.labels[share]).sum()
