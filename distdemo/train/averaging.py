"""Ways to average gradients over the ranks, and the timer of their collectives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket  # re-exported untyped by torch.distributed
from torch.nn.parallel import DistributedDataParallel

from distdemo.launcher.clock import Clock
from distdemo.train.records import REFERENCE

BUCKET_MIB = 0.004
"""Bucket size of DDP. Its default, 25, would hold the whole model, so nothing could overlap."""


@dataclass(slots=True)
class Transfer:
    """A collective, with marks of the clock at its start and end."""

    size_bytes: int
    start: Any
    end: Any


@dataclass(slots=True)
class Step:
    """The collectives of one step, and the mark at which its gradients were computed."""

    transfers: list[Transfer] = field(default_factory=list)
    computed: Any = None


class StepTimer:
    """Timer of one rank's collectives in each step of an epoch.

    Attributes:
        steps: Steps since `restart`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.steps: list[Step] = []

    def restart(self) -> None:
        """Begin an epoch."""
        self._clock.begin()
        self.steps = []

    def begin(self, tensor: torch.Tensor) -> Transfer:
        """Begin a collective on this tensor; see ``end``."""
        now = self._clock.mark()
        transfer = Transfer(tensor.numel() * tensor.element_size(), now, now)
        self.steps[-1].transfers.append(transfer)
        return transfer

    def end(self, transfer: Transfer) -> None:
        """End a collective. Can be called from any thread."""
        transfer.end = self._clock.mark()

    def computed(self) -> None:
        """Record that all gradients of the step are computed. The first call counts."""
        if self.steps[-1].computed is None:
            self.steps[-1].computed = self._clock.mark()

    def communication(self) -> tuple[float, float]:
        """Wait for the device and return the communication of the epoch.

        Returns:
            Seconds with a collective in progress; and the part of these during which the backward
            pass of the step was computing.
        """
        self._clock.settle()
        read = self._clock.read
        busy = overlapped = reached = 0.0
        for step in self.steps:
            for transfer in step.transfers:  # in the order of their starts
                start = max(read(transfer.start), reached)
                reached = max(read(transfer.end), reached)
                busy += reached - start
                overlapped += max(0.0, min(reached, read(step.computed)) - start)
        return busy, overlapped


class Averaging(NamedTuple):
    """A model whose gradients are averaged.

    Attributes:
        module: Module to call with the samples.
        average: Collective: function to call after the backward pass; it leaves the mean over the
            ranks in every parameter's gradient.
    """

    module: nn.Module
    average: Callable[[], None]


AveragingMethod = Callable[[nn.Module, StepTimer], Averaging]
"""Function of a model, the same on every rank, and a timer for its collectives. Collective."""


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    """Return the gradients of all parameters, after a backward pass."""
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def manual(model: nn.Module, timer: StepTimer) -> Averaging:
    """Call all_reduce on each parameter's gradient and divide, as in the PyTorch tutorial."""

    def average() -> None:
        for gradient in gradients_of(model):
            transfer = timer.begin(gradient)
            dist.all_reduce(gradient)
            timer.end(transfer)
            gradient.div_(dist.get_world_size())

    return Averaging(model, average)


def flat(model: nn.Module, timer: StepTimer) -> Averaging:
    """Average all gradients in one buffer: one collective per step, the same bytes.

    The buffer::

        [ 0.weight | 0.bias | 2.weight | 2.bias ]
    """

    def average() -> None:
        gradients = gradients_of(model)
        buffer = torch.cat([gradient.reshape(-1) for gradient in gradients])
        transfer = timer.begin(buffer)
        dist.all_reduce(buffer)
        timer.end(transfer)
        buffer /= dist.get_world_size()
        parts = torch.split(buffer, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    return Averaging(model, average)


def ddp(model: nn.Module, timer: StepTimer) -> Averaging:
    """Use DistributedDataParallel, which reduces buckets of gradients during the backward pass.

    Once all gradients of a bucket are computed, DDP calls a communication hook. Ours does what DDP
    does without one (divide by the number of ranks, then a nonblocking all_reduce) and times it.
    Buckets are in order: at the last one, all gradients have been computed.
    """
    device = next(model.parameters()).device
    module = DistributedDataParallel(
        model,
        device_ids=None if device.type == "cpu" else [device],
        bucket_cap_mb=BUCKET_MIB,
    )

    def hook(bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.is_last():
            timer.computed()
        transfer = timer.begin(bucket.buffer())
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)

        def arrived(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            timer.end(transfer)
            return future.value()[0]

        return work.get_future().then(arrived)  # type: ignore[no-any-return]  # untyped in torch

    module.register_comm_hook(None, lambda _, bucket: hook(bucket))  # torch rejects annotations
    return Averaging(module, lambda: None)


def single(model: nn.Module, _: StepTimer) -> Averaging:
    """Average nothing: the reference, one process with the batches of all ranks."""
    return Averaging(model, lambda: None)


AVERAGING_METHODS: dict[str, AveragingMethod] = {
    "manual": manual,
    "flat": flat,
    "ddp": ddp,
    REFERENCE: single,
}
