"""The training loop on every rank: synchronous SGD, shared by all modes and the reference.

All trainings run in step: one epoch of the reference, on rank 0 alone, then one of each mode, which
is compared with the reference immediately. While rank 0 trains the reference, the other ranks wait;
no mode's time includes that. Weights are float64: n ranks add up gradients in a different order
from one process, so rounding differs, and the difference must be too small to be mistaken for a
wrong average.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket  # re-exported untyped by torch.distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from distdemo.launcher.local import sends
from distdemo.launcher.torch_import import load_compiler
from distdemo.train.proofs import loss_difference
from distdemo.train.records import (
    BUCKET_MIB,
    CLASSES,
    FEATURES,
    HIDDEN,
    REFERENCE,
    SAMPLES,
    TESTS,
    Epoch,
    EpochDone,
    Run,
    TrainSpec,
    rank_batch,
)

if TYPE_CHECKING:
    from distdemo.launcher.rank import Rank

DTYPE = torch.float64
Gradients = Sequence[torch.Tensor]
CLOUDS = 3  # of points per class
LEARNING_RATE = 0.1
MOMENTUM = 0.9


class Samples(NamedTuple):
    """Samples: ``inputs`` has one row of numbers per sample, ``labels`` one class."""

    inputs: torch.Tensor
    labels: torch.Tensor


def generate(seed: int, device: str = "cpu") -> tuple[Samples, Samples]:
    """Generate training and test samples, the same on every machine and torch release.

    A sample is a point. Each class is three clouds of points with random centers, so the classes
    aren't linearly separable. A center has coordinates from 0 to 127; its points are spread
    uniformly up to 63 above it. Then all are scaled: training samples have zero mean and unit
    deviation.
    """
    source = random.Random(seed)

    def random_bytes(rows: int) -> torch.Tensor:
        numbers = bytearray(source.randbytes(rows * FEATURES))
        return torch.frombuffer(numbers, dtype=torch.uint8).reshape(rows, FEATURES)

    centers = random_bytes(CLASSES * CLOUDS) >> 1

    def points(count: int) -> Samples:
        clouds = torch.tensor([source.randrange(len(centers)) for _ in range(count)])
        return Samples((centers[clouds] + (random_bytes(count) >> 2)).to(DTYPE), clouds % CLASSES)

    train = points(SAMPLES)
    test = points(TESTS)
    mean = train.inputs.mean()
    deviation = train.inputs.std(correction=0)

    def scaled(samples: Samples) -> Samples:
        inputs = (samples.inputs - mean) / deviation
        return Samples(inputs.to(device), samples.labels.to(device))

    return scaled(train), scaled(test)


def order(
    seed: int, world_size: int, rank: int, epoch: int, samples: int = SAMPLES
) -> torch.Tensor:
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


@sends(EpochDone)
def train(rank: Rank, spec: TrainSpec) -> tuple[Run, ...]:
    """Train in every requested mode. Collective.

    Returns:
        On rank 0 the reference, then one run per mode, with this rank's times and checksums, and
        on rank 0 the comparison.
    """
    if rank.device == "cpu":  # loaded already in forked ranks
        load_compiler()
    data = generate(spec.seed, rank.device)
    reference = Training(REFERENCE, rank, spec, data) if rank.rank == 0 else None
    modes = [Training(mode, rank, spec, data) for mode in spec.modes]
    trainings = modes if reference is None else [reference, *modes]
    for epoch in range(1, spec.epochs + 1):
        for training in trainings:
            if training is not reference:  # no phase: the waiting ranks aren't late
                rank.report_phase(f"epoch {epoch} of {training.mode}")
                dist.all_reduce(torch.zeros_like(training.weights()))  # all arrived and connected
                rank.synchronize()
            training.run_epoch()
            if reference is not None:
                if training is not reference:
                    training.compare(reference)
                last = training.run.epochs[-1]
                rank.send(EpochDone(training.mode, epoch, last.loss, last.accuracy))
    return tuple(training.run for training in trainings)


class Training:
    """One training on this rank.

    Attributes:
        run: Result so far.
        losses: Mean loss over all ranks' samples, per step of the last epoch.
        initial_weights: Weights before the first step.
    """

    def __init__(
        self, mode: str, rank: Rank, spec: TrainSpec, data: tuple[Samples, Samples]
    ) -> None:
        self.mode = mode
        self.run = Run(mode)
        self.losses: list[float] = []
        self._rank = rank
        self._seed = spec.seed
        self._train, self._test = data
        # Ranks whose part of the data this process takes
        self._parts = range(rank.world_size) if mode == REFERENCE else (rank.rank,)
        torch.manual_seed(spec.seed)
        self._model = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN, dtype=DTYPE),
            nn.Tanh(),
            nn.Linear(HIDDEN, CLASSES, dtype=DTYPE),
        ).to(rank.device)
        self._sizes: list[int] = []  # bytes of the collectives of the last step
        self._average = AVERAGING_METHODS.get(mode)
        self._module = ddp(self._model, self._sizes) if mode == "ddp" else self._model
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM
        )
        self.initial_weights = self.weights()

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
            epochs=(*self.run.epochs, Epoch(loss, right / TESTS, time_s, (checksum,))),
            steps=self.run.steps + len(losses),
            collectives_per_step=len(self._sizes),
            bytes_per_step=sum(self._sizes),
        )

    def compare(self, reference: Training) -> None:
        """Compare the last epoch with the reference's."""
        weights = reference.weights()
        difference = float((self.weights() - weights).abs().max())
        change = float((weights - reference.initial_weights).abs().max())
        epoch = replace(
            self.run.epochs[-1],
            loss_difference=loss_difference(self.losses, reference.losses),
            weight_difference=difference / change,
        )
        self.run = replace(self.run, epochs=(*self.run.epochs[:-1], epoch))

    def _step(self, batch: torch.Tensor) -> torch.Tensor:
        """Take one step of SGD and return the mean loss of its samples. Collective."""
        self._sizes.clear()
        batch = batch.to(self._rank.device)
        loss = cross_entropy(self._module(self._train.inputs[batch]), self._train.labels[batch])
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        if self._average is not None:
            gradients = [weight.grad for weight in self._model.parameters()]
            self._sizes += self._average([grad for grad in gradients if grad is not None])
        self._optimizer.step()
        return loss.detach()

    def _batches(self) -> list[torch.Tensor]:
        """Return the sample indices of each step."""
        world_size = self._rank.world_size
        size = rank_batch(world_size)
        epoch = len(self.run.epochs)
        orders = [order(self._seed, world_size, part, epoch) for part in self._parts]
        starts = range(0, SAMPLES // world_size - size + 1, size)
        return [torch.cat([part[start : start + size] for part in orders]) for start in starts]

    @torch.no_grad()
    def _count_right(self) -> torch.Tensor:
        """Return the number of correct predictions in this process's share of the test samples."""
        share = slice(None)
        if self.mode != REFERENCE:
            share = slice(self._rank.rank, None, self._rank.world_size)
        predictions: torch.Tensor = self._model(self._test.inputs[share]).argmax(1)
        return (predictions == self._test.labels[share]).sum()


# ------------------------------------------------------------------------------ averaging gradients


def manual(gradients: Gradients) -> Iterator[int]:
    """Call all_reduce on each gradient and divide, as in the PyTorch tutorial."""
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient.div_(dist.get_world_size())
        yield gradient.nbytes


def flat(gradients: Gradients) -> Iterator[int]:
    """Average all gradients in one buffer: one collective per step, the same bytes.

    The buffer::

        [ 0.weight | 0.bias | 2.weight | 2.bias ]
    """
    buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(buffer)
    buffer /= dist.get_world_size()
    parts = torch.split(buffer, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
    yield buffer.nbytes


AVERAGING_METHODS: dict[str, Callable[[Gradients], Iterator[int]]] = {
    "manual": manual,
    "flat": flat,
}
"""Functions that leave the mean over the ranks in the gradients, and yield the bytes of every
collective. Collective."""


def ddp(model: nn.Module, sizes: list[int]) -> nn.Module:
    """Return the model in DistributedDataParallel, which reduces buckets in the backward pass.

    Once all gradients of a bucket are computed, DDP calls a communication hook. Ours does what DDP
    does without one (divide by the number of ranks, then a nonblocking all_reduce) and counts it.

    Args:
        model: Model, the same on every rank.
        sizes: List to which the hook adds the bytes of every collective.
    """
    device = next(model.parameters()).device
    module = DistributedDataParallel(
        model,
        device_ids=None if device.type == "cpu" else [device],
        bucket_cap_mb=BUCKET_MIB,
    )

    def hook(bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        sizes.append(bucket.buffer().nbytes)
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        averaged = work.get_future().then(lambda done: done.value()[0])
        return averaged  # type: ignore[no-any-return]  # noqa: RET504 - untyped in torch

    module.register_comm_hook(None, lambda _, bucket: hook(bucket))  # torch rejects annotations
    return module
