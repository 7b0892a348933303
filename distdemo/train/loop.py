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
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from distdemo.launcher.clock import clock_of
from distdemo.launcher.torch_import import load_compiler
from distdemo.train.averaging import AVERAGING_METHODS, SpanRecorder
from distdemo.train.records import (
    CHUNK,
    COMPUTE,
    REFERENCE,
    TOLERANCE,
    Deviation,
    Epoch,
    EpochDone,
    Run,
    Span,
    TrainSpec,
    TrainTask,
)

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank
    from distdemo.train.data import Data, Samples

DTYPE = torch.float64
REPORTED = 1.0  # seconds between two progress reports; an epoch may be longer than the stall limit
ROUNDING = 1e-9
"""Relative difference above which rounding may have grown beyond ``TOLERANCE`` in the next step.

A wrong average (an undivided sum, a missing rank, a forgotten parameter) changes the loss of the
second step by 1e-4 or more. Rounding starts at 1e-16 and grows by a factor per step. So a
difference that jumps from below this to above ``TOLERANCE`` in one step is a wrong average.
"""
LARGEST_LOSS = 1e6
"""Loss, in nats, above which a training diverges. Guessing costs a few nats."""
SMALLEST_LOSS = 1e-6
"""Smallest loss, in nats, to divide by: below it, relative rounding errors are large."""


@dataclass(frozen=True, slots=True)
class RankTrainings:
    """Result of one rank.

    Attributes:
        runs: On rank 0 the reference, then one run per mode, with this rank's times and checksums,
            and on rank 0 the comparison.
        spans: Spans of this rank; empty unless a timeline was requested.
    """

    runs: tuple[Run, ...]
    spans: tuple[Span, ...]


def train(rank: Rank, spec: TrainSpec, task: TrainTask, data: Data) -> RankTrainings:
    """Train in every requested mode. Collective."""
    if "torch._dynamo" not in sys.modules and rank.device == "cpu":  # not a forked rank
        load_compiler()
    parts = [DeviceSamples(part, data, rank.device) for part in (data.train, data.test)]
    reference = Training(REFERENCE, rank, spec, task, *parts) if rank.rank == 0 else None
    trainings = [Training(mode, rank, spec, task, *parts) for mode in spec.modes]
    every = [each for each in (reference, *trainings) if each is not None]
    done = 0
    for epoch in range(1, spec.epochs + 1):
        for training in every:
            if training is not reference:  # no phase: the waiting ranks aren't late
                rank.report_phase(f"epoch {epoch} of {training.mode}")
                dist.all_reduce(torch.zeros_like(training.weights))  # all arrived and connected
                rank.synchronize()
            training.run_epoch()
            done += 1
            if reference is not None:
                training.compare(reference)
                last = training.epochs[-1]
                rank.send(EpochDone(training.mode, epoch, done, last.loss, last.accuracy))
    return RankTrainings(
        tuple(training.run for training in every),
        tuple(span for training in every for span in training.spans),
    )


class DeviceSamples:
    """Samples on a rank's device; on the CPU they share memory and must not be written."""

    def __init__(self, samples: Samples, data: Data, device: str) -> None:
        self._inputs = torch.from_numpy(samples.inputs).to(device)
        self._labels = torch.from_numpy(samples.labels).to(device)
        self._mean, self._deviation = data.moments()

    def take(self, which: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return samples with zero mean and unit deviation, and their labels."""
        inputs = self._inputs[which].to(DTYPE).sub_(self._mean).div_(self._deviation)
        return inputs, self._labels[which].long()


class Training:
    """One training on this rank.

    Attributes:
        losses: Mean loss over all ranks' samples, per step of the last epoch.
        spans: Spans of all epochs; empty unless a timeline was requested.
    """

    def __init__(  # noqa: PLR0917 - shared by all trainings of a rank
        self,
        mode: str,
        rank: Rank,
        spec: TrainSpec,
        task: TrainTask,
        train: DeviceSamples,
        test: DeviceSamples,
    ) -> None:
        self.mode = mode
        self.spans: list[Span] = []
        self._rank, self._spec, self._task = rank, spec, task
        self._train, self._test = train, test
        self._index, self._ranks = (0, 1) if mode == REFERENCE else (rank.rank, rank.world_size)
        torch.manual_seed(spec.seed)
        model = nn.Sequential(
            nn.Linear(task.features, spec.hidden, dtype=DTYPE),
            nn.Tanh(),
            nn.Linear(spec.hidden, task.classes, dtype=DTYPE),
        ).to(rank.device)
        self._recorder = SpanRecorder(clock_of(rank.device), rank.rank, mode)
        self._averaging = AVERAGING_METHODS[mode](model, self._recorder)
        self._optimizer = torch.optim.SGD(
            self._averaging.module.parameters(), lr=spec.learning_rate, momentum=spec.momentum
        )
        self.run = Run(mode)
        self.initial_weights = self.weights
        self._reported = monotonic()

    @property
    def weights(self) -> torch.Tensor:
        """Copy of all weights as one flat tensor."""
        parameters = self._averaging.module.parameters()
        return torch.cat([each.detach().reshape(-1) for each in parameters])

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """Completed epochs."""
        return self.run.epochs

    def run_epoch(self) -> None:
        """Train on all samples once, then test the model. Collective, except for the reference."""
        self._recorder.clock.begin()
        began = monotonic()
        losses = torch.stack([self._step(batch) for batch in self._batches()])
        spans, busy, overlapped = self._recorder.close()  # waits for the device
        seconds = monotonic() - began
        found = torch.cat([losses, self._count_right().reshape(1)])
        if self.mode != REFERENCE:
            dist.all_reduce(found)
            found[:-1] /= dist.get_world_size()
        self.losses = found[:-1].cpu()
        accuracy = float(found[-1]) / self._task.tests
        digest = hashlib.blake2b(_plain_bytes(self.weights), digest_size=8).hexdigest()
        epoch = Epoch(float(self.losses.mean()), accuracy, seconds, (digest,))
        last = self._recorder.step
        sent = [span for span in spans if span.track != COMPUTE and span.step == last]
        self.run = replace(
            self.run,
            epochs=(*self.epochs, epoch),
            steps=last + 1,
            collectives_per_step=len(sent),
            bytes_per_step=sum(span.size_bytes for span in sent),
            communication_s=self.run.communication_s + busy,
            overlapped_s=self.run.overlapped_s + overlapped,
        )
        if self._spec.timeline:
            self.spans += spans

    def compare(self, reference: Training) -> None:
        """Compare the last epoch with the reference's, unless the comparison has ended."""
        previous = self.run.comparison
        if self is reference or previous.stopped or previous.epochs < len(self.epochs) - 1:
            return
        expected = reference.losses
        losses = ((self.losses - expected).abs() / expected.abs().clamp_min(SMALLEST_LOSS)).tolist()
        weights = float((self.weights - reference.weights).abs().max())
        change = float((reference.weights - reference.initial_weights).abs().max())
        weights = weights / change if change else math.inf if weights else 0.0
        right = all(each <= TOLERANCE for each in (*losses, weights))  # False for NaN
        first = next((at for at, each in enumerate(losses) if not each <= TOLERANCE), len(losses))
        before = max(previous.loss_difference, previous.weight_difference, *losses[:first], 0.0)
        if not bool((expected <= LARGEST_LOSS).all()):
            found = replace(previous, stopped="diverged")
        elif not right and before > ROUNDING:
            found = replace(previous, stopped="rounding")
        else:
            found = Deviation(
                len(self.epochs),
                _largest([previous.loss_difference, *losses]),
                _largest([previous.weight_difference, weights]),
                "" if right else "wrong",  # later epochs add nothing
            )
        self.run = replace(self.run, comparison=found)

    def _step(self, batch: torch.Tensor) -> torch.Tensor:
        """Take one step of SGD and return the mean loss of its samples. Collective."""
        recorder = self._recorder
        recorder.begin_step()
        with recorder.computing("forward"):
            inputs, labels = self._train.take(batch.to(self._rank.device))
            loss = cross_entropy(self._averaging.module(inputs), labels)
        with recorder.computing("backward"):
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        self._averaging.average()
        with recorder.computing("optimizer step"):
            self._optimizer.step()
        self._report_progress()
        return loss.detach()

    def _batches(self) -> list[torch.Tensor]:
        """Return the sample indices of each step; the reference gets those of all ranks."""
        task, size = self._task, self._rank.world_size
        ranks = range(size) if self.mode == REFERENCE else (self._index,)
        orders = [
            order(self._spec.seed, task.samples, size, rank, len(self.epochs)) for rank in ranks
        ]
        ends = range(task.rank_batch, task.rank_batch * task.steps_per_epoch + 1, task.rank_batch)
        return [torch.cat([each[end - task.rank_batch : end] for each in orders]) for end in ends]

    @torch.no_grad()
    def _count_right(self) -> torch.Tensor:
        """Return the number of correct predictions in this process's share of the test samples."""
        module = self._averaging.module
        model = module.module if isinstance(module, DistributedDataParallel) else module
        device = self._rank.device
        mine = torch.arange(self._index, self._task.tests, self._ranks, device=device)
        total = torch.zeros((), dtype=DTYPE, device=device)
        for chunk in torch.split(mine, CHUNK):
            inputs, labels = self._test.take(chunk)
            total += (model(inputs).argmax(1) == labels).sum()
            self._report_progress()
        return total

    def _report_progress(self) -> None:
        """Report progress from time to time, without a phase: phases show which rank is late."""
        if monotonic() - self._reported >= REPORTED:
            self._reported = monotonic()
            self._rank.send(None)


def order(seed: int, samples: int, world_size: int, rank: int, epoch: int) -> torch.Tensor:
    """Return the indices of a rank's samples in an epoch, in order.

    As in the PyTorch tutorial, all samples are shuffled once and split evenly. A rank sees its own
    part in every epoch, each time in a new order::

        [7 2 9 | 4 0 5 | 8 1 3]     # shuffled once; ranks 0, 1 and 2
        [9 7 2]                     # rank 0, first epoch
        [2 7 9]                     # rank 0, second epoch
    """
    length = samples // world_size
    part = _permutation(samples, seed)[rank * length : (rank + 1) * length]
    # A prime and its square keep the seeds of neighboring epochs, ranks and seeds apart.
    epoch_seed = (seed + 1_000_003 * (epoch + 1) + 1_000_003**2 * rank) % 2**63
    return part[_permutation(length, epoch_seed)]


def _permutation(length: int, seed: int) -> torch.Tensor:
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))


def _plain_bytes(tensor: torch.Tensor) -> memoryview:
    """Return a tensor's memory as bytes."""
    return memoryview(tensor.cpu().contiguous().view(torch.uint8).numpy())  # type: ignore[arg-type]  # it is a buffer on every Python


def _largest(values: Sequence[float]) -> float:
    """Return the maximum, or NaN if any value is NaN."""
    return math.nan if any(map(math.isnan, values)) else max(values)
